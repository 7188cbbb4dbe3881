//! Conversion between the versions of a custom resource (`apiextensions.k8s.io/v1` ConversionReview).
//!
//! A request passes through `review` (envelope) → `converter` (batch) → per object: `object` (slices of its text) →
//! `paths` (the user's functions) → `metadata` (rules of the API server).

mod builder;
mod converter;
mod members;
mod metadata;
mod object;
mod paths;
mod review;

pub use builder::{ConverterBuilder, ConverterError};
pub use converter::{ConversionError, Converter};
pub use paths::{ConversionFn, Converted};
