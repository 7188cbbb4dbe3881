//! Image references, digests, and the client of the Verifier, the service that knows which images are notarized.
//!
//! An image is *notarized* when somebody has reviewed it and registered its digest. This crate answers the three
//! questions that an admission webhook, a scanner or a build step asks about that:
//!
//! - Which image is this? [`ImageReference`] reads a reference as container runtimes do, and says which part is
//!   wrong at which byte if it is none.
//! - Which exact content? [`Digest`] has one spelling, so it can be compared and used as a key. A tag can be moved
//!   to other content, a digest cannot: only digests are notarized.
//! - Is it notarized? `client::Verifier` asks, and [`Verdict`] keeps "no" apart from "could not ask". [`Checked`]
//!   tells where a verdict comes from as well.
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
//! - [`mod@reference`], [`pattern`], [`digest`], [`verdict`], [`checked`]: values, without I/O.
//! - `client` (feature `client`, on by default): the Verifier as a `tower::Service` from [`Digest`] to answer, the layers
//!   that stand in front of it, each usable alone, and `Verifier`, which is all of them in order. Built without it, the
//!   crate depends on serde and snafu only.
//!
//! # What can go wrong
//!
//! The author of a pod chooses which digests are asked about, and how many. So everything that grows with them is
//! bounded, what is cached is bound to the digest alone, and no digest can make the Verifier look as if it were down. The
//! Verifier can be slow, away, broken or somebody else: each ask ends in time, an answer counts only if it is about the very
//! digest, and whatever is no answer is [`Verdict::Unknown`]. What to make of that is for a policy to say.

pub mod checked;
#[cfg(feature = "client")]
pub mod client;
pub mod digest;
pub mod pattern;
pub mod reference;
mod registry;
mod text;
pub mod verdict;

pub use checked::{Checked, Provenance};
pub use digest::Digest;
pub use pattern::{ImagePattern, ImagePatternError};
pub use reference::ImageReference;
pub use verdict::Verdict;

#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../README.md")]
mod readme {}
