//! The error of certificates, names and bundles.

use std::{error, fmt};

use crate::{
    bundle::BundleError,
    serving::{PairError, VerifyError},
};

/// Reason why names, durations, a certificate, a key or a bundle was rejected, why a certificate could not be issued, or why an
/// injector cannot run.
///
/// The message names the failed operation, and the accepted input if there is a choice. The source is the cause, if
/// another library reported it, such as a `webpki::Error` of a certificate that does not verify.
#[derive(Debug)]
pub struct Error(Box<dyn error::Error + Send + Sync>);

impl Error {
    /// Creates an error from a one-line problem.
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self(problem.into().into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source()
    }
}

impl From<BundleError> for Error {
    fn from(error: BundleError) -> Self {
        Self(Box::new(error))
    }
}

impl From<PairError> for Error {
    fn from(error: PairError) -> Self {
        Self(Box::new(error))
    }
}

impl From<VerifyError> for Error {
    fn from(error: VerifyError) -> Self {
        Self(Box::new(error))
    }
}
