//! Changes of the configuration, and which content stays in force.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use kube::api::DynamicObject;
use lucid_chain::PodChoices;
use lucid_policy::Mode;
use serde_json::json;

use super::*;

fn data(key: &str, value: &str) -> Data {
    [(key.to_owned(), value.to_owned())].into()
}

impl ClusterConfiguration {
    fn set_chain(&self, namespace: &str, data: Option<Data>) {
        let namespace = namespace.to_owned();
        self.change_chains(match data {
            Some(data) => Change::Set((namespace, data)),
            None => Change::Removed((namespace, Data::new())),
        });
    }

    fn set_labels(&self, namespace: &str, labels: Labels) {
        self.change_labels(Change::Set((namespace.to_owned(), labels)));
    }
}

/// Creates a state that lacks only the catalogue and the chains.
fn state(settings: ChainSettings) -> ClusterConfiguration {
    let state = ClusterConfiguration::new(settings);
    let labels = ["a", "b"].map(|name| (name.to_owned(), Labels::default()));
    state.change_labels(Change::All(labels.into()));
    state.change_auditors(|auditors| auditors.set_all(Vec::new()));
    state.set_canary("lucid-system", None);
    state.set_permissions("lucid-system", None);
    state.set_policy("lucid-system", None, None);
    state
}

fn synced() -> ClusterConfiguration {
    let state = state(ChainSettings::default());
    state.set_catalogue("lucid-system", None);
    state.change_chains(Change::All(Vec::new()));
    state
}

fn auditor(name: &str, generation: i64, image: &str) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "lucid.computing/v1", "kind": "Auditor",
        "metadata": {"name": name, "uid": name, "generation": generation},
        "spec": {"image": image},
    }))
    .unwrap()
}

fn image(state: &ClusterConfiguration, name: &str) -> Option<String> {
    let configuration = state.view("b").unwrap().configuration;
    configuration.catalogue().resolve(name).ok().map(|auditor| auditor.image().to_owned())
}

fn chain(state: &ClusterConfiguration, namespace: &str) -> Option<Vec<String>> {
    let chain = state.view(namespace).unwrap().namespace_chain?;
    Some(chain.chain().iter().map(|auditor| auditor.name().to_owned()).collect())
}

#[test]
fn requests_wait_until_the_configuration_is_read() {
    let state = ClusterConfiguration::new(ChainSettings::default());
    let reason = || {
        let error = state.view("a").unwrap_err().to_string();
        error.strip_prefix("the configuration is not known yet: ").unwrap().to_owned()
    };
    assert_eq!(reason(), "ConfigMap lucid-auditors has not been read");
    state.set_catalogue("lucid-system", None);
    assert_eq!(reason(), "ConfigMap lucid-auditors-canary has not been read");
    state.set_canary("lucid-system", None);
    assert_eq!(reason(), "Auditors have not been listed");
    state.change_auditors(|auditors| auditors.set_all(Vec::new()));
    assert_eq!(reason(), "ConfigMaps lucid-auditor-chain have not been listed");
    state.change_chains(Change::All(Vec::new()));
    assert_eq!(reason(), "namespaces have not been listed");
    assert!(!state.is_synced());
    state.change_labels(Change::All(Vec::new()));
    assert_eq!(reason(), "ConfigMap lucid-webhooks has not been read");
    state.set_permissions("lucid-system", None);
    assert_eq!(reason(), "ConfigMap lucid-policy has not been read");
    assert!(state.synced().now_or_never().is_none());
    state.set_policy("lucid-system", None, None);
    assert!(state.is_synced() && state.synced().now_or_never().is_some());
    assert!(state.view("a").unwrap_err().is_unknown_namespace);
    state.set_labels("a", Labels::default());
    assert!(state.view("a").is_ok());
}

