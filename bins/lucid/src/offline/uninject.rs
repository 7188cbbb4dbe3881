//! `lucid uninject`.

use std::io::Write;

use serde_json::Value;

use super::error::OfflineError;
use super::inject::change;
use super::input::InputArgs;
use super::output::OutputFormat;

/// Options of `lucid uninject`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UninjectArgs {
    #[command(flatten)]
    input: InputArgs,

    /// Output format. By default that of each input document.
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

/// Writes the documents without their chains to `output`, and warnings to `messages`. Returns `true` if no document was
/// denied.
///
/// # Errors
///
/// Returns an error if a file cannot be read or the output cannot be written.
pub(crate) fn uninject(
    args: &UninjectArgs,
    output: &mut impl Write,
    messages: &mut impl Write,
) -> Result<bool, OfflineError> {
    let inputs = args.input.read()?;
    change(inputs, args.output, output, messages, |template, value, place, messages| {
        let patch = lucid_chain::uninject(value.pointer(template.pod.as_str()).unwrap_or(&Value::Null));
        patch.warnings.iter().for_each(|warning| messages.warn(place, warning));
        Ok(template.operations(patch.operations))
    })
}
