//! Client of the Verifier.
//!
//! [`Verifier`] is the client for admission webhooks: it looks up the images of a pod concurrently and within a
//! deadline, and reports the provenance of each verdict. It wraps a [`tower::Service`] from
//! [`Digest`](crate::Digest) to [`Answer`], such as [`HttpVerifier`], which can also be used alone. Both require a
//! tokio runtime.
//!
//! With the feature `signatures`, `Notary` combines it with `Signatures`: the second source of verdicts, behind the same
//! cache and deadline, which policies choose by image.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//!
//! use lucid_notary::client::{HttpVerifier, Verifier};
//! use lucid_notary::{Digest, NotaryVerdict};
//!
//! # async fn example(digest: Digest) -> Result<(), Box<dyn std::error::Error>> {
//! let http =
//!     HttpVerifier::builder("https://verifier.lucid-system.svc").with_timeout(Duration::from_secs(1)).build()?;
//! let verifier = Verifier::builder(http).build();
//! let deadline = Instant::now() + Duration::from_secs(5);
//! match &verifier.check_all([digest.clone()], deadline).await[&digest].verdict {
//!     NotaryVerdict::Notarized => println!("{digest} may run"),
//!     NotaryVerdict::NotNotarized | NotaryVerdict::NotSigned { .. } => println!("{digest} must not run"),
//!     NotaryVerdict::Unknown { reason } => println!("{digest} could not be checked: {reason}"),
//! }
//! # Ok(()) }
//! ```

mod allowlist;
mod answer;
mod breaker;
mod builder;
mod cache;
mod credentials;
mod error;
mod http;
mod metrics;
#[cfg(feature = "signatures")]
mod notary;
mod proof;
mod reloading_files;
mod retry;
#[cfg(feature = "signatures")]
mod signatures;
mod verifier;

pub use self::allowlist::Allowlist;
pub use self::answer::Answer;
pub use self::builder::{BuildError, HttpVerifierBuilder};
pub use self::cache::TimeToLive;
pub use self::error::VerifierError;
pub use self::http::HttpVerifier;
pub use self::metrics::ClientMetrics;
#[cfg(feature = "signatures")]
pub use self::notary::Notary;
pub use self::proof::{ProofError, check_proof};
pub use self::reloading_files::FileError;
#[cfg(feature = "signatures")]
pub use self::signatures::Signatures;
pub use self::verifier::{Verifier, VerifierBuilder};
