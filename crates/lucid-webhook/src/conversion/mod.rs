//! Conversion between the versions of a custom resource (`apiextensions.k8s.io/v1` ConversionReview).
//!
//! The way of a request: `review` (envelope) → `converter` (batch) → for each object `object` (split into slices of its
//! text) → `paths` (the user's functions) → `metadata` (the API server's rules).

mod builder;
mod converter;
mod function;
mod metadata;
mod object;
mod paths;
mod review;

pub use builder::{ConverterBuilder, ConverterError};
pub use converter::{ConversionError, Converter};
pub use function::{ConversionFn, Converted};
pub use review::{ConversionAnswer, ConversionOutcome, ConversionReviewError};
