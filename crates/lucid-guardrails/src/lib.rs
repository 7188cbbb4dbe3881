//! Judges for [`lucid_auditor`]: phrases and expressions, prompt injection, personal data and secrets, classifiers, and
//! remote services.

#[cfg(any(feature = "classifier", feature = "http"))]
mod cache;
#[cfg(feature = "classifier")]
pub mod classifier;
#[cfg(feature = "http")]
pub mod http;
#[cfg(any(feature = "classifier", feature = "http"))]
mod options;
