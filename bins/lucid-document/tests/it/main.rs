//! What the public API promises.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod edits;
mod properties;
mod reading;
