#![doc = include_str!("../README.md")]
//!
//! # Items
//!
//! - [`json`] reads the JSON of an object in one pass, and writes JSON as the API server does.
//! - [`names`] checks names as the API server does, and suggests known names for misspelled ones.
//! - [`Excerpt`], [`Name`], [`Line`] and [`truncate`] show untrusted text. kube-apiserver drops warnings that contain
//!   control characters and truncates each to 256 characters if their total is too long; an annotation can have 256 KiB.
//!   Untrusted text is therefore escaped and truncated, so that the rest of the message stays visible.
//! - [`with_causes`] shows an error with its causes.

mod causes;
mod excerpt;
pub mod json;
pub mod names;

pub use causes::with_causes;
pub use excerpt::{Excerpt, Line, Name, truncate};
