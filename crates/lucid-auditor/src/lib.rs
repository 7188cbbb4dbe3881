//! Auditors in front of AI models: write a [`Judge`], this crate does the rest.

mod format;
mod json;
mod judge;
mod telemetry;
mod text;
mod verdict;

pub use judge::{
    Direction, Judge, JudgeError, JudgeService, Judges, Layered, OnFailure, Passage, Policy, Span, Verdict,
};

/// Action on a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// A refused text does not pass.
    #[default]
    Enforce,
    /// A refused text is reported and passes. Nothing is delayed.
    Observe,
}
