//! The plan of one workload, and its JSON format.

use lucid_chain::Plan;
use serde_json::json;

use super::{Explanation, PodTemplate};

pub(super) struct Report {
    pub(super) file: String,
    pub(super) document: usize,
    pub(super) line: usize,
    pub(super) template: PodTemplate,
    pub(super) explanation: Explanation,
    pub(super) warnings: Vec<String>,
}

/// Returns name, value and source of each setting that takes effect.
pub(super) fn settings(plan: &Plan) -> Vec<[String; 3]> {
    let mut settings = plan.settings();
    settings.retain(|[name, ..]| name != "outbound port" || plan.covers_outbound());
    settings
}

/// Returns the value of a setting.
pub(super) fn value<'s>(settings: &'s [[String; 3]], name: &str) -> Option<&'s str> {
    settings.iter().find(|[found, ..]| found == name).map(|[_, value, _]| value.as_str())
}

/// Returns the report as an element of a JSON list, indented.
pub(super) fn json(report: &Report) -> String {
    let (decision, reason, plan) = match &report.explanation {
        Explanation::NotRequested => ("not requested", None, None),
        Explanation::Skipped { reason } => ("skipped", Some(reason), None),
        Explanation::Refused { reason } => ("refused", Some(reason), None),
        Explanation::Planned { plan, .. } => ("planned", None, Some(plan)),
    };
    let settings = plan.map(|plan| settings(plan)).unwrap_or_default();
    let is_native = plan.is_some_and(|plan| plan.is_native());
    let containers = plan.iter().flat_map(|plan| &plan.containers);
    let containers = containers.map(|it| {
        json!({
            "container": it.name,
            "auditor": it.auditor.name(),
            "image": it.auditor.image(),
            "port": it.port,
            "portReason": it.port_reason(),
            "nextPort": it.next_port,
            "uid": it.uid,
            "auditMode": value(&settings, "audit mode"),
            "native": is_native,
        })
    });
    let containers: Vec<_> = containers.collect();
    let settings: Vec<_> = settings
        .iter()
        .map(|[name, value, source]| json!({"name": name, "value": value, "source": source}))
        .collect();
    let json = json!({
        "file": report.file,
        "document": report.document,
        "line": report.line,
        "kind": report.template.kind,
        "namespace": report.template.namespace,
        "name": report.template.name,
        "decision": decision,
        "reason": reason,
        "containers": containers,
        "settings": settings,
        "warnings": report.warnings,
    });
    let pretty = serde_json::to_string_pretty(&json).unwrap_or_default();
    format!("  {}", pretty.replace('\n', "\n  "))
}
