//! Image references, digests, and a client of the Verifier, the service that registers notarized images.
//!
//! An image is *notarized* if its digest has been reviewed and registered. Admission webhooks, scanners and build
//! tools use this crate to answer three questions:
//!
//! - The image: [`ImageReference`] parses references as container runtimes do. Parse errors name the invalid part and
//!   its byte offset.
//! - Its content: [`Digest`] has a single spelling, so digests can be compared and used as keys. Only digests are
//!   notarized, because a tag can be moved to other content.
//! - Its notarization: `client::Verifier` queries the Verifier. [`NotaryVerdict`] distinguishes "not notarized" from
//!   "unknown", and [`CheckedVerdict`] adds the origin of the verdict.
//!
//! ```
//! use lucid_notary::ImageReference;
//!
//! let image: ImageReference =
//!     "ghcr.io/lucid/lucid-injection-auditor:1.4.2@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//!         .parse()?;
//! assert_eq!(image.name(), "ghcr.io/lucid/lucid-injection-auditor");
//! let digest = image.digest().ok_or("missing digest")?;
//! assert_eq!(digest.algorithm().name(), "sha256");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//!
//! - [`mod@reference`], [`pattern`], [`digest`], [`verdict`]: value types without I/O.
//! - `client` (feature `client`, enabled by default): the HTTP client of the Verifier, a `tower::Service` from
//!   [`Digest`] to its response, and `Verifier`, which adds cache, retries and a circuit breaker. Without the feature
//!   the crate depends on serde and snafu only.
//!
//! # Failure
//!
//! The author of a pod controls which digests are looked up, and how many. Everything that grows with them is
//! therefore bounded, cache entries are keyed by digest alone, and no digest can make the Verifier appear to be down.
//!
//! The Verifier may be slow, unavailable, broken or impersonated. Each request has a deadline, and a response counts
//! only if it names the requested digest. Every failure becomes [`NotaryVerdict::Unknown`]; the caller's policy decides how
//! to treat it.
//!
//! # Features
//!
//! | feature | default | enables |
//! |---|---|---|
//! | `client` | yes | the client of the Verifier |
//! | `signatures` | no | signatures on digests (`client::Signatures`), alone or with the Verifier (`client::Notary`); enables `client` |
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

#[cfg(feature = "client")]
pub mod client;
pub mod digest;
pub mod pattern;
pub mod reference;
mod registry;
mod text;
pub mod verdict;

pub use digest::Digest;
pub use pattern::{ImagePattern, ImagePatternError};
pub use reference::ImageReference;
pub use verdict::{CheckedVerdict, NotaryVerdict, Provenance};

#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../README.md")]
mod readme {}
