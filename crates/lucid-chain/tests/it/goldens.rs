//! Golden tests of whole pods.
//!
//! Each `goldens/NAME.yaml` holds a pod and, after `---`, the configuration of the cluster. The snapshot next to it
//! has the plan with its reasons, the warnings, the patch and the patched pod. To update the snapshots, run
//! `INSTA_UPDATE=always cargo test -p lucid-chain goldens`.

use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

use lucid_chain::{
    Catalogue, Configuration, Decision, Inputs, NamespaceChain, Outcome, Overrides, Plan, PodView,
    SkipPolicy, keys, plan, uninject,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::{any_image, apply, parsed, settings};

/// Configuration of the cluster; the built-in one by default.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Cluster {
    #[serde(rename = "auditors.yaml")]
    catalogue: Option<String>,
    chain: Option<Vec<String>>,
    /// Operator overrides, written as the `defaults` of an `auditors.yaml`.
    operator: Option<Value>,
    #[serde(rename = "imagePullSecrets")]
    image_pull_secrets: Vec<String>,
    #[serde(rename = "skipServiceAccounts")]
    skip_service_accounts: BTreeSet<String>,
    namespace: Option<std::collections::BTreeMap<String, String>>,
    #[serde(rename = "podSecurity")]
    pod_security: String,
    #[serde(rename = "uidRange")]
    uid_range: Option<String>,
    forced: bool,
}

impl Cluster {
    fn configuration(&self) -> Configuration {
        let own = self.catalogue.as_ref().map(|yaml| parsed(yaml));
        // Independent of the release.
        let egress = parsed("chain: [{name: lucid-egress, image: \"ghcr.io/lucid/lucid-egress:1.0.0\"}]");
        let builtin = Catalogue::builtin().overlay(&egress);
        let catalogue = own.map_or(builtin.clone(), |own| builtin.overlay(&own));
        let mut configuration = Configuration::new(catalogue, self.chain.as_deref()).unwrap();
        configuration.init_image = "ghcr.io/lucid/lucid-init:1.0.0".parse().unwrap();
        configuration.image_pull_secrets.clone_from(&self.image_pull_secrets);
        if !self.skip_service_accounts.is_empty() {
            configuration.skip = SkipPolicy::ServiceAccounts(self.skip_service_accounts.clone());
        }
        if let Some(settings) = &self.operator {
            let yaml = json!({"defaults": settings}).to_string();
            let written = Catalogue::parse("operator", &yaml).unwrap().defaults();
            let text = |key| written.get(key).map_or("", String::as_str);
            configuration.overrides = Overrides {
                audit_mode: text("audit-mode").parse().ok(),
                target_port: text("target-port").parse().ok(),
                direction: text("direction").parse().ok(),
                sidecar_mode: text("sidecar-mode").parse().ok(),
                intercept: text("intercept").parse().ok(),
                outbound_port: text("outbound-port").parse().ok(),
            };
        }
        configuration
    }
}

#[test]
fn plans_and_patches_match_the_goldens() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/goldens");
    let mut snapshots = insta::Settings::new();
    snapshots.set_snapshot_path(&folder);
    snapshots.set_prepend_module_to_snapshot(false);
    snapshots.set_omit_expression(true);
    let _snapshots = snapshots.bind_to_scope();

    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let (pods, others): (BTreeSet<_>, BTreeSet<_>) =
        files.partition(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let mut failed = Vec::new();
    for path in &pods {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let document = document(&fs::read_to_string(path).unwrap());
        let agreed = std::panic::catch_unwind(|| insta::assert_snapshot!(name, document));
        if agreed.is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "another outcome than agreed upon: {failed:?}");
    for path in others.iter().filter(|path| path.extension().is_some_and(|extension| extension == "snap")) {
        assert!(pods.contains(&path.with_extension("yaml")), "{} has no pod", path.display());
    }
}

