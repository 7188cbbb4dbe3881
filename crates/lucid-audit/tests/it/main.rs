//! Tests that need only the public API.

mod merkle;
mod notes;
