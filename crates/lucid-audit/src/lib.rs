//! The record of admission decisions.
//!
//! A [`Decision`] says what was asked, by whom, and what was answered and why. A [`Recorder`] keeps the latest in
//! memory, in a ring that never grows, and appends every one to a file of JSON lines when it is given one.
//!
//! ```
//! use lucid_audit::{Decision, Recorder};
//!
//! let recorder = Recorder::new(1000);
//! let mut decision = Decision::new("validate", "705ab4f5-6393-11e8-b7cc-42010a800002");
//! decision.namespace = "shop".into();
//! decision.name = "web-7d9c".into();
//! decision.allowed = false;
//! decision.message = "image shop/web:1: missing digest".into();
//! recorder.record(decision)?;
//! assert!(!recorder.latest()[0].allowed);
//! # Ok::<(), std::io::Error>(())
//! ```

mod anchor;
pub mod checkpoint;
pub mod correlate;
mod decision;
pub mod follow;
pub mod layout;
pub mod merkle;
pub mod note;
pub mod proof;
mod read;
mod recorder;
mod ring;
pub mod tile;
pub mod verify;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use anchor::Anchor;
pub use decision::{Decision, ImageVerdict};
pub use read::ReadError;
pub use recorder::{OpenError, Recorder};
pub use ring::Entry;
