//! `lucid explain`.

mod mermaid;
mod report;
mod table;

use std::io::Write;

use lucid_chain::{Decision, Outcome, PodView};
use snafu::ResultExt;

use super::error::{OfflineError, OutputSnafu};
use super::input::InputArgs;
use super::output::Messages;
use super::planning::{Planner, PlanningArgs};
use super::pod_template::PodTemplate;

use report::{Explanation, Report};

/// Options of `lucid explain`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,

    /// Output format. By default tables, each followed by its graph.
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<Form>,
}

/// Output format of plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Tables for a terminal.
    Table,
    /// One Mermaid graph, as used in a fenced code block on GitHub.
    Mermaid,
    /// JSON.
    Json,
}

/// Writes the plan of every pod and pod template to `output`. Returns `true` if none was denied.
///
/// # Errors
///
/// Returns an error if a file or the configuration cannot be read, or the output cannot be written.
pub(crate) fn explain(
    args: &ExplainArgs,
    output: &mut impl Write,
    messages: &mut impl Write,
) -> Result<bool, OfflineError> {
    let inputs = args.input.read()?;
    let planner = Planner::new(&args.planning, &inputs)?;
    let mut messages = Messages::new(messages);
    let mut reports = Vec::new();
    for input in &inputs {
        let value = match input.document.value() {
            Ok(value) => value,
            Err(error) => {
                messages.refuse(format_args!("{}, document {}", input.file(), input.number()), error);
                continue;
            }
        };
        for template in value.iter().flat_map(|value| PodTemplate::all(value)) {
            let json = value.map(|value| template.json(value)).unwrap_or_default();
            let (explanation, warnings) = explanation(&planner, &template, &json);
            if let Explanation::Refused { reason } = &explanation {
                messages.refuse(format_args!("{input}, {template}"), reason);
            }
            let (file, document, line) = (input.file(), input.number(), input.document.line());
            reports.push(Report { file, document, line, template, explanation, warnings });
        }
    }
    let text = match args.output {
        None => reports.iter().map(|report| table::text(report) + &mermaid::fenced(report)).collect(),
        Some(Form::Table) => reports.iter().map(table::text).collect(),
        Some(Form::Mermaid) => mermaid::graph(&reports),
        Some(Form::Json) => report::json(&reports),
    };
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).context(OutputSnafu)?;
    Ok(messages.is_fine())
}

/// Plans a workload. Returns the explanation and warnings for the user.
fn explanation(planner: &Planner, template: &PodTemplate, json: &str) -> (Explanation, Vec<String>) {
    let pod = match PodView::from_json(json) {
        Ok(pod) => pod,
        Err(error) => return (Explanation::Refused { reason: error.to_string() }, Vec::new()),
    };
    let namespace = planner.namespace_of(template.namespace.as_deref());
    let context = planner.namespace(namespace);
    let Outcome { decision, warnings, .. } = planner.plan(&pod, namespace, &context);
    let mut said: Vec<_> =
        context.problems.into_iter().chain(warnings.iter().map(ToString::to_string)).collect();
    let explanation = match (decision, context.left_alone) {
        (Decision::NotRequested, _) => Explanation::NotRequested,
        (_, Some(reason)) => Explanation::Skipped { reason },
        (Decision::Skipped { reason }, _) => Explanation::Skipped { reason: reason.to_string() },
        (Decision::Impossible { reason }, _) => Explanation::Refused { reason: reason.to_string() },
        (Decision::Planned(plan), _) => {
            said.extend(plan.patch(&pod).warnings.iter().map(ToString::to_string));
            Explanation::Planned(plan)
        }
        _ => Explanation::Refused { reason: "the planner returned an unknown decision".to_owned() },
    };
    (explanation, said)
}
