//! `lucid manifests`: prints all objects to install, generated from the files in deploy/.

pub(crate) mod backstop;

use std::io::Write;

use lucid_chain::{Auditor, Catalogue, keys};
use lucid_notary::ImageReference;
use serde::Deserialize as _;
use serde_json::json;
use serde_yaml::Value;

use crate::error::{Result, ResultExt};
use backstop::BackstopArgs;

const INSTALLED: [&str; 2] =
    [include_str!("../../../../deploy/auditor-crd.yaml"), include_str!("../../../../deploy/lucid.yaml")];
const ALERTS: &str = include_str!("../../../../deploy/prometheus-rule.yaml");
const REGISTRATIONS: &str = include_str!("registrations.yaml");
/// Suffix of the names of policies that API servers read from files (KEP-5793).
const STATIC: &str = ".static.k8s.io";
const NAMESPACE: &str = "lucid-system";
/// Namespaces that exist in every cluster and are not Lucid's to manage.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Options of `lucid manifests`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ManifestsArgs {
    /// Namespace to install into.
    #[arg(long, short, value_name = "NAME", default_value = NAMESPACE)]
    #[arg(value_parser = lucid_shared::parse_namespace)]
    namespace: String,

    /// Image of the operator. By default the image of this version.
    #[arg(long, value_name = "IMAGE", conflicts_with = "is_static")]
    image: Option<ImageReference>,

    /// Number of operator replicas.
    #[arg(long, value_name = "NUMBER", value_parser = lucid_shared::within(0_i32..=100), conflicts_with = "is_static")]
    replicas: Option<i32>,

    /// Include a ConfigMap lucid-auditors as a starting point for a catalogue. Applying it again overwrites changes to
    /// it.
    #[arg(long, conflicts_with = "is_static")]
    example_catalogue: bool,

    /// Include the alerts as a PrometheusRule of the Prometheus operator.
    #[arg(long, conflicts_with = "is_static")]
    alerts: bool,

    /// Output format. json prints one List.
    #[arg(long, short, value_name = "FORMAT", default_value = "yaml")]
    output: Format,

    /// Options of the policy.
    #[command(flatten)]
    backstop: BackstopArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Yaml,
    Json,
}

pub(crate) fn manifests(args: &ManifestsArgs, out: &mut impl Write) -> Result<()> {
    let documents = documents(args)?;
    match args.output {
        Format::Yaml => documents.iter().enumerate().try_for_each(|(number, document)| {
            let text = serde_yaml::to_string(document)?;
            let separator = if number == 0 { "" } else { "---\n" };
            write!(out, "{separator}{text}").failed_to_print()
        }),
        Format::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": documents});
            let text = serde_json::to_string_pretty(&list)?;
            writeln!(out, "{text}").failed_to_print()
        }
    }
}

/// Returns the policies for API servers to read from a file, with names as for those.
fn static_policies(args: &ManifestsArgs) -> Result<Vec<Value>> {
    let mut documents = args.backstop.read(&args.namespace)?.documents()?;
    for document in serde_yaml::Deserializer::from_str(REGISTRATIONS) {
        let mut document = Value::deserialize(document)?;
        relocate(&mut document, &args.namespace);
        documents.push(document);
    }
    for document in &mut documents {
        for (part, name) in [("metadata", "name"), ("spec", "policyName")] {
            if let Some(Value::String(name)) = document[part].get_mut(name) {
                name.push_str(STATIC);
            }
        }
    }
    Ok(documents)
}

fn documents(args: &ManifestsArgs) -> Result<Vec<Value>> {
    if args.backstop.is_static {
        return static_policies(args);
    }
    let mut documents = Vec::new();
    for text in INSTALLED.into_iter().chain(args.alerts.then_some(ALERTS)) {
        for document in serde_yaml::Deserializer::from_str(text) {
            documents.push(Value::deserialize(document)?);
        }
    }
    if args.example_catalogue {
        documents.push(serde_yaml::to_value(example_catalogue())?);
    }
    for document in &mut documents {
        relocate(document, &args.namespace);
        if document["kind"] == "Deployment" {
            configure(document, args);
        }
    }
    if SYSTEM_NAMESPACES.contains(&args.namespace.as_str()) {
        documents.retain(|document| document["kind"] != "Namespace");
    }
    if args.backstop.backstop {
        documents.extend(args.backstop.read(&args.namespace)?.documents()?);
    }
    Ok(merged(documents))
}

/// Returns a catalogue to edit, with the built-in auditors. They are available without it as well.
fn example_catalogue() -> serde_json::Value {
    let entry = |auditor: &Auditor| {
        let (name, image, port) = (auditor.name(), auditor.image(), auditor.port());
        format!("  - name: {name}\n    image: {image}\n    port: {port}\n")
    };
    let entries: String = Catalogue::builtin().auditors().iter().map(entry).collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": keys::CATALOGUE_CONFIG_MAP, "namespace": NAMESPACE},
        "data": {keys::CATALOGUE_KEY: format!("chain:\n{entries}")},
    })
}