#[test]
fn labels_determine_enforcement_and_enablement() {
    let state = synced();
    let labels: BTreeMap<_, _> = [
        ("pod-security.kubernetes.io/enforce".to_owned(), "baseline".to_owned()),
        ("lucid.computing/enabled".to_owned(), "true".to_owned()),
    ]
    .into();
    let annotations = BTreeMap::new();
    state.set_labels("a", Labels::of(&labels, &annotations));
    let [a, b] = ["a", "b"].map(|name| state.view(name).unwrap());
    assert_eq!((a.enabled, a.settings.requires_chain), (true, false));
    assert_eq!((b.enabled, b.settings.requires_chain), (false, false));
    assert_ne!(a.settings, b.settings, "only one enforces a Pod Security level");
    let required: BTreeMap<_, _> = [("lucid.computing/require-chain".to_owned(), "true".to_owned())].into();
    for (labels, annotations) in [(&required, &annotations), (&annotations, &required)] {
        state.set_labels("b", Labels::of(labels, annotations));
        assert!(state.view("b").unwrap().settings.requires_chain);
    }
    state.change_labels(Change::Removed(("a".to_owned(), Labels::default())));
    assert!(state.view("a").unwrap_err().is_unknown_namespace);
}

#[test]
fn the_uid_range_of_the_namespace_applies() {
    let state = synced();
    let range = |text: &str| {
        let annotations = BTreeMap::from([("openshift.io/sa.scc.uid-range".to_owned(), text.to_owned())]);
        state.set_labels("a", Labels::of(&BTreeMap::new(), &annotations));
        let view = state.view("a").unwrap();
        (view.inputs().settings.sets_uids(), view.problems)
    };
    assert_eq!(range("1000740000/10000"), (true, vec![]));
    let (found, problems) = range("many");
    assert!(!found);
    let expected = "namespace a, openshift.io/sa.scc.uid-range: expected <first>/<size>";
    assert!(problems[0].starts_with(expected), "{problems:?}");
}

#[test]
fn invalid_pod_choices_are_reported() {
    let state = synced();
    assert_eq!(state.view("a").unwrap().settings.pod_choices, PodChoices::Unset);
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let (none, required) = (BTreeMap::new(), map("lucid.computing/require-chain", "true"));
    state.set_labels("a", Labels::of(&required, &none));
    assert_eq!(state.view("a").unwrap().settings.pod_choices, PodChoices::None);
    state.set_labels("a", Labels::of(&required, &map("lucid.computing/pod-choices", "chain")));
    let view = state.view("a").unwrap();
    assert_eq!((view.settings.pod_choices, view.problems), (PodChoices::Chain, vec![]));
    state.set_labels("a", Labels::of(&none, &map("lucid.computing/pod-choices", "some")));
    let view = state.view("a").unwrap();
    assert_eq!(view.settings.pod_choices, PodChoices::None);
    assert!(
        view.problems[0].starts_with(
            r#"namespace a, lucid.computing/pod-choices: expected "none", "chain" or "all", found "some""#
        ),
        "{:?}",
        view.problems
    );
}

#[test]
fn revoking_permission_ends_own_images_of_a_namespace() {
    let state = synced();
    let allow = |images: &str| {
        let annotations = [("lucid.computing/auditor-images".to_owned(), images.to_owned())].into();
        state.set_labels("a", Labels::of(&BTreeMap::new(), &annotations));
    };
    state.set_chain("a", Some(data("auditors.yaml", "chain: [{name: topics, image: own.test/p}]")));
    assert_eq!(chain(&state, "a"), None);
    let problems = state.view("a").unwrap().problems;
    assert!(problems[0].contains("auditor topics: a namespace cannot set image"), "{problems:?}");
    assert!(problems[0].ends_with("they get the chain of the cluster"), "{problems:?}");
    assert_eq!(state.view("a").unwrap().catalogues().len(), 2);

    allow("own.test");
    allow("own.test/p");
    assert_eq!(chain(&state, "a"), Some(vec!["topics".to_owned()]));
    assert!(state.view("a").unwrap().problems.is_empty());
    assert_eq!(state.view("a").unwrap().catalogues().len(), 3);
    // The last valid chain stays while the ConfigMap is invalid, but not without the permission.
    state.set_chain("a", Some(data("auditors.yaml", "chain: 7")));
    assert_eq!(chain(&state, "a"), Some(vec!["topics".to_owned()]));
    allow("other.test/p");
    assert_eq!((chain(&state, "a"), state.view("a").unwrap().problems.len()), (None, 1));
}

