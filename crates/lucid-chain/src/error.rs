use snafu::Snafu;

/// A setting, a quantity, the name of an auditor, a catalogue or the network rules are invalid. The message has the
/// place and the problem.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[snafu(display("{message}"))]
pub struct Error {
    message: String,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
