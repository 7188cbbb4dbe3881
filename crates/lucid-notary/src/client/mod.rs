//! The client of the Verifier.
//!
//! [`Verifier`] is what an admission webhook wants: it asks about the images of a pod, in parallel and in time, and
//! tells of each verdict where it comes from. It is made of [`tower::Service`]s from [`Digest`](crate::Digest), each of
//! which can be used alone: [`HttpVerifier`], which asks over HTTP, and one layer per module. [`check_all`] takes any such
//! service. All of this runs on tokio.
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
//!     Verdict::Unknown { reason } => println!("nobody knows whether {digest} may run: {reason}"),
//! }
//! # Ok(()) }
//! ```
//!
//! Errors of the services are [`tower::BoxError`]s, and causes of each other. [`is_outage`] tells the two kinds apart that
//! matter: the Verifier is out of order, or it refuses this very ask.

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
