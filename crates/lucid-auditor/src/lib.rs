//! Auditors in front of AI models: write a [`Judge`], this crate does the rest.

mod answer;
mod auditor;
mod body;
mod format;
mod forward;
mod json;
mod judge;
mod serve;
mod settings;
mod stream;
mod telemetry;
mod text;
mod track;
mod verdict;
mod whole;

pub use auditor::Auditor;
pub use judge::{
    Direction, Judge, JudgeError, JudgeService, Judges, Layered, OnFailure, Passage, Policy, Span, Verdict,
};
pub use serve::{ServeError, Stage, serve, serve_on};
pub use settings::{SettingError, Settings, Unjudged};

/// Action on a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// A refused text does not pass.
    #[default]
    Enforce,
    /// A refused text is reported and passes. Nothing is delayed.
    Observe,
}
