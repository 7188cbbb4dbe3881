use std::error::Error;

use snafu::CleanedErrorText;

/// Formats an error and its causes on one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let texts = CleanedErrorText::new(error).map(|(_, text, _)| text).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join(": ")
}
