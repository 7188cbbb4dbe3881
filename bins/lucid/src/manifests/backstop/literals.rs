//! CEL literals of the configuration. JSON lists, maps and strings are valid CEL.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use lucid_chain::{
    Auditor, Catalogue, Configuration, Decision, Direction, Inputs, Intercept, MAX_CHAIN, NamespaceChain,
    Plan, PodView, identity_env, keys, short_name,
};
use lucid_notary::ImageReference;
use serde_json::json;

use crate::error::Result;

pub(super) fn settings<const N: usize>(written: [(&str, Option<String>); N]) -> String {
    let written = written.into_iter().filter_map(|(key, value)| Some((key, value?)));
    json!(written.collect::<BTreeMap<_, _>>()).to_string()
}

pub(super) fn defaults(catalogue: &Catalogue) -> String {
    let keys = ["direction", "intercept", "outbound-port", "upstream", "allowed-hosts"];
    let mut defaults = catalogue.defaults();
    defaults.retain(|key, _| keys.contains(key));
    json!(defaults).to_string()
}

pub(super) fn stems(auditors: &[Auditor]) -> String {
    json!(auditors.iter().map(|auditor| short_name(auditor.name())).collect::<Vec<_>>()).to_string()
}

/// Returns the auditors by repository of their images; several may share one. `shape` is a key of [`shapes`].
pub(super) fn entries(catalogue: &Catalogue) -> String {
    let mut entries = BTreeMap::<String, Vec<serde_json::Value>>::new();
    let all = auditor_shapes(catalogue);
    let distinct: BTreeSet<_> = all.iter().collect();
    for (auditor, shape) in catalogue.auditors().iter().chain(catalogue.egress()).zip(&all) {
        let env: Vec<_> = auditor.variables().map(|it| variable(&it)).collect();
        let is = [short_name(auditor.name())];
        let shape = [distinct.iter().take_while(|it| *it < &shape).count().to_string()];
        let entry = json!({"is": is, "called": called(auditor), "env": env, "shape": shape});
        for repository in auditor.image().parse().iter().flat_map(repositories) {
            entries.entry(repository).or_default().push(entry.clone());
        }
    }
    json!(entries).to_string()
}

/// Returns a variable as rules.yaml writes it: `NAME=text`, or `NAME secretKeyRef object/key`, with `?` if it is optional.
fn variable(variable: &serde_json::Value) -> String {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&variable["name"]);
    match variable["valueFrom"].as_object().and_then(|source| source.iter().next()) {
        Some((kind, object)) => {
            let optional = if object["optional"] == true { "?" } else { "" };
            format!("{name} {kind} {}/{}{optional}", text(&object["name"]), text(&object["key"]))
        }
        None => format!("{name}={}", text(&variable["value"])),
    }
}

/// Returns the volumes with files of auditors, by name. The plugin AlwaysPullImages may change the pull policy of an image.
pub(super) fn volumes(catalogue: &Catalogue) -> String {
    let all = catalogue.auditors().iter().chain(catalogue.egress()).flat_map(Auditor::volumes);
    let accepted = |planned: serde_json::Value| {
        let mut pulled = planned.clone();
        if planned["image"].is_object() {
            pulled["image"]["pullPolicy"] = json!("Always");
        }
        let accepted: BTreeSet<_> = [planned, pulled].iter().map(cel).collect();
        let accepted: Vec<_> = accepted.iter().map(|volume| format!("dyn({volume})")).collect();
        format!("[{}]", accepted.join(","))
    };
    let by_name: BTreeMap<_, _> = all.map(|volume| (volume["name"].to_string(), accepted(volume))).collect();
    let by_name: Vec<_> = by_name.iter().map(|(name, accepted)| format!("{name}:{accepted}")).collect();
    format!("{{{}}}", by_name.join(","))
}

/// Returns the distinct [`shape`]s of the auditors' containers, by number.
pub(super) fn shapes(catalogue: &Catalogue) -> String {
    let distinct: BTreeSet<_> = auditor_shapes(catalogue).into_iter().collect();
    let numbered = distinct.iter().enumerate().map(|(number, shape)| format!("\"{number}\":{shape}"));
    format!("{{{}}}", numbered.collect::<Vec<_>>().join(","))
}

