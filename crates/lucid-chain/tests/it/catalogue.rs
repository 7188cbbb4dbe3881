//! Parsing of catalogues and lookups in them.

use lucid_chain::{Catalogue, Configuration, Decision, RESERVED_ENV, keys};
use serde_json::{Value, json};

use crate::common::*;

const FULL: &str = r#"
chain:
  - name: lucid-injection-auditor     # short forms injection, injection-auditor mean the same
    description: Detects prompt injection
    image: ghcr.io/lucid/lucid-injection-auditor:1.4.2@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    port: 8090                        # default 8080 in this file
    env: {THRESHOLD: "0.8", RATIO: 0.80, STRICT: yes, EMPTY: ""}
    labels: {tier: core}
    resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 500m, memory: 256Mi}}
  - {name: topics, image: topics}
"#;

#[test]
fn an_entry_keeps_all_keys_and_the_order() {
    let catalogue = parsed(FULL);
    let [first, second] = catalogue.auditors() else { panic!("{catalogue:?}") };
    assert_eq!(first.name(), "lucid-injection-auditor");
    assert_eq!(first.description(), "Detects prompt injection");
    assert!(first.image().starts_with("ghcr.io/lucid/lucid-injection-auditor:1.4.2@sha256:9f86"));
    assert_eq!(first.port().get(), 8090);
    let variables: Vec<_> = first.variables().collect();
    let expected = [("RATIO", "0.80"), ("STRICT", "yes"), ("THRESHOLD", "0.8")];
    let expected = expected.map(|(name, value)| json!({"name": name, "value": value}));
    assert_eq!((&variables[0], &variables[1..]), (&json!({"name": "EMPTY"}), &expected[..]));
    assert_eq!(second.name(), "topics");
    assert_eq!((second.port().get(), catalogue.resolve("injection").unwrap()), (8080, first));

    let configuration =
        without_rules(Configuration::new(catalogue, Some(&["injection".to_owned()])).unwrap());
    let patched = injected_with(&pod(json!({}), &[5000]), &configuration);
    let container = &patched["spec"]["containers"][1];
    assert_eq!(container["resources"], default_resources());
    let image = container["image"].as_str().unwrap();
    assert!(image.starts_with("ghcr.io/lucid/lucid-injection-auditor:1.4.2@sha256:"), "{image}");
    let env = container["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "THRESHOLD", "value": "0.8"})), "{env:?}");
}

fn default_resources() -> Value {
    json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}})
}

#[test]
fn default_resources_apply_only_without_own_resources() {
    let yaml = "chain:
  - {name: a, image: a}
  - {name: b, image: b, resources: {limits: {cpu: 1}}}
  - {name: c, image: c, resources: {}}";
    let resources: Vec<_> = manifests(yaml).iter_mut().map(|it| it["resources"].take()).collect();
    // As the API server does, the manifest requests what only has a limit.
    let own = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
    assert_eq!(resources, [default_resources(), own, json!({})]);
}