fn document(input: &str) -> String {
    let mut documents = serde_yaml::Deserializer::from_str(input);
    let pod = Value::deserialize(documents.next().unwrap()).unwrap();
    let cluster = documents.next().map(|cluster| Cluster::deserialize(cluster).unwrap()).unwrap_or_default();
    let configuration = cluster.configuration();
    let namespace = cluster.namespace.as_ref().map(|data| {
        NamespaceChain::from_data("team-a", data, configuration.catalogue(), &any_image()).unwrap()
    });
    let level = Some(cluster.pod_security.as_str()).filter(|level| !level.is_empty());
    let written = [
        level.map(|level| ("pod-security.kubernetes.io/enforce", level)),
        cluster.uid_range.as_deref().map(|range| (keys::SCC_UID_RANGE, range)),
    ];
    let settings = settings(written.into_iter().flatten());
    let inputs = Inputs {
        settings: &settings,
        namespace_chain: Ok(namespace.as_ref()),
        forced: cluster.forced,
        ..Inputs::new(&configuration)
    };

    let json = pod.to_string();
    let view = PodView::from_json(&json).unwrap();
    let Outcome { decision, warnings, .. } = plan(&view, &inputs);
    let mut text = String::new();
    let Decision::Planned(planned) = decision else {
        let decided = match decision {
            Decision::NotRequested => "not requested".to_owned(),
            Decision::Skipped { reason } => format!("skipped: {reason}"),
            Decision::Impossible { reason } => format!("impossible: {reason}"),
            other => panic!("{other:?}"),
        };
        writeln!(text, "{decided}").unwrap();
        write_warnings(&mut text, warnings.iter());
        return text;
    };
    write_plan(&mut text, &planned);
    let patch = planned.patch(&view);
    write_warnings(&mut text, warnings.iter().chain(&patch.warnings));
    let patched = apply(&pod, &patch);
    write!(text, "\npatch:\n{}\npod:\n{}", yaml(&json!(patch.operations())), yaml(&patched)).unwrap();

    // Replaced containers cannot be restored.
    if patch.warnings.is_empty() {
        assert_eq!(apply(&patched, &uninject(&patched)), pod);
    }
    let json = patched.to_string();
    let view = PodView::from_json(&json).unwrap();
    match plan(&view, &inputs).decision {
        Decision::Planned(again) => {
            assert_eq!((again.containers == planned.containers, again.patch(&view).is_empty()), (true, true))
        }
        other => panic!("{other:?}"),
    }
    // Independent of the release.
    text.replace(&format!(r#""version":"{}""#, env!("CARGO_PKG_VERSION")), r#""version":"1.0.0""#)
}

fn write_plan(text: &mut String, plan: &Plan) {
    let row = |name: &str| {
        let found = plan.settings().into_iter().find(|[found, ..]| found == name);
        found.map(|[_, value, source]| [value, source]).unwrap()
    };
    let trigger = match row("injection")[1].as_str() {
        "label lucid.io/secured" => "SecuredLabel",
        "forced" => "Forced",
        _ => "AuditorsAnnotation",
    };
    writeln!(text, "asked for by: {trigger}").unwrap();
    writeln!(text, "chain from: {}", row("chain")[1]).unwrap();
    for planned in &plan.containers {
        let kind = if plan.is_native() { "native sidecar" } else { "container" };
        let (name, uid, next) = (&planned.name, planned.uid.unwrap(), planned.next_port);
        let port = planned.port_reason();
        writeln!(text, "  {kind} {name}, uid {uid}: {port}, forwards to {next}").unwrap();
    }
    writeln!(text, "model: port {}", row("model port").join(" by ")).unwrap();
    for name in ["audit mode", "direction", "sidecar mode", "intercept", "outbound port"] {
        writeln!(text, "{}: {}", name.replace(' ', "-"), row(name).join(" by ")).unwrap();
    }
    if !plan.leftovers.is_empty() {
        writeln!(text, "left over: {}", plan.leftovers.join(", ")).unwrap();
    }
}

fn write_warnings<'w>(text: &mut String, warnings: impl Iterator<Item = &'w lucid_chain::Warning>) {
    for warning in warnings {
        writeln!(text, "warning: {warning}").unwrap();
    }
}

/// Formats YAML with sorted members, independent of the features of serde_json.
fn yaml(value: &Value) -> String {
    serde_yaml::to_string(&sorted(value)).unwrap()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            members.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(members.into_iter().collect())
        }
        scalar => scalar.clone(),
    }
}
