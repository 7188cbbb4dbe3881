//! Parsing of catalogues and lookups in them.

use lucid_chain::{Catalogue, DEFAULT_PORT, RESERVED_ENV, Resources};

use crate::common::assert_refused;

const FULL: &str = r#"
chain:
  - name: lucid-injection-auditor
    description: Detects prompt injection
    image: ghcr.io/lucid/lucid-injection-auditor:1.4.2@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    port: 8090
    env: {THRESHOLD: "0.8", RATIO: 0.80, STRICT: yes, EMPTY: ""}
    labels: {tier: core}
    resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 500m, memory: 256Mi}}
  - {name: pii, image: pii}
"#;

#[test]
fn an_entry_keeps_all_keys_and_the_order() {
    let catalogue = Catalogue::parse("auditors.yaml", FULL).unwrap();
    let [first, second] = catalogue.auditors() else { panic!("{catalogue:?}") };
    assert_eq!(first.name(), "lucid-injection-auditor");
    assert_eq!(first.description(), "Detects prompt injection");
    assert!(first.image().starts_with("ghcr.io/lucid/lucid-injection-auditor:1.4.2@sha256:9f86"));
    assert_eq!(first.port().get(), 8090);
    let env: Vec<_> = first.env().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(env, [("EMPTY", ""), ("RATIO", "0.80"), ("STRICT", "yes"), ("THRESHOLD", "0.8")]);
    assert_eq!(first.labels()["tier"], "core");
    assert_eq!(first.resources(), &Resources::default());
    assert_eq!((second.name(), second.port()), ("pii", DEFAULT_PORT));
}

#[test]
fn default_resources_apply_only_without_own_resources() {
    let yaml = "chain:
  - {name: a, image: a}
  - {name: b, image: b, resources: {limits: {cpu: 1}}}
  - {name: c, image: c, resources: {}}";
    let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap();
    let [a, b, c] = catalogue.auditors() else { panic!("{catalogue:?}") };
    assert_eq!(a.resources().requests["memory"], "128Mi");
    assert_eq!(a.resources().requests["cpu"], "100m");
    assert_eq!(a.resources().limits["memory"], "256Mi");
    assert_eq!(a.resources().limits["cpu"], "500m");
    assert!(b.resources().requests.is_empty());
    assert_eq!(b.resources().limits["cpu"], "1");
    assert!(c.resources().requests.is_empty() && c.resources().limits.is_empty());
}