pub(super) fn init_shape(catalogue: &Catalogue) -> String {
    let plans = catalogue.auditors().first().and_then(|auditor| plan_of(catalogue, slice::from_ref(auditor)));
    plans.and_then(|plan| plan.init).map_or_else(|| "{}".to_owned(), |init| shape(init.manifest()))
}

fn auditor_shapes(catalogue: &Catalogue) -> Vec<String> {
    let shapes = |auditors: &[Auditor]| -> Vec<_> {
        let Some(plan) = plan_of(catalogue, auditors) else { return vec!["{}".to_owned(); auditors.len()] };
        plan.containers.iter().take(auditors.len()).map(|planned| shape(planned.manifest())).collect()
    };
    let egress = catalogue.auditors().first().and_then(|first| plan_of(catalogue, slice::from_ref(first)));
    let egress = egress.and_then(|plan| plan.containers.last().map(|planned| shape(planned.manifest())));
    // One less, because lucid-egress belongs to the chain as well.
    let auditors = catalogue.auditors().chunks(MAX_CHAIN - 1).flat_map(shapes);
    auditors.chain([egress.unwrap_or_else(|| "{}".to_owned())]).collect()
}

/// Values of a plan in a cluster without configuration.
pub(super) struct Builtin {
    pub(super) first_uid: String,
    pub(super) outbound_port: String,
}

impl Builtin {
    pub(super) fn new() -> Result<Self> {
        let catalogue = Catalogue::builtin();
        let plan =
            plan_of(&catalogue, &catalogue.auditors()[..1]).ok_or("no built-in chain can be planned")?;
        let first_uid = plan.containers[0].uid.unwrap_or_default().to_string();
        let outbound_port = plan.settings().into_iter().find(|[name, ..]| name == "outbound port");
        let [_, outbound_port, _] = outbound_port.ok_or("the built-in chain has no outbound port")?;
        Ok(Self { first_uid, outbound_port })
    }
}

/// Variables with the policy of an auditor, in this order; all but the first are optional.
pub(super) const POLICY_ENV: [&str; 3] =
    [keys::AUDIT_MODE_ENV, keys::AUDIT_FAILURE_ENV, keys::AUDIT_TIMEOUT_ENV];

/// Returns the policies of each auditor where pods do not choose them: those of its entry in the catalogue, and those of
/// its entries in the chain of the namespace or the operator.
pub(super) fn policies(configuration: &Configuration, namespace: Option<&NamespaceChain>) -> String {
    let catalogue = namespace.map_or(configuration.catalogue(), NamespaceChain::catalogue);
    let names: Vec<_> = catalogue.auditors().iter().map(Auditor::name).collect();
    let chains = names.chunks(MAX_CHAIN - 1).map(|names| json!({keys::AUDITOR_CHAIN: names.join(",")}));
    let mut policies = BTreeMap::<String, BTreeSet<Vec<String>>>::new();
    for planned in chains
        .chain([json!({})])
        .filter_map(|annotations| planned(configuration, namespace, &annotations))
        .flat_map(|plan| plan.containers)
    {
        let variables = planned.manifest()["env"].as_array().cloned().unwrap_or_default();
        let policy = variables.iter().filter(|it| POLICY_ENV.iter().any(|name| it["name"] == *name));
        let stem = short_name(planned.auditor.name()).to_owned();
        policies.entry(stem).or_default().insert(policy.map(variable).collect());
    }
    json!(policies).to_string()
}

/// Plans a pod with these auditors. Auditors that cannot be planned get an empty shape.
fn plan_of(catalogue: &Catalogue, auditors: &[Auditor]) -> Option<Plan> {
    let names: Vec<_> = auditors.iter().map(|auditor| auditor.name().to_owned()).collect();
    planned(&Configuration::new(catalogue.clone(), Some(&names)).ok()?, None, &json!({}))
}