#[test]
fn objects_override_the_file_which_overrides_built_ins() {
    let state = synced();
    let file =
        "chain: [{name: lucid-toxicity-auditor, image: file/t}, {name: lucid-topics-auditor, image: file/p}]";
    state.set_catalogue("lucid-system", Some(&data("auditors.yaml", file)));
    state.change_auditors(|auditors| auditors.set(auditor("topics", 1, "object/p")));
    assert_eq!(image(&state, "toxicity").as_deref(), Some("file/t"));
    assert_eq!(image(&state, "topics").as_deref(), Some("object/p"));
    let annotations = [("lucid.computing/auditor-images".to_owned(), "docker.io/own".to_owned())].into();
    state.set_labels("a", Labels::of(&BTreeMap::new(), &annotations));
    state.set_chain("a", Some(data("auditors.yaml", "chain: [{name: topics, image: own/p}]")));
    let own = state.view("a").unwrap().namespace_chain.unwrap();
    assert_eq!(own.chain()[0].image(), "own/p");
    state.change_auditors(|auditors| auditors.remove("topics"));
    assert_eq!(image(&state, "topics").as_deref(), Some("file/p"));
}

#[test]
fn invalid_objects_are_reported_and_do_not_block_others() {
    let state = synced();
    state.change_auditors(|auditors| {
        auditors.set(auditor("topics", 1, "object/p"));
        auditors.set(auditor("bad", 1, "No Image"));
    });
    assert_eq!(image(&state, "topics").as_deref(), Some("object/p"));
    let problems = state.view("a").unwrap().problems;
    assert!(problems.len() == 1 && problems[0].starts_with("Auditor bad: spec.image"), "{problems:?}");
    state.change_auditors(|auditors| auditors.remove("bad"));
    assert!(state.view("a").unwrap().problems.is_empty());
}

#[test]
fn invalid_configuration_keeps_the_last_valid_one_in_force() {
    let state = synced();
    let strict = "webhooks: {mutate.lucid.computing: {strictMode: true}}";
    state.set_permissions("lucid-system", Some(&data("webhooks.yaml", strict)));
    state.set_policy("lucid-system", Some(&data("mode", "enforce")), Some("kubectl-patch".to_owned()));
    let enforced = ModeInForce { mode: Mode::Enforce, manager: Some("kubectl-patch".to_owned()) };
    assert_eq!(*state.modes().borrow(), Some(enforced.clone()));
    state.set_permissions("lucid-system", Some(&data("webhooks.yaml", "webhooks: 7")));
    state.set_policy("lucid-system", Some(&data("mode", "on")), Some("somebody".to_owned()));
    let view = state.view("a").unwrap();
    assert_eq!((view.policy.mode, state.modes().borrow().clone()), (Mode::Enforce, Some(enforced)));
    assert!(state.permissions().mutate.borrow().strict_mode);
    let [webhooks, policy] = &*view.problems else { panic!("{:?}", view.problems) };
    assert!(webhooks.starts_with("ConfigMap lucid-system/lucid-webhooks, webhooks.yaml: "), "{webhooks}");
    let says =
        r#"ConfigMap lucid-system/lucid-policy, mode: expected audit or enforce, found "on"; the last "#;
    assert!(policy.starts_with(says), "{policy}");
    state.set_permissions("lucid-system", None);
    state.set_policy("lucid-system", None, None);
    let view = state.view("a").unwrap();
    assert_eq!((view.policy.mode, view.problems.len()), (Mode::Audit, 0));
    assert!(!state.permissions().mutate.borrow().strict_mode);
}

#[test]
fn equivalent_catalogues_are_the_same_configuration() {
    let state = synced();
    state.change_auditors(|auditors| auditors.set(auditor("topics", 1, "object/p")));
    let before = state.view("a").unwrap().configuration;
    // Changes of status or labels, or an identical write.
    state.change_auditors(|auditors| auditors.set(auditor("topics", 1, "object/p")));
    state.change_auditors(|auditors| auditors.set(auditor("topics", 2, "object/p")));
    assert!(Arc::ptr_eq(&before, &state.view("a").unwrap().configuration));
}

