//! `lucid inject`.

use std::io::Write;

use json_patch::{Patch, PatchOperation};
use lucid_chain::{Decision, Outcome, PodView};
use serde_json::Value;

use super::error::OfflineError;
use super::input::{Input, InputArgs};
use super::output::{Messages, Output, OutputFormat};
use super::planning::{Planner, PlanningArgs};
use super::pod_template::PodTemplate;

/// Options of `lucid inject`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InjectArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,

    /// Output format. By default that of each input document.
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

/// Writes the documents with their chains to `output`, and warnings to `messages`. Returns `true` if no document was
/// denied. Denied documents are left out, so that everything applied has its chain.
///
/// # Errors
///
/// Returns an error if a file or the configuration cannot be read, or the output cannot be written.
pub(crate) fn inject(
    args: &InjectArgs,
    output: &mut impl Write,
    messages: &mut impl Write,
) -> Result<bool, OfflineError> {
    let inputs = args.input.read()?;
    let planner = Planner::new(&args.planning, &inputs)?;
    change(inputs, args.output, output, messages, |template, value, place, messages| {
        let json = template.json(value);
        let pod = match PodView::from_json(&json) {
            Ok(pod) => pod,
            Err(error) => return Err(error.to_string()),
        };
        let namespace = planner.namespace_of(template.namespace.as_deref());
        let context = planner.namespace(namespace);
        let Outcome { decision, warnings, .. } = planner.plan(&pod, namespace, &context);
        if matches!(decision, Decision::NotRequested) && warnings.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(reason) = &context.left_alone {
            messages.warn(place, format_args!("no auditors: {reason}"));
            return Ok(Vec::new());
        }
        let operations = match decision {
            Decision::NotRequested => Vec::new(),
            Decision::Skipped { reason } => {
                messages.warn(place, format_args!("no auditors: {reason}"));
                Vec::new()
            }
            Decision::Planned(plan) => {
                let patch = plan.patch(&pod);
                context.problems.iter().for_each(|problem| messages.warn(place, problem));
                patch.warnings.iter().for_each(|warning| messages.warn(place, warning));
                template.operations(patch.operations)
            }
            Decision::Impossible { reason } => return Err(reason.to_string()),
            _ => return Err("the planner returned an unknown decision".to_owned()),
        };
        warnings.iter().for_each(|warning| messages.warn(place, warning));
        Ok(operations)
    })
}

/// Applies the result of `operations` to each pod template of each document. If `operations` returns an error, the
/// document is left out; in a list, only the item is.
///
/// Only text is kept until all documents are done, so that an error leaves no incomplete output.
pub(super) fn change<W: Write>(
    inputs: Vec<Input<'_>>,
    format: Option<OutputFormat>,
    output: &mut impl Write,
    messages: &mut W,
    operations: impl Fn(&PodTemplate, &Value, &str, &mut Messages<'_, W>) -> Result<Vec<PatchOperation>, String>,
) -> Result<bool, OfflineError> {
    let is_patch = format == Some(OutputFormat::Patch);
    let mut messages = Messages::new(messages);
    let mut result = Output::default();
    for mut input in inputs {
        let patch = patch(&mut input, is_patch, &mut messages, &operations);
        if is_patch {
            if !input.is_empty() {
                result.patch(patch.as_ref());
            }
            continue;
        }
        let Some(patch) = patch else { continue };
        match input.document.patch(&patch) {
            Ok(()) => result.document(&input.document, input.begins, format),
            Err(error) => messages.refuse(&input, format_args!("failed to change the document: {error}")),
        }
    }
    result.write(output)?;
    Ok(messages.is_fine())
}

/// Changes one document, and returns the operations that remain to be applied: all with `is_patch`, otherwise the
/// removals of denied items. Returns `None` if the document is denied.
fn patch<W: Write>(
    input: &mut Input<'_>,
    is_patch: bool,
    messages: &mut Messages<'_, W>,
    operations: &impl Fn(&PodTemplate, &Value, &str, &mut Messages<'_, W>) -> Result<Vec<PatchOperation>, String>,
) -> Option<Patch> {
    let templates = match input.document.value() {
        Ok(value) => value.map(PodTemplate::all).unwrap_or_default(),
        Err(error) => {
            messages.refuse(format_args!("{}, document {}", input.file(), input.number()), error);
            return None;
        }
    };
    let mut remaining = Vec::new();
    for template in &templates {
        let place = format!("{input}, {template}");
        let Ok(Some(value)) = input.document.value() else { break };
        match operations(template, value, &place, messages) {
            Ok(operations) if is_patch => remaining.push(operations),
            Ok(operations) => {
                if let Err(error) = input.document.patch(&operations) {
                    messages.refuse(&place, format_args!("failed to change the document: {error}"));
                    return None;
                }
            }
            Err(reason) => {
                messages.refuse(&place, reason);
                remaining.push(vec![template.removal()?]);
            }
        }
    }
    // From last to first: removing an item shifts those after it.
    Some(Patch(remaining.into_iter().rev().flatten().collect()))
}
