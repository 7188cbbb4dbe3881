//! The record of admission decisions.

mod anchor;
pub mod checkpoint;
pub mod correlate;
mod decision;
mod event;
pub mod follow;
pub mod layout;
pub mod log;
pub mod merkle;
pub mod metrics;
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
pub use event::Event;
pub use log::Log;
pub use read::ReadError;
pub use recorder::{OnFailure, ParseOnFailureError, RecordError, Recorder};
pub use ring::Entry;
