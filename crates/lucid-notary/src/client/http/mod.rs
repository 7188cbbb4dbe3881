//! HTTP client of the Verifier.

mod answer;
mod builder;
mod credentials;
mod error;
mod service;

pub use self::answer::Answer;
pub use self::builder::{BuildError, HttpVerifierBuilder};
pub use self::error::VerifierError;
pub use self::service::HttpVerifier;
