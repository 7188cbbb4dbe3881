//! The plan of one workload, and its JSON format.

use lucid_chain::{KeyRef, OtherPorts, Plan, Trigger, keys};
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

/// Name, value and source of a setting.
pub(super) type Row = [String; 3];

pub(super) fn ports(plan: &Plan) -> String {
    plan.model_port.ports().map(|port| port.to_string()).collect::<Vec<_>>().join(",")
}

pub(super) fn settings(plan: &Plan) -> Vec<Row> {
    let row = |name: &str, value: String, source: String| [name.to_owned(), value, source];
    let trigger = match plan.trigger {
        Trigger::SecuredLabel => format!("label {}", keys::SECURED_LABEL),
        Trigger::AuditorsAnnotation => format!("annotation {}", keys::AUDITORS),
        _ => "--force".to_owned(),
    };
    let chain: Vec<_> = plan.containers.iter().map(|it| it.auditor.name()).collect();
    let mut rows = vec![
        row("injection", "requested".to_owned(), trigger),
        row("chain", chain.join(", "), plan.source.to_string()),
        row("model port", ports(plan), plan.model_port.source.to_string()),
        row("audit mode", plan.audit_mode.value.to_string(), plan.audit_mode.source.to_string()),
        row("direction", plan.direction.value.to_string(), plan.direction.source.to_string()),
        row("sidecar mode", plan.sidecar_mode.value.to_string(), plan.sidecar_mode.source.to_string()),
        row("intercept", plan.intercept.value.to_string(), plan.intercept.source.to_string()),
    ];
    if plan.direction.value.covers_outbound() {
        rows.push(row(
            "outbound port",
            plan.outbound_port.value.to_string(),
            plan.outbound_port.source.to_string(),
        ));
    }
    if let Some(upstream) = &plan.upstream {
        rows.push(row("upstream", upstream.value.to_string(), upstream.source.to_string()));
    }
    if let Some(allowed) = &plan.allowed_hosts {
        rows.push(row("allowed hosts", allowed.value.to_string(), allowed.source.to_string()));
    }
    for (name, url) in plan.application_env() {
        rows.push(row(name, url, "address of the first auditor".to_owned()));
    }
    for it in &plan.containers {
        let source = format!("auditors.yaml, {}", it.auditor.name());
        let variables = it.env().filter_map(|(name, value)| {
            let (kind, KeyRef { name: object, key, optional, .. }) = value.key_ref()?;
            Some(format!("{name} from {kind} {object}/{key}{}", if *optional { " (optional)" } else { "" }))
        });
        let variables: Vec<_> = variables.collect();
        if !variables.is_empty() {
            rows.push(row(&format!("variables of {}", it.name), variables.join(", "), source.clone()));
        }
        let files: Vec<_> = it.auditor.files().iter().map(ToString::to_string).collect();
        if !files.is_empty() {
            rows.push(row(&format!("files of {}", it.name), files.join(", "), source));
        }
    }
    let closes = plan.init.is_some() && plan.other_ports.value == OtherPorts::Closed;
    if closes || !plan.open_ports.is_empty() {
        let ports: Vec<_> =
            plan.open_ports.iter().map(|(port, reason)| format!("{port} ({reason})")).collect();
        let ports = if ports.is_empty() { "none".to_owned() } else { ports.join(", ") };
        let source = match plan.init {
            Some(_) => format!("other ports {} ({})", plan.other_ports.value, plan.other_ports.source),
            None => format!("intercept {}", plan.intercept.value),
        };
        rows.push(row("open ports", ports, source));
    }
    if let Some(init) = &plan.init {
        rows.push(row("init container", init.name.clone(), init.image.clone()));
    }
    if !plan.hardened.is_empty() {
        let names: Vec<_> = plan.hardened.iter().map(String::as_str).collect();
        rows.push(row("hardened", names.join(", "), "intercept".to_owned()));
    }
    if !plan.image_pull_secrets.is_empty() {
        rows.push(row(
            "pull secrets",
            plan.image_pull_secrets.join(", "),
            "operator configuration".to_owned(),
        ));
    }
    rows
}

/// Returns the report as an element of a JSON list, indented.
pub(super) fn json(report: &Report) -> String {
    let (decision, reason, plan) = match &report.explanation {
        Explanation::NotRequested => ("not requested", None, None),
        Explanation::Skipped { reason } => ("skipped", Some(reason), None),
        Explanation::Refused { reason } => ("refused", Some(reason), None),
        Explanation::Planned { plan, .. } => ("planned", None, Some(plan)),
    };
    let containers = plan.iter().flat_map(|plan| &plan.containers);
    let containers = containers.map(|it| {
        json!({
            "container": it.name,
            "auditor": it.auditor.name(),
            "image": it.image(),
            "port": it.port,
            "portReason": it.port_reason.explain(it.port),
            "nextPort": it.next_port,
            "uid": it.uid,
            "auditMode": it.audit_mode.to_string(),
            "native": it.native,
        })
    });
    let containers: Vec<_> = containers.collect();
    let settings: Vec<_> = plan
        .iter()
        .flat_map(|plan| settings(plan))
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