#[test]
fn a_broken_chain_keeps_the_last_valid_one_with_a_warning() {
    let state = synced();
    state.set_chain("a", Some(data("chain", "toxicity")));
    state.set_chain("a", Some(data("auditors.yaml", "chain:\n  - name: x\n    port: many\n")));
    assert_eq!(chain(&state, "a"), Some(vec!["lucid-toxicity-auditor".to_owned()]));
    let problems = state.view("a").unwrap().problems;
    assert!(
        problems[0].starts_with("ConfigMap a/lucid-auditor-chain, auditors.yaml: line 3"),
        "{problems:?}"
    );
    assert!(problems[0].contains("chain[0].port"), "{problems:?}");
    assert!(state.view("b").unwrap().problems.is_empty());
    state.set_chain("a", Some(data("chain", "injection")));
    assert_eq!(chain(&state, "a"), Some(vec!["lucid-injection-auditor".to_owned()]));
    assert!(state.view("a").unwrap().problems.is_empty());
}

#[test]
fn a_broken_catalogue_keeps_the_last_valid_one() {
    let state = synced();
    let topics = "chain: [{name: lucid-topics-auditor, image: r.test/topics}]";
    state.set_catalogue("lucid-system", Some(&data("auditors.yaml", topics)));
    state.set_catalogue("lucid-system", Some(&data("auditors.yaml", "chain: 7")));
    let view = state.view("a").unwrap();
    assert!(view.configuration.catalogue().resolve("topics").is_ok());
    assert!(view.problems[0].contains("ConfigMap lucid-system/lucid-auditors, auditors.yaml: line 1"));
    state.set_catalogue("lucid-system", Some(&data("auditors.yml", topics)));
    assert!(state.view("a").unwrap().problems[0].contains("expected auditors.yaml, found"));
    state.set_catalogue("lucid-system", None);
    let view = state.view("a").unwrap();
    assert!(view.configuration.catalogue().resolve("topics").is_err() && view.problems.is_empty());
}

#[test]
fn a_catalogue_that_was_never_valid_keeps_the_replica_unready() {
    let state = state(ChainSettings::default());
    state.set_catalogue("lucid-system", Some(&data("auditors.yaml", "chain: 7")));
    state.change_chains(Change::All(Vec::new()));
    let reason = state.view("a").unwrap_err().reason;
    assert!(reason.starts_with("ConfigMap lucid-system/lucid-auditors, auditors.yaml: line 1"), "{reason}");
    assert!(!state.is_synced());
    // An absent ConfigMap is valid, and so is the next content.
    state.set_catalogue("lucid-system", None);
    assert!(state.is_synced() && state.view("a").is_ok());
}

#[test]
fn a_namespace_chain_is_invalid_if_it_was_never_valid() {
    let state = synced();
    let invalid = || state.view("a").unwrap().invalid_chain;
    state.set_chain("a", Some(data("chain", "toxcity")));
    assert!(invalid().unwrap().starts_with("ConfigMap a/lucid-auditor-chain, chain: unknown"));
    // The last valid content stays in force while the replica runs.
    state.set_chain("a", Some(data("chain", "toxicity")));
    state.set_chain("a", Some(data("chain", "toxcity")));
    assert_eq!(invalid(), None);
}

#[test]
fn never_valid_auditors_hide_lower_layers() {
    let state = synced();
    let file = "chain: [{name: lucid-topics-auditor, image: file/p}]";
    state.set_catalogue("lucid-system", Some(&data("auditors.yaml", file)));
    state.change_auditors(|auditors| auditors.set(auditor("topics", 1, "No Image")));
    assert_eq!(image(&state, "topics"), None);
    state.change_auditors(|auditors| auditors.set(auditor("topics", 2, "object/p")));
    state.change_auditors(|auditors| auditors.set(auditor("topics", 3, "No Image")));
    assert_eq!(image(&state, "topics").as_deref(), Some("object/p"));
}

#[test]
fn a_namespace_follows_a_change_of_the_catalogue() {
    let state = state(ChainSettings::default());
    state.change_chains(Change::All(vec![("a".to_owned(), data("chain", "topics"))]));
    state.set_catalogue("s", None);
    assert_eq!((chain(&state, "a"), state.view("a").unwrap().problems.len()), (None, 1));
    state.set_catalogue(
        "s",
        Some(&data("auditors.yaml", "chain: [{name: lucid-topics-auditor, image: r.test/topics}]")),
    );
    assert_eq!(chain(&state, "a"), Some(vec!["lucid-topics-auditor".to_owned()]));
    assert!(state.view("a").unwrap().problems.is_empty());
}

