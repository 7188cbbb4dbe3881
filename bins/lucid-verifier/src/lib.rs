//! A small notarization registry: it tells which image digests are notarized, from a file.
//!
//! It speaks the Verifier's protocol (`GET /registry/check?digest=sha256:…`) for clusters that have no registry of
//! their own: on a developer's machine, or cut off from the network. It has no users and no history; who can write the
//! file decides what is notarized.
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
//! - [`registry`]: the file's format and the look-up, without I/O; [`edit`]: changes of its text; [`listing`]: its content
//!   for people and programs.
//! - [`store`]: changes a file at once or not at all.
//! - [`changes`]: when to read files again; [`reload`] keeps a registry in step with its file, [`tls`] a certificate.
//! - [`http`]: the HTTP endpoints.

pub mod changes;
pub mod edit;
mod file;
pub mod http;
pub mod listing;
mod named;
pub mod registry;
pub mod reload;
pub mod store;
pub mod tls;

pub use named::Named;
