//! Judges for [`lucid_auditor`]: phrases and expressions, prompt injection, personal data and secrets, classifiers, and
//! remote services.

#[cfg(feature = "http")]
mod cache;
#[cfg(feature = "http")]
pub mod http;