/// Invalid catalogues, with the line, the column and the message.
const REFUSED: &[(&str, usize, usize, &str)] = &[
    (
        "chain:\n  - name: a\n    image: a\n    port: 70000\n",
        4,
        11,
        "chain[0].port: found 70000, accepted 1 to 65535",
    ),
    (
        "chain:\n- {name: a, image: a}\n- {name: b, image: b, port: 0}\n",
        3,
        29,
        "chain[1].port: found 0, accepted 1",
    ),
    ("chain:\n- name: a\n  image: a\n  port: -1\n", 4, 9, "chain[0].port: found -1, accepted"),
    ("chain:\n- name: a\n  image: a\n  port: http\n", 4, 9, "chain[0].port: found http, accepted"),
    ("chain:\n- name: a\n  image: a\n  port:\n", 4, 8, "chain[0].port: found nothing, accepted"),
    ("chain:\n- name: a\n  image: a\n  port: [1]\n", 4, 9, "chain[0].port: invalid type: sequence"),
    (
        "chain:\n- name: a\n  image: a\n\n- name: b\n  image: b\n- name: a\n  image: c\n",
        7,
        9,
        "chain[2].name: found a twice",
    ),
    ("chain:\n- {name: a, image: a}\n- {name: a, image: a}\n", 3, 10, "chain[1].name: found a twice"),
    (
        "chain:\n- {name: pii, image: a}\n- {name: lucid-pii-auditor, image: a}\n",
        3,
        10,
        "chain[1].name: found lucid-pii-auditor, which means the same as pii",
    ),
    ("chain:\n- name: Upper\n  image: a\n", 2, 9, "chain[0].name: found Upper, accepted a DNS label"),
    ("chain:\n- name: -a\n  image: a\n", 2, 9, "chain[0].name: found -a, accepted a DNS label"),
    ("chain:\n- name: a\n  image: a\n- image: b\n", 4, 3, "chain[1]: `name` is missing"),
    ("chain:\n- name: a\n  image: a\n- name: b\n  port: 1\n", 4, 3, "chain[1]: `image` is missing"),
    ("chain:\n- {name: a, image: a}\n- {name: b}\n", 3, 3, "chain[1]: `image` is missing"),
    ("chain:\n- name: a\n  image: null\n", 3, 10, "chain[0].image: found nothing"),
    (
        "chain:\n- name: a\n  image: Not An Image\n",
        3,
        10,
        "chain[0].image: image reference \"Not An Image\" ",
    ),
    (
        "chain:\n- name: a\n  image: a@sha256:abc\n",
        3,
        10,
        "chain[0].image: image reference \"a@sha256:abc\" ",
    ),
    (
        "chain:\n- name: a\n  image: a\n  prot: 80\n",
        4,
        3,
        "chain[0]: unknown key \"prot\", accepted name, description,",
    ),
    ("chain:\n- name: a\n  image: a\n  image: b\n", 4, 3, "chain[0]: found the key \"image\" twice"),
    (
        "chain:\n- name: a\n  image: a\n  env:\n    A: x\n    PORT: '1'\n",
        6,
        5,
        "chain[0].env: found PORT, which Lucid sets",
    ),
    (
        "chain:\n- name: a\n  image: a\n  env: {A: x, A: y}\n",
        4,
        15,
        "chain[0].env: found the key \"A\" twice",
    ),
    ("chain:\n- name: a\n  image: a\n  env: {1A: x}\n", 4, 9, "chain[0].env: found 1A, accepted a name"),
    (
        "chain:\n- name: a\n  image: a\n  env:\n  - A=x\n",
        5,
        3,
        "chain[0].env: invalid type: sequence, expected a map",
    ),
    (
        "chain:\n- name: a\n  image: a\n  labels: {tier: {}}\n",
        4,
        18,
        "chain[0].labels.tier: invalid type: map",
    ),
    (
        "chain:\n- name: a\n  image: a\n  resources:\n    limits:\n      cpu: lots\n",
        6,
        12,
        "chain[0].resources.limits.cpu: found lots, accepted a quantity",
    ),
    (
        "chain:\n- name: a\n  image: a\n  resources: {limits: {cpus: 1}}\n",
        4,
        24,
        "chain[0].resources.limits: found cpus",
    ),
    (
        "chain:\n- name: a\n  image: a\n  resources: {limit: {}}\n",
        4,
        15,
        "chain[0].resources: unknown key \"limit\"",
    ),
    (
        "chain:\n- name: a\n  image: a\n  resources:\n    requests: {memory: 1Gi}\n    limits: {memory: 512Mi}\n",
        5,
        5,
        "chain[0].resources: `requests.memory` is 1Gi, accepted at most `limits.memory` 512Mi",
    ),
    ("chain: []\n", 1, 8, "chain: found an empty list, accepted at least one auditor"),
    ("\nchain:\n", 2, 7, "chain: found an empty list"),
    ("chain: injection\n", 1, 8, "chain: invalid type: string \"injection\", expected a list of auditors"),
    (
        "chain: [injection]\n",
        1,
        9,
        "chain[0]: invalid type: string \"injection\", expected a map with the keys name",
    ),
    ("chains: []\n", 1, 1, "unknown key \"chains\", accepted chain, defaults"),
    ("{}\n", 1, 1, "`chain` is missing"),
    ("- name: a\n", 1, 1, "invalid type: sequence, expected a map with the keys chain, defaults"),
    ("", 1, 1, "`chain` is missing"),
    (
        "chain:\n- {name: a, image: a}\n---\nchain: []\n",
        4,
        1,
        "invalid type: map, expected a single YAML document",
    ),
    (
        "chain:\n- name: a\n  image: 'a\n",
        4,
        1,
        "found unexpected end of stream, while scanning a quoted scalar at line 3 column 10",
    ),
    ("\u{feff}chain:\n- name: a\n  image: ''\n", 3, 10, "chain[0].image: found nothing"),
    ("\u{feff}chains: []\n", 1, 1, "unknown key \"chains\", accepted chain, defaults"),
    ("---\n---\nchain: []\n", 3, 1, "invalid type: map, expected a single YAML document"),
    ("---\n", 2, 1, "`chain` is missing"),
    ("chain:\n- name: null\n  image: a\n", 2, 9, "chain[0].name: found nothing, accepted a DNS label"),
    ("chain:\n- name: a\n  image: ~\n", 3, 10, "chain[0].image: found nothing"),
    (
        "chain:\n- name: a\n  image: a\n  description:\n",
        2,
        3,
        "chain[0]: \"description\" has no value, accepted text (\"\" for an empty one)",
    ),
    ("chain:\n- {name: a, image: a, env: {B: x, A: ~}}\n", 2, 28, "chain[0].env: \"A\" has no value"),
    ("chain:\n- {name: a, image: a, env: {A: null}}\n", 2, 28, "chain[0].env: \"A\" has no value"),
    ("chain:\n- {name: a, image: a, env: {A: }}\n", 2, 28, "chain[0].env: \"A\" has no value"),
    ("chain:\n- {name: &n ~, image: a, env: {A: *n}}\n", 2, 10, "chain[0].name: found nothing"),
    ("chain:\n- {name: a, image: a, labels: {a: Null}}\n", 2, 31, "chain[0].labels: \"a\" has no value"),
    (
        "chain:\n- {name: a, image: a, labels: {~: a}}\n",
        2,
        32,
        "chain[0].labels: found nothing, accepted a name",
    ),
    (
        "chain:\n- {name: a, image: a, env: {null: a}}\n",
        2,
        29,
        "chain[0].env: found nothing, accepted a name",
    ),
    (
        "chain:\n- {name: a, image: a, resources: {limits: {cpu: }}}\n",
        2,
        43,
        "chain[0].resources.limits: \"cpu\" has no value",
    ),
    (
        "chain:\n- name: a\n  port: 1\n bad: x\n",
        4,
        2,
        "did not find expected key, while parsing a block mapping",
    ),
    ("chain:\n- name: *missing\n", 2, 9, "unknown anchor"),
];

