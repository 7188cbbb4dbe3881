//! Text of Kubernetes objects.
//!
//! [`json`] reads the JSON of an object in one pass, and writes JSON as the API server does.

pub mod json;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
