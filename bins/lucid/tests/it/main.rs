//! Tests of the commands that need no cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails in a helper fails the test"
)]

mod audit;
mod docs;
// A program has no library: values are read as the program reads them.
#[allow(dead_code, unused_imports, reason = "only documents are read")]
#[path = "../../src/documents/mod.rs"]
mod documents;
#[allow(dead_code, reason = "only documents are read")]
#[path = "../../src/error.rs"]
mod error;
mod event;
mod image;
mod offline;
mod program;
mod validate;
mod verifier;
