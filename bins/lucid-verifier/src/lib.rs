//! A small notarization registry that serves the digests listed in a file.
//!
//! It implements the Verifier's protocol (`GET /registry/check?digest=sha256:…`) for development and for air-gapped
//! clusters without a registry of their own. It has no users and no history: write access to the file decides which
//! images are notarized.
//!
//! ```
//! use lucid_verifier::registry::Registry;
//!
//! let registry = Registry::parse(
//!     "notarized:\n- sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n",
//! )?;
//! let digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".parse()?;
//! assert!(registry.entry(&digest).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//!
//! - [`registry`]: the file format and lookups, without I/O; [`edit`]: edits of its text; [`listing`]: output as a
//!   table.
//! - [`file`](mod@file): reads the file and replaces it atomically.
//! - [`reload`] reloads the registry when its file changes, [`tls`] the serving certificate.
//! - [`http`]: the HTTP endpoints.

mod changes;
pub mod edit;
pub mod file;
pub mod http;
pub mod listing;
mod named;
pub mod registry;
pub mod reload;
pub mod tls;

pub use named::Named;
