use std::error::Error;

use snafu::CleanedErrorText;

/// Formats an error and its causes on one line. A cause whose text is already part of the line is left out.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut said = String::new();
    for (_, text, _) in CleanedErrorText::new(error) {
        if said.contains(&text) {
            continue;
        }
        if !said.is_empty() {
            said.push_str(": ");
        }
        said.push_str(&text);
    }
    said
}

#[cfg(test)]
mod tests {
    use snafu::{ResultExt, Snafu};

    use super::*;

    #[derive(Debug, Snafu)]
    #[snafu(display("failed to use {url}: {source}; expected a URL"))]
    struct InTheMiddle {
        url: &'static str,
        source: std::num::ParseIntError,
    }

    #[derive(Debug, Snafu)]
    #[snafu(display("failed"))]
    struct Outside {
        source: InTheMiddle,
    }

    #[test]
    fn repeated_causes_are_omitted() {
        let inner = "x".parse::<u8>().context(InTheMiddleSnafu { url: "foo" });
        let text = "failed to use foo: invalid digit found in string; expected a URL";
        assert_eq!(with_causes(inner.as_ref().unwrap_err()), text);
        assert_eq!(with_causes(&inner.context(OutsideSnafu).unwrap_err()), format!("failed: {text}"));
    }
}
