//! The client of the Verifier.
//!
//! [`HttpVerifier`] is a [`tower::Service`] that asks over HTTP. Whatever should stand in front of it (a cache, a
//! breaker, a limit) is a layer around it, and [`check_all`] takes any such service. All of this runs on tokio.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//!
//! use lucid_notary::client::{HttpVerifier, check_all};
//! use lucid_notary::{Digest, Verdict};
//!
//! # async fn example(digest: Digest) -> Result<(), Box<dyn std::error::Error>> {
//! let verifier = HttpVerifier::builder("https://verifier.lucid-system.svc").timeout(Duration::from_secs(1)).build()?;
//! let deadline = Instant::now() + Duration::from_secs(5);
//! match &check_all(verifier, [digest.clone()], deadline).await[&digest] {
//!     Verdict::Notarized => println!("{digest} may run"),
//!     Verdict::NotNotarized => println!("{digest} must not run"),
//!     Verdict::Unknown { reason } => println!("nobody knows whether {digest} may run: {reason}"),
//! }
//! # Ok(()) }
//! ```

mod answer;
mod batch;
mod builder;
mod error;
mod http;

pub use self::answer::Answer;
pub use self::batch::{MAX_IN_FLIGHT, check_all};
pub use self::builder::{BuildError, HttpVerifierBuilder};
pub use self::error::VerifierError;
pub use self::http::HttpVerifier;
