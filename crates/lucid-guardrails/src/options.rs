//! Errors of options.

use std::fmt;

use snafu::Snafu;

/// An option of a judge is not valid.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)), display("invalid {key}: {fault}"))]
pub struct OptionsError {
    key: &'static str,
    /// Fault and accepted values.
    fault: String,
}

/// Attributes an error to an option.
pub(crate) fn at<E: fmt::Display>(key: &'static str) -> impl Fn(E) -> OptionsError {
    move |error| OptionsError { key, fault: error.to_string() }
}
