//! Builds requests and evaluates them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lucid_chain::{
    Catalogue, Configuration, Decision, Inputs, NamespaceSettings, PodChoices, PodView, SkipPolicy, keys,
    plan,
};
use lucid_notary::{CheckedVerdict, Digest, NotaryVerdict, Provenance};
use lucid_policy::{
    Case, DEFAULT_TICKET_PATTERN, EvaluatedKeys, Evaluation, Mode, Permission, Policy, Request, Strictness,
    Tickets, Workload,
};
use serde_json::{Value, json};

pub(crate) const NOTARIZED: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
pub(crate) const REVOKED: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
pub(crate) const UNREACHABLE: &str =
    "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";
pub(crate) const NOW: &str = "2026-03-01T12:00:00Z";

/// A catalogue of two auditors with notarized images; `first` listens on 8090, `second` on 8093.
pub(crate) fn catalogue() -> Catalogue {
    CATALOGUES[1].clone()
}

/// The built-in catalogue and the one of [`catalogue`]. Parsed once: parsing takes longer than judging.
static CATALOGUES: LazyLock<[Catalogue; 2]> = LazyLock::new(|| {
    let yaml = format!(
        "chain:\n- {{name: first, image: 'reg.test/first@{NOTARIZED}', port: 8090}}\n\
         - {{name: second, image: 'reg.test/second@{NOTARIZED}', port: 8093}}\n\
         - {{name: lucid-egress, image: 'reg.test/lucid-egress@{NOTARIZED}'}}\n"
    );
    [Catalogue::builtin(), Catalogue::parse("auditors.yaml", &yaml).unwrap()]
});

pub(crate) fn configuration() -> Configuration {
    configured(catalogue(), &["first", "second"])
}

pub(crate) fn configured(catalogue: Catalogue, chain: &[&str]) -> Configuration {
    let chain: Vec<_> = chain.iter().map(|name| (*name).to_owned()).collect();
    let mut configuration = Configuration::new(catalogue, Some(&chain)).unwrap();
    configuration.init_image = format!("reg.test/lucid-init@{NOTARIZED}").parse().unwrap();
    configuration
}

/// Enforces all checks strictly; requires no label.
pub(crate) fn enforced() -> Policy {
    let mut policy = Policy::default();
    policy.mode = Mode::Enforce;
    policy.strictness = Strictness::Strict;
    policy.required_label = None;
    policy.tickets = Tickets::new(DEFAULT_TICKET_PATTERN).unwrap();
    policy
}

pub(crate) fn secured() -> Value {
    json!({
        "metadata": {"name": "web", "labels": {"lucid.io/secured": "true"}},
        "spec": {"containers": [{"name": "model", "image": "shop/model:1", "ports": [{"containerPort": 5000}]}]},
    })
}

pub(crate) fn annotated(annotations: Value) -> Value {
    let mut pod = secured();
    pod["metadata"]["annotations"] = annotations;
    pod
}

/// Adds an item to a list of the spec, which may be missing.
pub(crate) fn push(pod: &mut Value, list: &str, item: Value) {
    match pod["spec"][list].as_array_mut() {
        Some(items) => items.push(item),
        None => pod["spec"][list] = json!([item]),
    }
}

/// Returns the pod with another image of the model.
pub(crate) fn with_other_model(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["spec"]["containers"][0]["image"] = json!("shop/model:2");
    pod
}

#[track_caller]
pub(crate) fn assert_says(text: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} is not in {text:?}");
}

pub(crate) fn plain() -> Value {
    let mut pod = secured();
    pod["metadata"]["labels"] = json!({});
    pod
}

pub(crate) fn injected(pod: &Value) -> Value {
    injected_by(pod, &configuration())
}

pub(crate) fn injected_by(pod: &Value, configuration: &Configuration) -> Value {
    injected_within(pod, configuration, None)
}

pub(crate) fn injected_within(pod: &Value, configuration: &Configuration, uid_range: Option<&str>) -> Value {
    let json = pod.to_string();
    let view = PodView::from_json(&json).unwrap();
    let settings = settings(uid_range, None);
    let inputs = Inputs { settings: &settings, ..Inputs::new(configuration) };
    let Decision::Planned(plan) = plan(&view, &inputs).decision else { panic!("no chain for {pod}") };
    let mut pod = pod.clone();
    json_patch::patch(&mut pod, &plan.patch(&view).operations()).unwrap();
    hardened(&pod)
}

fn settings(uid_range: Option<&str>, other_ports: Option<&str>) -> NamespaceSettings {
    let annotations = [(keys::SCC_UID_RANGE, uid_range), (keys::OTHER_PORTS, other_ports)];
    let annotations =
        annotations.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    NamespaceSettings::new(&BTreeMap::new(), &annotations.collect())
}

