//! The record of admission decisions.

mod anchor;
pub mod checkpoint;
mod decision;
mod event;
pub mod layout;
pub mod log;
pub mod merkle;
pub mod metrics;
pub mod note;
mod recorder;
mod ring;
pub mod tile;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use anchor::Anchor;
pub use decision::{Decision, ImageVerdict};
pub use event::Event;
pub use log::Log;
pub use recorder::{OnFailure, ParseOnFailureError, RecordError, Recorder};
pub use ring::Entry;