#[test]
fn an_invalid_catalogue_is_rejected_with_origin_line_and_key() {
    let (_, cases) = include_str!("catalogue_refused.txt").split_once("\n\n=== ").unwrap();
    let cases = cases.split("\n=== ").map(|case| case.split_once('\n').unwrap());
    let cases = cases.map(|(expected, yaml)| (expected, format!("{yaml}\n")));
    let more = [
        ("line 1, column 1: `chain` is missing", ""),
        (
            "line 3, column 10: chain[0].image: expected an image reference such as registry.example/auditor:1.0, found nothing",
            "\u{feff}chain:\n- name: a\n  image: ''\n",
        ),
        ("line 1, column 1: unknown key \"chains\", expected one of chain, defaults", "\u{feff}chains: []\n"),
    ];
    let mut wrong = Vec::new();
    for (expected, yaml) in cases.chain(more.map(|(expected, yaml)| (expected, yaml.to_owned()))) {
        let error = Catalogue::parse("ConfigMap a/b, auditors.yaml", &yaml).expect_err(&yaml);
        let message = error.to_string();
        if !message.starts_with(&format!("ConfigMap a/b, auditors.yaml: {expected}")) {
            wrong.push(format!("{yaml}\nexpected {expected}\nfound    {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_catalogue_may_not_set_reserved_variables() {
    for name in RESERVED_ENV {
        let yaml = format!("chain: [{{name: a, image: a, env: {{{name}: x}}}}]");
        let error = Catalogue::parse("auditors.yaml", &yaml).unwrap_err();
        assert!(error.to_string().contains(&format!("which Lucid sets itself; found {name}")), "{error}");
    }
}

#[test]
fn routes_are_served_by_built_in_images_and_on_request() {
    let serves = |catalogue: &Catalogue, name: &str| {
        let configuration = Configuration::new(catalogue.clone(), Some(&[name.to_owned()])).unwrap();
        let pod = pod(json!({keys::TARGET_PORT: "8080,8085"}), &[]);
        matches!(outcome_in(&pod, &configuration, None).decision, Decision::Planned(_))
    };
    let builtin = Catalogue::builtin();
    assert!(builtin.auditors().iter().all(|auditor| serves(&builtin, auditor.name())));
    for (entry, expected) in [
        ("name: own, image: own", false),
        ("name: own, image: own, routes: true", true),
        ("name: pii, port: 9000", true),
        ("name: pii, routes: false", false),
        ("name: pii, image: own", false),
        ("name: pii, image: own, routes: true", true),
        // Another tag or digest of the same repository.
        ("name: pii, image: \"ghcr.io/lucid/lucid-pii-auditor:1.4\"", true),
    ] {
        let catalogue = parsed(&format!("chain: [{{{entry}}}]"));
        let found = serves(&catalogue, catalogue.auditors()[0].name());
        assert_eq!(found, expected, "{entry}");
    }
    let error = refusal("chain: [{name: own, image: own, routes: yes}]");
    assert!(error.contains("chain[0].routes: expected true or false, found yes"), "{error}");
}

#[test]
fn the_builtin_catalogue_is_as_documented() {
    let catalogue = Catalogue::builtin();
    let entries: Vec<_> =
        catalogue.auditors().iter().map(|a| (a.name(), a.port().get(), a.image())).collect();
    assert_eq!(
        entries,
        [
            ("lucid-guardrails-auditor", 8090, "ghcr.io/lucid/lucid-guardrails-auditor:latest"),
            ("lucid-injection-auditor", 8090, "ghcr.io/lucid/lucid-injection-auditor:latest"),
            ("lucid-toxicity-auditor", 8093, "ghcr.io/lucid/lucid-toxicity-auditor:latest"),
            ("lucid-pii-auditor", 8096, "ghcr.io/lucid/lucid-pii-auditor:latest"),
        ]
    );
}

#[test]
fn an_unknown_key_is_rejected_with_the_key_it_stands_for() {
    for (yaml, expected) in [
        (
            "auditors: [{name: a, image: a}]",
            "unexpected key auditors, expected one of chain, defaults: did you mean chain?",
        ),
        ("sidecars: []", "did you mean chain?"),
        ("Catalogue: []", "did you mean chain?"),
        ("chains: []", "expected one of chain, defaults; did you mean chain?"),
        ("CHAIN: []", "did you mean chain?"),
        ("default: {}", "did you mean defaults?"),
        ("settings: {}", "did you mean defaults?"),
        ("name: a", "did you mean chain[].name?"),
        ("resources: {}", "did you mean chain[].resources?"),
        ("readiness: {}", "did you mean chain[].probes.readiness?"),
        ("auditMode: audit", "did you mean defaults.audit-mode?"),
        ("target_port: 1", "did you mean defaults.target-port?"),
        ("defaults: {targetport: 1}", "did you mean target-port?"),
        ("chain: [{name: a, image: a, ports: 1}]", "did you mean port?"),
        ("chain: [{name: a, image: a, capabilities: {}}]", "did you mean securityContext.capabilities?"),
        ("chain: [{name: a, image: a, readinessProbe: {}}]", "did you mean probes.readiness?"),
        ("apiVersion: v1", "the file is the text under `auditors.yaml` of a ConfigMap, not a manifest"),
    ] {
        let message = Catalogue::parse("a", yaml).unwrap_err().to_string();
        assert!(message.ends_with(expected), "{yaml}: {message}");
    }
    for yaml in ["x: 1", "whatever: []", "chain: [{name: a, image: a, command: [a]}]"] {
        let message = Catalogue::parse("a", yaml).unwrap_err().to_string();
        assert!(message.contains("unknown key") && !message.contains("did you mean"), "{message}");
    }
}

#[test]
fn an_overlay_replaces_equivalent_entries_and_appends_others() {
    let own = parsed(
        "chain: [{name: topics, image: topics}, {name: lucid-injection-auditor, image: mine, port: 1}]",
    );
    let all = Catalogue::builtin().overlay(&own);
    let entries: Vec<_> = all.auditors().iter().map(|a| (a.name(), a.port().get())).collect();
    assert_eq!(
        entries,
        [
            ("lucid-guardrails-auditor", 8090),
            ("lucid-injection-auditor", 1),
            ("lucid-toxicity-auditor", 8093),
            ("lucid-pii-auditor", 8096),
            ("topics", 8080),
        ]
    );
}

#[test]
fn an_unknown_name_is_reported_with_suggestions() {
    let catalogue = Catalogue::builtin();
    let long = "x".repeat(100_000);
    let cases = [
        ("injectoin", Some("lucid-injection-auditor")),
        ("lucid-toxcity-auditor", Some("lucid-toxicity-auditor")),
        ("guardrail", Some("lucid-guardrails-auditor")),
        ("topics", None),
        ("Injection", Some("lucid-injection-auditor")),
        ("LUCID-TOXICITY-AUDITOR", Some("lucid-toxicity-auditor")),
        ("", None),
        (&long, None),
    ];
    for (name, nearest) in cases {
        let unknown = catalogue.resolve(name).unwrap_err();
        let message = unknown.to_string();
        let found = message.split_once("did you mean ").map(|(_, rest)| rest.split_once('?').unwrap().0);
        assert_eq!(found, nearest, "{name}");
        assert!(message.contains("known: lucid-guardrails-auditor, lucid-injection-auditor"), "{message}");
        assert!(message.len() < 300, "{message}");
    }
}

#[test]
fn a_byte_order_mark_and_empty_documents_are_ignored() {
    for yaml in [
        "chain: [{name: a, image: a}]\n---\n",
        "---\nchain: [{name: a, image: a}]\n---",
        "chain: [{name: a, image: a}]\n...\n",
        "chain: [{name: a, image: a}]\n---\n# nothing\n---\n",
        "\u{feff}chain: [{name: a, image: a}]",
        "\u{feff}---\nchain: [{name: a, image: a, env: {A: '', B: \"null\", C: \"~\"}}]",
    ] {
        let catalogue = parsed(yaml);
        assert_eq!(catalogue.auditors().len(), 1, "{yaml}");
    }
}

#[test]
fn auditors_are_found_by_image_and_container_name() {
    let digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let own = parsed(
        "chain: [{name: pii-2, image: Registry.example/pii:1}, {name: x, image: registry.example/pii}]",
    );
    let catalogue = Catalogue::builtin().overlay(&own);
    let toxicity = Some("lucid-toxicity-auditor");
    let images = [
        ("ghcr.io/lucid/lucid-toxicity-auditor:latest".to_owned(), toxicity),
        ("ghcr.io/lucid/lucid-toxicity-auditor".to_owned(), toxicity),
        (format!("GHCR.io:443/lucid/lucid-toxicity-auditor@{digest}"), toxicity),
        ("registry.example/pii:2".to_owned(), Some("pii-2")),
        ("registry.example:80/pii".to_owned(), None),
        ("lucid/lucid-toxicity-auditor".to_owned(), None),
    ];
    for (image, expected) in images {
        let found = catalogue.auditor_of_image(&image.parse().unwrap());
        assert_eq!(found.map(|auditor| auditor.name()), expected, "{image}");
    }
    let names = [
        ("lucid-toxicity-auditor", toxicity),
        ("lucid-toxicity-auditor-2", toxicity),
        ("lucid-toxicity-auditor-", None),
        ("lucid-toxicity-auditor-x", None),
        ("toxicity", None),
        ("pii-2", Some("pii-2")),
        ("pii-2-3", Some("pii-2")),
        ("topics", None),
        ("pii-3", None),
    ];
    for (name, expected) in names {
        assert_eq!(catalogue.auditor_of_container(name).map(|auditor| auditor.name()), expected, "{name}");
    }
    assert_eq!(own.auditors()[0].image(), "Registry.example/pii:1");
}

#[test]
fn an_overlay_finds_entries_of_all_layers_unless_replaced() {
    let parse = |yaml: &str| parsed(yaml);
    let base = parse(
        "chain: [{name: a, image: r.test/one}, {name: b, image: r.test/one}, {name: c, image: r.test/two}]",
    );
    let middle = base.overlay(&parse("chain: [{name: d, image: r.test/one}, {name: a, image: r.test/two}]"));
    let top = middle.overlay(&parse("chain: [{name: c, image: r.test/three}, {name: e, image: r.test/two}]"));
    let list = |catalogue: &Catalogue| {
        let entries = catalogue.auditors().iter();
        entries.map(|auditor| format!("{}={}", auditor.name(), auditor.image())).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(list(&top), "a=r.test/two b=r.test/one c=r.test/three d=r.test/one e=r.test/two");
    let of_image = |catalogue: &Catalogue, image: &str| {
        catalogue.auditor_of_image(&image.parse().unwrap()).map(|auditor| auditor.name().to_owned())
    };
    for (image, of_base, of_middle, of_top) in [
        ("r.test/one", Some("a"), Some("b"), Some("b")),
        ("r.test/two", Some("c"), Some("a"), Some("a")),
        ("r.test/three", None, None, Some("c")),
    ] {
        for (catalogue, expected) in [(&base, of_base), (&middle, of_middle), (&top, of_top)] {
            assert_eq!(of_image(catalogue, image).as_deref(), expected, "{image}");
        }
    }
    assert_eq!(top.resolve("c").unwrap().image(), "r.test/three");
    assert_eq!(top.resolve("b").unwrap().image(), "r.test/one");
    let flat = parse(
        "chain: [{name: a, image: r.test/two}, {name: b, image: r.test/one}, {name: c, image: r.test/three}, \
         {name: d, image: r.test/one}, {name: e, image: r.test/two}]",
    );
    assert_eq!(top, flat);
    let without = top.without(["b", "lucid-c-auditor"]);
    assert_eq!(list(&without), "a=r.test/two d=r.test/one e=r.test/two");
    assert_eq!(of_image(&without, "r.test/one").as_deref(), Some("d"));
}

#[test]
fn entries_may_share_a_preferred_port() {
    let yaml =
        "chain: [{name: a, image: a}, {name: b, image: b, port: 8080}, {name: c, image: c, port: 8080}]";
    assert!(parsed(yaml).auditors().iter().all(|auditor| auditor.port().get() == 8080));
}

#[test]
fn an_entry_named_like_a_built_in_one_inherits_what_it_omits() {
    let catalogue =
        parsed("chain: [{name: toxicity, image: r.test/t}, {name: lucid-injection-auditor, port: 1}]");
    let [toxicity, injection] = catalogue.auditors() else { panic!("{catalogue:?}") };
    assert_eq!((toxicity.port().get(), toxicity.image()), (8093, "r.test/t"));
    assert_eq!(toxicity.description(), "Detects toxic language");
    assert_eq!(injection.image(), "ghcr.io/lucid/lucid-injection-auditor:latest");
    assert_eq!(injection.port().get(), 1);
    let entry = Catalogue::parse_entry("{name: injection, image: r.test/i}").unwrap();
    assert_eq!(entry.port().get(), 8090);
}