/// Drops NET_RAW and privilege escalation in each container that does not configure them, as injection does.
pub(crate) fn hardened(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            match container["securityContext"]["capabilities"]["drop"].as_array_mut() {
                Some(dropped) if dropped.iter().any(|name| name == "ALL" || name == "NET_RAW") => {}
                Some(dropped) => dropped.push(json!("NET_RAW")),
                None => container["securityContext"]["capabilities"]["drop"] = json!(["NET_RAW"]),
            }
            let escalation = &mut container["securityContext"]["allowPrivilegeEscalation"];
            if escalation.is_null() {
                *escalation = json!(false);
            }
        }
    }
    pod
}

pub(crate) fn object(workload: Workload, pod: &Value) -> Value {
    let template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    let metadata = json!({"name": "web"});
    match workload {
        Workload::Pod => pod.clone(),
        Workload::PodTemplate => json!({"metadata": metadata, "template": template}),
        Workload::CronJob => {
            json!({"metadata": metadata, "spec": {"jobTemplate": {"spec": {"template": template}}}})
        }
        _ => json!({"metadata": metadata, "spec": {"replicas": 2, "template": template}}),
    }
}

#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) policy: Policy,
    pub(crate) configuration: Configuration,
    pub(crate) workload: Workload,
    pub(crate) subresource: Option<&'static str>,
    pub(crate) object: Value,
    pub(crate) old: Option<Value>,
    pub(crate) namespace: &'static str,
    pub(crate) requires_chain: bool,
    pub(crate) pod_choices: PodChoices,
    pub(crate) other_ports: Option<&'static str>,
    pub(crate) uid_range: Option<&'static str>,
    pub(crate) permission: Permission,
}

impl Ask {
    pub(crate) fn create(pod: &Value) -> Self {
        Self {
            policy: enforced(),
            configuration: configuration(),
            workload: Workload::Pod,
            subresource: None,
            object: pod.clone(),
            old: None,
            namespace: "shop",
            requires_chain: false,
            pod_choices: PodChoices::All,
            other_ports: None,
            uid_range: None,
            permission: Permission::NotRequired,
        }
    }

    pub(crate) fn update(old: &Value, new: &Value) -> Self {
        Self { old: Some(old.clone()), ..Self::create(new) }
    }

    /// A request about a pod, or about a template of it.
    pub(crate) fn of(workload: Workload, pod: &Value) -> Self {
        Self::create(&object(workload, pod)).with(|ask| ask.workload = workload)
    }

    /// Adds an ephemeral container to a running pod.
    pub(crate) fn debug(running: &Value, container: &Value) -> Self {
        let mut new = running.clone();
        push(&mut new, "ephemeralContainers", container.clone());
        Self::update(running, &hardened(&new)).on("ephemeralcontainers")
    }

    pub(crate) fn on(self, subresource: &'static str) -> Self {
        self.with(|ask| ask.subresource = Some(subresource))
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn allowing_skip(self) -> Self {
        self.with(|ask| ask.configuration.skip = SkipPolicy::Always)
    }

    pub(crate) fn evaluate(&self) -> Option<Evaluation> {
        let (object, old) = (self.object.to_string(), self.old.as_ref().map(Value::to_string));
        let request = Request::new(self.workload, self.namespace, NOW.parse().unwrap())
            .with_subresource(self.subresource)
            .with_object(Some(object.as_bytes()))
            .with_old_object(old.as_ref().map(String::as_bytes));
        let keys = EvaluatedKeys::default();
        let request = request.with_evaluated_keys(&keys);
        let subject = request.subject().unwrap()?;
        let mut settings = settings(self.uid_range, self.other_ports);
        settings.pod_choices = self.pod_choices;
        settings.requires_chain = self.requires_chain;
        let inputs = Inputs { settings: &settings, ..Inputs::new(&self.configuration) };
        let case = Case::new(&subject, &inputs, &*CATALOGUES);
        let auditors = case.auditors();
        Some(self.policy.evaluate(&case, &auditors, &verdicts(), &self.permission))
    }

    /// Returns the reason for the refusal; empty if admitted.
    pub(crate) fn denial(&self) -> String {
        self.evaluate().and_then(|evaluation| evaluation.denial()).unwrap_or_default()
    }

    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        let findings = self.evaluate().map(|evaluation| evaluation.findings).unwrap_or_default();
        findings.iter().map(|finding| finding.problem.reason).collect()
    }
}

pub(crate) fn verdicts() -> BTreeMap<Digest, CheckedVerdict> {
    let unknown = NotaryVerdict::Unknown { reason: "connection refused".to_owned() };
    [(NOTARIZED, NotaryVerdict::Notarized), (REVOKED, NotaryVerdict::NotNotarized), (UNREACHABLE, unknown)]
        .map(|(digest, verdict)| {
            (digest.parse().unwrap(), CheckedVerdict::new(verdict, Provenance::Verifier))
        })
        .into()
}
