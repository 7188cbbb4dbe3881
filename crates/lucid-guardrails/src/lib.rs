//! Judges for [`lucid_auditor`]: phrases and expressions, prompt injection, personal data and secrets, classifiers, and
//! remote services.

mod normalize;
pub mod phrases;
pub mod regex;
pub mod rules;
