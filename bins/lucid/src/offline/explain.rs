//! `lucid explain`.

mod mermaid;
mod report;
mod table;

use std::io::Write;

use super::InputArgs;
use super::output::Messages;
use super::planning::{Explained, Explanation, Planner, PlanningArgs};
use super::pod_template::PodTemplate;
use crate::documents;
use crate::error::{Result, ResultExt};

use report::Report;

/// Options of `lucid explain`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    input: InputArgs,

    /// Output format. By default tables, each followed by its graph.
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<Form>,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,
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
pub(crate) fn explain(
    args: &ExplainArgs,
    output: &mut impl Write,
    messages: &mut impl Write,
) -> Result<bool> {
    let inputs = documents::inputs(&args.input.files)?;
    let planner = Planner::new(&args.planning, &inputs)?;
    let mut messages = Messages::new(messages);
    let mut texts = Vec::new();
    for input in &inputs {
        if let Err(error) = input.document.len() {
            messages.refuse(format_args!("{}, document {}", input.file(), input.number()), error);
        }
        for part in input.document.parts() {
            for template in PodTemplate::all(&part) {
                let Explained { explanation, warnings } = planner.explain(&template, &part);
                if let Explanation::Refused { reason } = &explanation {
                    messages.refuse(format_args!("{input}, {template}"), reason);
                }
                let (file, document, line) = (input.file(), input.number(), input.document.line());
                let report = Report { file, document, line, template, explanation, warnings };
                texts.push(match args.output {
                    None => table::text(&report) + &mermaid::fenced(&report),
                    Some(Form::Table) => table::text(&report),
                    Some(Form::Mermaid) => mermaid::subgraph(&report, texts.len()),
                    Some(Form::Json) => report::json(&report),
                });
            }
        }
    }
    let text = match args.output {
        None | Some(Form::Table) => texts.concat(),
        Some(Form::Mermaid) => format!("flowchart LR\n{}", texts.concat()),
        Some(Form::Json) if texts.is_empty() => "[]\n".to_owned(),
        Some(Form::Json) => format!("[\n{}\n]\n", texts.join(",\n")),
    };
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).failed_to_print()?;
    Ok(messages.is_fine())
}
