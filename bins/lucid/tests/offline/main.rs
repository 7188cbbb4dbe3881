//! The commands that do to files what the webhook does to pods.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails in a helper fails the test")]

mod api_server;
mod common;
mod docs;
mod explain;
mod formats;
mod inject;
// A program has no library: values are read as the program reads them.
#[allow(dead_code, unused_imports, reason = "only documents are read")]
#[path = "../../src/documents/mod.rs"]
mod documents;
#[allow(dead_code, reason = "only documents are read")]
#[path = "../../src/error.rs"]
mod error;
mod refused;
mod review;