#[test]
fn unknown_auditors_in_the_operator_chain_are_reported() {
    let chain = Some(vec!["topics".to_owned()]);
    let state = state(ChainSettings { chain, ..ChainSettings::default() });
    state.change_chains(Change::All(Vec::new()));
    state.set_catalogue("s", None);
    let reason = state.view("a").unwrap_err().reason;
    assert!(reason.contains("in the default chain") && reason.contains("topics"), "{reason}");
    state.set_catalogue(
        "s",
        Some(&data("auditors.yaml", "chain: [{name: lucid-topics-auditor, image: r.test/topics}]")),
    );
    assert!(state.view("a").is_ok());
}

#[test]
fn a_relist_parses_only_changed_objects() {
    let state = synced();
    let list = |a: &str, b: &str| {
        Change::All(vec![("a".to_owned(), data("chain", a)), ("b".to_owned(), data("chain", b))])
    };
    state.change_chains(list("toxicity", "toxicity"));
    let [a, b] = ["a", "b"].map(|name| state.view(name).unwrap().namespace_chain.unwrap());
    state.change_chains(list("toxicity", "injection"));
    assert!(Arc::ptr_eq(&a, &state.view("a").unwrap().namespace_chain.unwrap()), "a was read again");
    assert!(!Arc::ptr_eq(&b, &state.view("b").unwrap().namespace_chain.unwrap()));
    assert_eq!(chain(&state, "b"), Some(vec!["lucid-injection-auditor".to_owned()]));
}

#[test]
fn a_relist_removes_deleted_config_maps() {
    let state = synced();
    state.set_chain("a", Some(data("chain", "toxicity")));
    state.set_chain("b", Some(data("chain", "toxicity")));
    state.change_chains(Change::All(vec![("b".to_owned(), data("chain", "toxicity"))]));
    assert_eq!((chain(&state, "a"), chain(&state, "b").is_some()), (None, true));
    state.set_chain("b", None);
    assert_eq!(chain(&state, "b"), None);
}

/// Returns a catalogue with this image of the auditor `topics`.
fn topics(image: &str) -> Data {
    data("auditors.yaml", &format!("chain: [{{name: lucid-topics-auditor, image: {image}}}]"))
}

fn image_in(state: &ClusterConfiguration, namespace: &str) -> String {
    state.view(namespace).unwrap().configuration.catalogue().resolve("topics").unwrap().image().to_owned()
}

fn move_to(state: &ClusterConfiguration, namespace: &str, revision: &str) {
    let labels = [("lucid.computing/revision".to_owned(), revision.to_owned())].into();
    state.set_labels(namespace, Labels::of(&labels, &BTreeMap::new()));
}

#[test]
fn a_label_moves_a_namespace_to_the_canary_and_back() {
    let state = synced();
    state.set_catalogue("lucid-system", Some(&topics("r.test/topics:1")));
    state.set_canary("lucid-system", Some(&topics("r.test/topics:2")));
    state.set_chain("a", Some(data("chain", "topics")));
    let assert_image = |namespace: &str, image: &str| {
        let view = state.view(namespace).unwrap();
        assert_eq!(image_in(&state, namespace), image);
        assert!(view.namespace_chain.is_none_or(|chain| chain.chain()[0].image() == image));
        assert_eq!((view.is_canary, view.problems.len()), (image == "r.test/topics:2", 0));
    };
    assert_image("a", "r.test/topics:1");
    move_to(&state, "a", "canary");
    assert_image("a", "r.test/topics:2");
    assert_image("b", "r.test/topics:1");
    state.set_canary("lucid-system", Some(&topics("r.test/topics:3")));
    assert_eq!(image_in(&state, "a"), "r.test/topics:3");
    state.set_labels("a", Labels::default());
    assert_image("a", "r.test/topics:1");
    // Auditor objects override both revisions.
    move_to(&state, "a", "canary");
    state.change_auditors(|auditors| auditors.set(auditor("topics", 1, "object/p")));
    assert_eq!(["a", "b"].map(|namespace| image_in(&state, namespace)), ["object/p"; 2]);
}

