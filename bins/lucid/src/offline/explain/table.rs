//! Renders a report for a terminal.

use comfy_table::{ContentArrangement, Table, presets};
use lucid_chain::{Plan, PlannedContainer};

use super::report::{settings, value};
use super::{Explanation, Report};

pub(super) fn text(report: &Report) -> String {
    let Report { file, document, line, template, explanation, warnings } = report;
    let mut text = format!("{template} ({file}, document {document} at line {line})\n");
    match explanation {
        Explanation::NotRequested => text += "no chain: the pod does not request one\n",
        Explanation::Skipped { reason } => text += &format!("no chain: {reason}\n"),
        Explanation::Refused { reason } => text += &format!("refused: {reason}\n"),
        Explanation::Planned { plan, .. } => {
            text += &format!("\n{}\n\n{}\n", chain(plan, &settings(plan)), rows(plan))
        }
    }
    warnings.iter().for_each(|warning| text += &format!("warning: {warning}\n"));
    text + "\n"
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(head);
    table
}

/// Removes the padding of the last column.
fn trimmed(table: &Table) -> String {
    let lines = table.to_string();
    lines.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn chain(plan: &Plan, settings: &[[String; 3]]) -> String {
    let mut table =
        table(&["AUDITOR", "CONTAINER", "PORT", "NEXT HOP", "UID", "MODE", "KIND", "IMAGE", "WHY THIS PORT"]);
    let has_egress = plan.containers.iter().any(PlannedContainer::is_egress);
    let end = if has_egress { "the model, or the called host" } else { "the model" };
    let next = plan.containers.iter().skip(1).map(|it| it.name.as_str()).chain([end]);
    for (container, next) in plan.containers.iter().zip(next) {
        table.add_row([
            container.auditor.name(),
            &container.name,
            &container.port.to_string(),
            &format!("{} ({next})", container.next_port),
            &container.uid.map_or_else(|| "-".to_owned(), |uid| uid.to_string()),
            value(settings, "audit mode").unwrap_or_default(),
            if plan.is_native() { "native sidecar" } else { "container" },
            container.auditor.image(),
            &container.port_reason(),
        ]);
    }
    trimmed(&table)
}

fn rows(plan: &Plan) -> String {
    let mut table = table(&["SETTING", "VALUE", "SOURCE"]);
    settings(plan).into_iter().for_each(|row| {
        table.add_row(row);
    });
    trimmed(&table)
}