fn planned(
    configuration: &Configuration,
    namespace: Option<&NamespaceChain>,
    annotations: &serde_json::Value,
) -> Option<Plan> {
    let mut configuration = configuration.clone();
    // The shape of lucid-init is needed regardless of the catalogue's default.
    configuration.overrides.intercept = Some(Intercept::Redirect);
    configuration.overrides.direction = Some(Direction::Both);
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "model"}]}});
    let pod = pod.to_string();
    let pod = PodView::from_json(&pod).ok()?;
    let inputs = Inputs { namespace_chain: Ok(namespace), forced: true, ..Inputs::new(&configuration) };
    match lucid_chain::plan(&pod, &inputs).decision {
        Decision::Planned(plan) => Some(*plan),
        _ => None,
    }
}

/// Returns the pod-independent fields of a planned container, as CEL. The UID and the fields in [`VARYING`] are compared
/// separately.
fn shape(mut manifest: serde_json::Value) -> String {
    if let Some(fields) = manifest.as_object_mut() {
        fields.retain(|key, _| !VARYING.contains(&key.as_str()));
        fields["securityContext"]["runAsUser"] = json!(0);
    }
    cel(&manifest)
}

/// Converts JSON to CEL. CEL allows lists and maps of mixed types only with `dyn` values.
fn cel(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| format!("dyn({})", cel(item))).collect();
            format!("[{}]", items.join(","))
        }
        serde_json::Value::Object(members) => {
            let members = members.iter().map(|(key, value)| format!("{}:dyn({})", json!(key), cel(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        scalar => scalar.to_string(),
    }
}

/// Fields of a planned container that depend on the pod, or may change without a new policy.
pub(super) const VARYING: [&str; 10] = [
    "env",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "restartPolicy",
    "startupProbe",
];

pub(super) fn identities() -> String {
    json!(identity_env().collect::<BTreeMap<_, _>>()).to_string()
}

pub(super) fn names(catalogue: &Catalogue) -> String {
    json!(catalogue.auditors().iter().chain(catalogue.egress()).flat_map(called).collect::<BTreeSet<_>>())
        .to_string()
}

/// Returns the container names of an auditor without their numbers. Long names are truncated to make room for a number.
fn called(auditor: &Auditor) -> BTreeSet<String> {
    const LONGEST: usize = 63;
    let name = auditor.name();
    let cut =
        |digits: usize| name.get(..LONGEST - 1 - digits).map(|name| name.trim_end_matches('-').to_owned());
    (1..=3).filter_map(cut).chain([name.to_owned()]).collect()
}

pub(super) fn repositories(image: &ImageReference) -> BTreeSet<String> {
    let (registry, repository) = (image.registry().to_ascii_lowercase(), image.repository());
    if registry == "docker.io" {
        let short = repository.strip_prefix("library/");
        let paths = || [Some(repository), short].into_iter().flatten();
        let hosts = ["docker.io/", "index.docker.io/", ""];
        return hosts.iter().flat_map(|host| paths().map(move |path| format!("{host}{path}"))).collect();
    }
    let host = registry.strip_suffix(":443").unwrap_or(&registry);
    let mut written = BTreeSet::from([format!("{registry}/{repository}"), format!("{host}/{repository}")]);
    if !host.trim_end_matches(|it: char| it.is_ascii_digit()).ends_with(':') {
        written.insert(format!("{host}:443/{repository}"));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_found_in_any_spelling() {
        for (image, written) in [
            ("ghcr.io/lucid/a:1", &["ghcr.io/lucid/a", "ghcr.io:443/lucid/a"][..]),
            ("GHCR.io:443/lucid/a", &["ghcr.io/lucid/a", "ghcr.io:443/lucid/a"]),
            ("r.test:5000/a", &["r.test:5000/a"]),
            (
                "a",
                &[
                    "a",
                    "docker.io/a",
                    "docker.io/library/a",
                    "index.docker.io/a",
                    "index.docker.io/library/a",
                    "library/a",
                ],
            ),
            ("team/a", &["docker.io/team/a", "index.docker.io/team/a", "team/a"]),
        ] {
            let found = repositories(&image.parse().unwrap());
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), written, "{image}");
        }
    }

    #[test]
    fn truncated_and_numbered_names_are_recognized() {
        let name = format!("{}-{}", "a".repeat(60), "bb");
        let entry = format!("{{name: {name}, image: r.test/a}}");
        let names = called(&Catalogue::parse_entry(&entry).unwrap());
        assert_eq!(names, BTreeSet::from([name, "a".repeat(60), "a".repeat(59)]));
    }
}
