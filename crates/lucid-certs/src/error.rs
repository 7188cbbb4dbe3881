//! The error of certificates, names and bundles.

use std::{error, fmt};

/// Reason why names, durations, a certificate, a key or a bundle was rejected, why a certificate could not be issued, or why an
/// injector cannot run.
///
/// The message names the failed operation, and the expected input if there is a choice. The source is the cause, if
/// another library reported it, such as a `webpki::Error` of a certificate that does not verify.
#[derive(Debug)]
pub struct Error(pub(crate) Box<dyn error::Error + Send + Sync>);

impl Error {
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