#[test]
fn generations_are_evaluated_with_the_catalogue_of_the_revision() {
    let state = synced();
    state.set_canary("lucid-system", Some(&topics("r.test/topics:2")));
    move_to(&state, "a", "canary");
    let other = ChainSettings { chain: Some(vec!["topics".to_owned()]), ..ChainSettings::default() };
    let published = generations::published(&generations::resolved(&other)).unwrap();
    state.set_generations(&data("other", &published));
    let others = |namespace: &str| state.others(&state.view(namespace).unwrap().configuration);
    assert_eq!(others("a")[0].1.chain()[0].image(), "r.test/topics:2");
    assert!(others("b").is_empty(), "the ordinary catalogue has no such auditor");
}

#[test]
fn without_a_valid_canary_the_ordinary_catalogue_applies() {
    let state = synced();
    state.set_catalogue("lucid-system", Some(&topics("r.test/topics:1")));
    let assert_ordinary = |problem: &str| {
        assert_eq!(image_in(&state, "a"), "r.test/topics:1");
        let view = state.view("a").unwrap();
        assert!(!view.is_canary);
        let [found] = &*view.problems else { panic!("{:?}", view.problems) };
        assert!(found.starts_with(&format!("namespace a, lucid.computing/revision: {problem}")), "{found}");
        assert!(found.ends_with("; lucid-auditors applies"), "{found}");
        assert!(state.view("b").unwrap().problems.is_empty() && state.is_synced());
    };
    move_to(&state, "a", "canry");
    assert_ordinary(r#"expected "canary", found "canry""#);
    move_to(&state, "a", "canary");
    assert_ordinary("ConfigMap lucid-auditors-canary does not exist");
    assert!(state.canary_problems().is_empty());
    let invalid = data("auditors.yaml", "chain: 7");
    let problem = "ConfigMap lucid-system/lucid-auditors-canary, auditors.yaml: line 1";
    state.set_canary("lucid-system", Some(&invalid));
    assert_ordinary(problem);
    assert_eq!(state.valid_config_maps()[1], ("lucid-auditors-canary", false));
    assert!(state.canary_problems()[0].starts_with(problem), "{:?}", state.canary_problems());

    state.set_canary("lucid-system", Some(&topics("r.test/topics:2")));
    state.set_canary("lucid-system", Some(&invalid));
    let view = state.view("a").unwrap();
    assert_eq!((image_in(&state, "a"), view.is_canary), ("r.test/topics:2".to_owned(), true));
    let [found] = &*view.problems else { panic!("{:?}", view.problems) };
    assert!(
        found.starts_with(problem) && found.ends_with("; the last valid content stays in use"),
        "{found}"
    );
    // Every replica uses the same catalogue after a deletion.
    state.set_canary("lucid-system", None);
    assert_ordinary("ConfigMap lucid-auditors-canary does not exist");
    state.set_canary("lucid-system", Some(&invalid));
    assert_ordinary(problem);
}

#[test]
fn a_canary_without_the_auditors_of_the_default_chain_is_invalid() {
    let chain = Some(vec!["topics".to_owned()]);
    let state = state(ChainSettings { chain, ..ChainSettings::default() });
    state.change_chains(Change::All(Vec::new()));
    state.set_catalogue("s", Some(&topics("r.test/topics:1")));
    state.set_canary("s", Some(&data("auditors.yaml", "chain: [{name: other, image: r.test/other}]")));
    move_to(&state, "a", "canary");
    assert_eq!(image_in(&state, "a"), "r.test/topics:1");
    let problem = state.view("a").unwrap().problems.join("; ");
    assert!(problem.contains("defined in ConfigMap s/lucid-auditors-canary"), "{problem}");
    assert!(problem.ends_with("; lucid-auditors applies"), "{problem}");
    state.set_canary("s", Some(&topics("r.test/topics:2")));
    state.set_canary("s", Some(&data("auditors.yaml", "chain: [{name: other, image: r.test/other}]")));
    assert_eq!(image_in(&state, "a"), "r.test/topics:2");
    assert!(state.view("a").unwrap().problems[0].ends_with("; the last valid content stays in use"));
}
