//! stub
use crate::{bundle::TrustBundle, names::ServingNames, serving::ServingCertificate, source::SourceError};
use std::time::SystemTime;
pub(crate) fn check(
    _: &ServingCertificate,
    _: &ServingNames,
    _: Option<&TrustBundle>,
    _: SystemTime,
) -> Result<(), SourceError> {
    Ok(())
}
