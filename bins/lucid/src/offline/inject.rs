//! `lucid inject` and `lucid uninject`.

use std::io::Write;

use json_patch::jsonptr::Pointer;
use json_patch::{Patch, PatchOperation};

use super::InputArgs;
use super::output::{Messages, Output, OutputFormat};
use super::planning::{Explanation, Planner, PlanningArgs};
use super::pod_template::{PodTemplate, prefixed};
use crate::documents::{self, Format, Input, Part};
use crate::error::{Result, ResultExt};

/// Options of `lucid inject`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InjectArgs {
    #[command(flatten)]
    input: InputArgs,

    /// Output format. By default that of each input document.
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<OutputFormat>,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,
}

/// Options of `lucid uninject`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UninjectArgs {
    #[command(flatten)]
    input: InputArgs,

    /// Output format. By default that of each input document.
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

/// Writes the documents with their chains to `output`, and warnings to `messages`. Returns `true` if no document was
/// denied. Denied documents are left out, so that everything applied has its chain.
pub(crate) fn inject(args: &InjectArgs, output: &mut impl Write, messages: &mut impl Write) -> Result<bool> {
    let inputs = documents::inputs(&args.input.files)?;
    let planner = Planner::new(&args.planning, &inputs)?;
    change(inputs, args.output, output, messages, &|template, part, place, messages| {
        let explained = planner.explain(template, part);
        let operations = match explained.explanation {
            Explanation::NotRequested => Patch::default(),
            Explanation::Skipped { reason } => {
                messages.warn(place, format_args!("no auditors: {reason}"));
                Patch::default()
            }
            Explanation::Planned { patch, .. } => patch,
            Explanation::Refused { reason } => return Err(reason),
        };
        explained.warnings.iter().for_each(|warning| messages.warn(place, warning));
        Ok(operations)
    })
}

/// Writes the documents without their chains to `output`, and warnings to `messages`. Returns `true` if no document was
/// denied.
pub(crate) fn uninject(
    args: &UninjectArgs,
    output: &mut impl Write,
    messages: &mut impl Write,
) -> Result<bool> {
    let inputs = documents::inputs(&args.input.files)?;
    change(inputs, args.output, output, messages, &|template, part, place, messages| {
        let patch = lucid_chain::uninject(template.pod(part));
        patch.warnings.iter().for_each(|warning| messages.warn(place, warning));
        Ok(patch.operations())
    })
}

/// Returns the patch of a pod, or the reason to deny it.
type ChangePod<'a> = dyn Fn(&PodTemplate, &Part, &str, &mut Messages<'_>) -> Result<Patch, String> + 'a;

/// Applies the result of `change_pod` to each pod template of each document, and writes the documents one by one. If
/// `change_pod` returns an error, the document is left out; in a list, only the item is.
fn change(
    inputs: Vec<Input<'_>>,
    format: Option<OutputFormat>,
    output: &mut impl Write,
    messages: &mut impl Write,
    change_pod: &ChangePod<'_>,
) -> Result<bool> {
    let mut messages = Messages::new(messages);
    let mut output = Output::new(output);
    for mut input in inputs {
        let patch = apply(&mut input, format == Some(OutputFormat::Patch), &mut messages, change_pod);
        let format = match format {
            None => None,
            Some(OutputFormat::Yaml) => Some(Format::Yaml),
            Some(OutputFormat::Json) => Some(Format::Json),
            Some(OutputFormat::Patch) => {
                if !input.document.is_empty() {
                    let patch = patch.map_or("null".to_owned(), |patch| format!("[{}]", patch.join(",")));
                    writeln!(output, "{patch}").failed_to_print()?;
                }
                continue;
            }
        };
        if patch.is_some() {
            output.document(&input.document, input.begins, format).failed_to_print()?;
        }
    }
    output.flush().failed_to_print()?;
    Ok(messages.is_fine())
}

/// Changes a document. With `is_patch`, returns the operations instead, as JSON: a list may have thousands of items.
/// Returns `None` if the document is denied.
fn apply(
    input: &mut Input<'_>,
    is_patch: bool,
    messages: &mut Messages<'_>,
    change_pod: &ChangePod<'_>,
) -> Option<Vec<String>> {
    let length = match input.document.len() {
        Ok(length) => length,
        Err(error) => {
            messages.refuse(format_args!("{}, document {}", input.file(), input.number()), error);
            return None;
        }
    };
    let (mut patch, mut removed) = (Vec::new(), Vec::new());
    for place in 0..length {
        let mut part = input.document.part(place)?;
        let operations = operations(input, &part, messages, change_pod)?;
        if is_patch {
            let operations = prefixed(operations, Pointer::parse(&part.pointer).ok()?);
            patch.extend(operations.iter().rev().filter_map(|it| serde_json::to_string(it).ok()));
        } else if operations.iter().any(|it| it.path().is_root()) {
            removed.push(place);
        } else if !operations.is_empty() {
            if let Err(error) = json_patch::patch(&mut part.value, &operations) {
                messages.refuse(&input, format_args!("failed to change the document: {error}"));
                return None;
            }
            input.document.set_part(place, Some(&part.value));
        }
    }
    // From last to first: removing an item shifts those after it.
    removed.into_iter().rev().for_each(|place| input.document.set_part(place, None));
    patch.reverse();
    Some(patch)
}

/// Returns the operations on a part, including the removals of denied objects. Returns `None` if the whole document is
/// denied.
fn operations(
    input: &Input<'_>,
    part: &Part,
    messages: &mut Messages<'_>,
    change_pod: &ChangePod<'_>,
) -> Option<Vec<PatchOperation>> {
    let mut operations = Vec::new();
    for template in PodTemplate::all(part) {
        let place = format!("{input}, {template}");
        operations.push(match change_pod(&template, part, &place, messages) {
            Ok(patch) => template.operations(patch),
            Err(reason) => {
                messages.refuse(&place, reason);
                let is_item = input.document.is_list() || !template.pointer.is_empty();
                vec![is_item.then(|| template.removal())?]
            }
        });
    }
    // From last to first, as above.
    Some(operations.into_iter().rev().flatten().collect())
}
