//! Renders chains as [Mermaid](https://mermaid.js.org) graphs, which GitHub displays.

use std::fmt::Write as _;

use lucid_chain::Plan;

use super::{
    Explanation, Report,
    report::{settings, value},
};

/// Returns the graph of one report as a fenced block with an empty line, or an empty string without a chain.
pub(super) fn fenced(report: &Report) -> String {
    match &report.explanation {
        Explanation::Planned { plan, .. } => {
            format!("```mermaid\nflowchart LR\n{}```\n\n", chain(plan, "", "    "))
        }
        _ => String::new(),
    }
}

/// Returns the subgraph of one report in the graph of all reports, or an empty string without a chain.
pub(super) fn subgraph(report: &Report, number: usize) -> String {
    let Explanation::Planned { plan, .. } = &report.explanation else { return String::new() };
    let prefix = format!("w{number}_");
    let title = escaped(&report.template.to_string());
    let chain = chain(plan, &prefix, "        ");
    format!("    subgraph {prefix}[\"{title}\"]\n{chain}    end\n")
}

fn chain(plan: &Plan, prefix: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = |text: String| {
        let _ = writeln!(lines, "{indent}{text}");
    };
    let settings = settings(plan);
    let setting = |name| value(&settings, name);
    let model = setting("model port").unwrap_or_default();
    let redirects = plan.init.is_some();
    let how = |port: String, by_url: &str| {
        if redirects { format!("{port}, redirected") } else { by_url.to_owned() }
    };
    let first = plan.containers.first().map(|it| it.port.to_string()).unwrap_or_default();
    if setting("direction") != Some("outbound") {
        line(format!("{prefix}client([\"client\"]) -->|\"{}\"| {prefix}a1", how(model.to_string(), &first)));
    }
    if let Some(outbound_port) = setting("outbound port") {
        let how = how(outbound_port.to_owned(), "AUDITOR_URL");
        line(format!("{prefix}app([\"application\"]) -->|\"{how}\"| {prefix}a1"));
    }
    for (place, container) in plan.containers.iter().enumerate() {
        let (number, last) = (place + 1, place + 1 == plan.containers.len());
        let next = if last { format!("{prefix}model") } else { format!("{prefix}a{}", number + 1) };
        let uid = container.uid.map(|uid| format!(", uid {uid}")).unwrap_or_default();
        let label = format!("{}<br/>port {}{uid}", escaped(&container.name), container.port);
        line(format!("{prefix}a{number}[\"{label}\"] -->|\"{}\"| {next}", container.next_port));
        if container.is_egress()
            && redirects
            && let Some(port) = setting("outbound port")
        {
            line(format!("{prefix}a{number} -->|\"{port}\"| {prefix}host[(\"called host\")]"));
        }
        if container.is_egress()
            && let Some(upstream) = setting("upstream")
        {
            let upstream = escaped(upstream);
            line(format!("{prefix}a{number} -->|\"AUDITOR_URL\"| {prefix}upstream[(\"{upstream}\")]"));
        }
    }
    line(format!("{prefix}model[(\"model<br/>port {model}\")]"));
    lines
}

fn escaped(text: &str) -> String {
    text.replace('&', "#amp;").replace('"', "#quot;").replace('<', "#lt;").replace('>', "#gt;")
}
