//! Client of the Verifier.
//!
//! [`Verifier`] is the client for admission webhooks: it looks up the images of a pod concurrently and within a
//! deadline, and reports the provenance of each verdict. It is composed of [`tower::Service`]s from
//! [`Digest`](crate::Digest) that can be used alone: [`HttpVerifier`], which sends HTTP requests, and one layer per
//! module. [`check_all`] accepts any such service. All of them require a tokio runtime.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//!
//! use lucid_notary::client::{HttpVerifier, Verifier};
//! use lucid_notary::{Digest, Verdict};
//!
//! # async fn example(digest: Digest) -> Result<(), Box<dyn std::error::Error>> {
//! let http = HttpVerifier::builder("https://verifier.lucid-system.svc").timeout(Duration::from_secs(1)).build()?;
//! let verifier = Verifier::builder(http).build();
//! let deadline = Instant::now() + Duration::from_secs(5);
//! match &verifier.check_all([digest.clone()], deadline).await[&digest].verdict {
//!     Verdict::Notarized => println!("{digest} may run"),
//!     Verdict::NotNotarized => println!("{digest} must not run"),
//!     Verdict::Unknown { reason } => println!("{digest} could not be checked: {reason}"),
//! }
//! # Ok(()) }
//! ```
//!
//! The services return [`tower::BoxError`]s whose sources form a chain. [`is_outage`] distinguishes an unavailable
//! Verifier from one that rejects a particular request.

pub mod allowlist;
mod batch;
pub mod breaker;
pub mod cache;
pub mod coalesce;
pub mod concurrency;
pub mod deadline;
mod failure;
mod file;
mod http;
pub mod last_known_good;
mod metrics;
pub mod retry;
mod verifier;

pub use self::allowlist::Allowlist;
pub use self::batch::{MAX_IN_FLIGHT, check_all};
pub use self::cache::{Cache, TimeToLive};
pub use self::failure::{CachedFailure, SharedError, is_outage};
pub use self::file::{FileError, Reread};
pub use self::http::{Answer, BuildError, HttpVerifier, HttpVerifierBuilder, VerifierError};
pub use self::metrics::Metrics;
pub use self::verifier::{Verifier, VerifierBuilder};
