//! Image references, digests, and the client of the Verifier, the service that knows which images are notarized.
//!
//! An image is *notarized* when somebody has reviewed it and registered its digest. This crate answers the three
//! questions that an admission webhook, a scanner or a build step asks about that:
//!
//! - Which image is this? [`ImageReference`] reads a reference as container runtimes do, and says which part is
//!   wrong at which byte if it is none.
//! - Which exact content? [`Digest`] has one spelling, so it can be compared and used as a key. A tag can be moved
//!   to other content, a digest cannot: only digests are notarized.
//! - Is it notarized? `client::HttpVerifier` asks the Verifier, and [`Verdict`] keeps "no" apart from "could not
//!   ask".
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
//! - [`mod@reference`], [`digest`], [`verdict`]: values, without I/O.
//! - `client` (feature `client`, on by default): the Verifier as a `tower::Service` from [`Digest`] to answer, and
//!   `check_all` for the digests of one pod. Built without it, the crate depends on serde and snafu only.

pub mod checked;
#[cfg(feature = "client")]
pub mod client;
pub mod digest;
pub mod reference;
mod text;
pub mod verdict;

pub use checked::{Checked, Provenance};
pub use digest::Digest;
pub use reference::ImageReference;
pub use verdict::Verdict;

#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../README.md")]
mod readme {}
