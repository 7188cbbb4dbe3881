//! JSON of unknown structure, and plain text.

use super::{Format, completion, openai};

pub(crate) static JSON: Format = Format {
    // Without rules, all strings are texts.
    request: &[],
    answer: &[],
    events: &[completion("**", 1)],
    refusal: openai::refusal,
    end: |_| Vec::new(),
};