#[test]
fn an_invalid_catalogue_is_rejected_with_origin_line_and_key() {
    assert_refused(REFUSED);
}

#[test]
fn a_catalogue_may_not_set_reserved_variables() {
    for name in RESERVED_ENV {
        let yaml = format!("chain: [{{name: a, image: a, env: {{{name}: x}}}}]");
        let error = Catalogue::parse("auditors.yaml", &yaml).unwrap_err();
        assert!(error.to_string().contains(&format!("found {name}, which Lucid sets itself")), "{error}");
    }
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
        ]
    );
}

#[test]
fn an_overlay_replaces_equivalent_entries_and_appends_others() {
    let own = Catalogue::parse(
        "auditors.yaml",
        "chain: [{name: pii, image: pii}, {name: lucid-injection-auditor, image: mine, port: 1}]",
    )
    .unwrap();
    let all = Catalogue::builtin().overlay(&own);
    let entries: Vec<_> = all.auditors().iter().map(|a| (a.name(), a.port().get())).collect();
    assert_eq!(
        entries,
        [
            ("lucid-guardrails-auditor", 8090),
            ("lucid-injection-auditor", 1),
            ("lucid-toxicity-auditor", 8093),
            ("pii", 8080),
        ]
    );
}

#[test]
fn short_names_are_equivalent() {
    let catalogue = Catalogue::builtin();
    for name in ["lucid-injection-auditor", "injection-auditor", "injection", " injection\n"] {
        assert_eq!(catalogue.resolve(name).unwrap().name(), "lucid-injection-auditor", "{name}");
    }
}

#[test]
fn an_unknown_name_is_reported_with_suggestions() {
    let catalogue = Catalogue::builtin();
    let long = "x".repeat(100_000);
    let cases = [
        ("injectoin", Some("lucid-injection-auditor")),
        ("lucid-toxcity-auditor", Some("lucid-toxicity-auditor")),
        ("guardrail", Some("lucid-guardrails-auditor")),
        ("pii", None),
        ("Injection", Some("lucid-injection-auditor")),
        ("LUCID-TOXICITY-AUDITOR", Some("lucid-toxicity-auditor")),
        ("", None),
        (&long, None),
    ];
    for (name, nearest) in cases {
        let unknown = catalogue.resolve(name).unwrap_err();
        assert_eq!(unknown.nearest.as_deref(), nearest, "{name}");
        assert_eq!(unknown.known.len(), 3);
        let message = unknown.to_string();
        assert_eq!(message.contains("did you mean"), nearest.is_some(), "{message}");
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
        let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap();
        assert_eq!(catalogue.auditors().len(), 1, "{yaml}");
    }
}

#[test]
fn an_auditor_is_found_by_its_image_and_by_the_name_of_its_container() {
    let digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let own = Catalogue::parse(
        "auditors.yaml",
        "chain: [{name: pii-2, image: Registry.example/pii:1}, {name: x, image: registry.example/pii}]",
    )
    .unwrap();
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
        ("pii", None),
        ("pii-3", None),
    ];
    for (name, expected) in names {
        assert_eq!(catalogue.auditor_of_container(name).map(|auditor| auditor.name()), expected, "{name}");
    }
    assert_eq!(own.auditors()[0].image_reference(), &"Registry.example/pii:1".parse().unwrap());
}

#[test]
fn an_overlay_finds_entries_of_all_layers_unless_replaced() {
    let parse = |yaml: &str| Catalogue::parse("auditors.yaml", yaml).unwrap();
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
fn two_entries_with_the_same_port_are_rejected() {
    assert_refused(&[
        (
            "chain:\n- name: a\n  image: a\n  port: 8090\n- name: b\n  image: b\n  port: 8090\n",
            7,
            9,
            "chain[1].port: found 8090, the port of a, accepted a port that no other entry has (a and b clash)",
        ),
        (
            "chain:\n- {name: a, image: a, port: 1}\n- {name: b, image: b}\n- {port: 001, name: c, image: c}\n",
            4,
            10,
            "chain[2].port: found 1, the port of a, accepted a port that no other entry has",
        ),
        (
            "chain:\n- {name: a, image: a, port: &p 8080}\n- {name: b, image: b, port: *p}\n",
            2,
            29,
            "chain[1].port: found 8080, the port of a, accepted a port that no other entry has (a and b clash)",
        ),
    ]);
}

#[test]
fn entries_without_a_port_never_conflict() {
    let yaml = "chain: [{name: a, image: a}, {name: b, image: b, port: 8080}, {name: c, image: c}]";
    let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap();
    assert!(catalogue.auditors().iter().all(|auditor| auditor.port().get() == 8080));
    // Entries of different files do not conflict either.
    let other = Catalogue::parse("auditors.yaml", "chain: [{name: d, image: d, port: 8080}]").unwrap();
    assert_eq!(catalogue.overlay(&other).auditors().len(), 4);
}