/// Replaces the namespace of the files in metadata, subjects, Service names and CEL expressions.
fn relocate(value: &mut Value, namespace: &str) {
    match value {
        Value::String(text) => *text = text.replace(NAMESPACE, namespace),
        Value::Sequence(items) => items.iter_mut().for_each(|item| relocate(item, namespace)),
        Value::Mapping(members) => members.values_mut().for_each(|member| relocate(member, namespace)),
        _ => {}
    }
}

fn configure(deployment: &mut Value, args: &ManifestsArgs) {
    let spec = &mut deployment["spec"];
    if let Some(replicas) = args.replicas {
        spec["replicas"] = replicas.into();
    }
    let containers = spec["template"]["spec"]["containers"].as_sequence_mut();
    for container in containers.into_iter().flatten() {
        if let Some(image) = &args.image {
            container["image"] = image.to_string().into();
        }
    }
}

/// Merges documents that describe the same object: with `--namespace default`, objects of both namespaces may coincide.
fn merged(documents: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for document in documents {
        let is_same = |other: &&mut Value| {
            ["apiVersion", "kind"].iter().all(|key| other[key] == document[key])
                && ["namespace", "name"].iter().all(|key| other["metadata"][key] == document["metadata"][key])
        };
        match merged.iter_mut().find(is_same) {
            None => merged.push(document),
            Some(other) => {
                let rules = document["rules"].as_sequence().cloned().unwrap_or_default();
                if let Some(present) = other.get_mut("rules").and_then(Value::as_sequence_mut) {
                    present
                        .extend(rules.into_iter().filter(|rule| !present.contains(rule)).collect::<Vec<_>>());
                }
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(arguments: &[&str]) -> Vec<Value> {
        use clap::{Args, FromArgMatches};
        let command = ManifestsArgs::augment_args(clap::Command::new("manifests"));
        let matches = command.get_matches_from(std::iter::once(&"manifests").chain(arguments));
        documents(&ManifestsArgs::from_arg_matches(&matches).unwrap()).unwrap()
    }

    #[test]
    fn without_options_the_manifests_equal_the_files() {
        let files: Vec<Value> = INSTALLED
            .iter()
            .flat_map(|text| serde_yaml::Deserializer::from_str(text))
            .map(|document| Value::deserialize(document).unwrap())
            .collect();
        assert_eq!(made(&[]), files);
    }

    #[test]
    fn static_policies_have_the_reserved_names_and_stand_alone() {
        let made = made(&["--backstop", "--static", "--namespace", "audit"]);
        let names: Vec<_> =
            made.iter().filter_map(|document| document["metadata"]["name"].as_str()).collect();
        let [backstop, registrations] = ["lucid-backstop.static.k8s.io", "lucid-registrations.static.k8s.io"];
        assert_eq!(names, [backstop, backstop, registrations, registrations]);
        for pair in made.chunks(2) {
            assert_eq!(pair[1]["spec"]["policyName"], pair[0]["metadata"]["name"]);
        }
        let text = serde_yaml::to_string(&made).unwrap();
        assert!(text.contains("serviceaccount:audit:lucid-operator") && !text.contains(NAMESPACE), "{text}");
    }

    #[test]
    fn another_namespace_is_named_everywhere() {
        let text = serde_yaml::to_string(&made(&["--namespace", "audit", "--example-catalogue", "--alerts"]))
            .unwrap();
        assert!(!text.contains(NAMESPACE), "{text}");
        assert!(text.contains("http://lucid-verifier.audit.svc:8080"), "{text}");
    }

    #[test]
    fn image_and_number_of_operators_follow_the_options() {
        let made = made(&["--image", "r.test/op:2", "--replicas", "5"]);
        let deployment = made.iter().find(|document| document["kind"] == "Deployment").unwrap();
        assert_eq!(deployment["spec"]["replicas"], Value::from(5));
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "r.test/op:2");
    }

    #[test]
    fn namespace_default_has_no_duplicates_and_all_permissions() {
        let made = made(&["--namespace", "default"]);
        let roles: Vec<_> = made.iter().filter(|document| document["kind"] == "Role").collect();
        let rules = |document: &Value| document["rules"].as_sequence().unwrap().clone();
        let [role] = roles[..] else { panic!("{} roles", roles.len()) };
        let wanted: Vec<_> =
            self::made(&[]).iter().filter(|it| it["kind"] == "Role").flat_map(rules).collect();
        assert!(wanted.iter().all(|rule| rules(role).contains(rule)));
        assert_eq!(made.iter().filter(|it| it["kind"] == "RoleBinding").count(), 1);
        assert!(made.iter().all(|it| it["kind"] != "Namespace"), "a namespace of others is labelled");
    }

    #[test]
    fn the_example_catalogue_changes_nothing() {
        let catalogue = example_catalogue();
        let yaml = catalogue["data"]["auditors.yaml"].as_str().unwrap();
        let written = Catalogue::parse("example", yaml).unwrap();
        for auditor in written.auditors() {
            let builtin = Catalogue::builtin();
            let builtin = builtin.resolve(auditor.name()).unwrap();
            assert_eq!((auditor.image(), auditor.port()), (builtin.image(), builtin.port()));
        }
        assert!(written.auditors().len() > 1);
    }
}
