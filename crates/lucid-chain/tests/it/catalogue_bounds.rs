//! Size limits of catalogues.

use lucid_chain::Catalogue;

use crate::common::{parsed, refusal};

#[test]
fn the_size_of_a_catalogue_is_bounded() {
    const ONE: &str = "chain: [{name: a, image: a}]";
    let filled = |bytes: usize| format!("{ONE}{}", " ".repeat(bytes - ONE.len()));
    assert!(Catalogue::parse("auditors.yaml", &filled(131_072)).is_ok());
    assert_eq!(
        refusal(&filled(131_073)),
        "auditors.yaml: line 1, column 1: expected at most 131072 bytes, found 131073"
    );

    let braces = |count: usize| format!("{ONE}#{}", "{[".repeat(count / 2 - 1));
    assert!(Catalogue::parse("auditors.yaml", &braces(4096)).is_ok());
    assert!(refusal(&braces(4098)).ends_with("expected '[' or '{' at most 4096 times, found 4098"));

    let entries = |count: usize| {
        let entries: Vec<_> = (0..count).map(|number| format!("{{name: a{number}, image: a}}")).collect();
        format!("chain: [{}]", entries.join(", "))
    };
    assert_eq!(parsed(&entries(128)).auditors().len(), 128);
    assert!(refusal(&entries(129)).ends_with("chain[128]: expected at most 128 entries, found more"));

    let with = |key: &str, members: &[(String, String)]| {
        let members: Vec<_> = members.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("chain: [{{name: a, image: a, {key}: {{{}}}}}]", members.join(", "))
    };
    let members = |count: usize, value: &str| -> Vec<_> {
        (0..count).map(|number| (format!("a.b/N{number}"), value.to_owned())).collect()
    };
    let variables = |count: usize, value: &str| -> Vec<_> {
        (0..count).map(|number| (format!("N{number}"), value.to_owned())).collect()
    };
    for (key, allowed, refused) in
        [("env", variables(64, "x"), variables(65, "x")), ("labels", members(64, "x"), members(65, "x"))]
    {
        assert!(Catalogue::parse("auditors.yaml", &with(key, &allowed)).is_ok(), "{key}");
        assert!(refusal(&with(key, &refused)).ends_with("expected at most 64 names, found more"), "{key}");
    }
    let limits = |count: usize| {
        with(
            "resources",
            &[(
                "limits".to_owned(),
                format!(
                    "{{{}}}",
                    members(count, "1")
                        .iter()
                        .map(|(name, value)| format!("{name}: {value}"))
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            )],
        )
    };
    assert!(Catalogue::parse("auditors.yaml", &limits(64)).is_ok());
    assert!(refusal(&limits(65)).ends_with("expected at most 64 names, found more"));

    let dropped = |count: usize| {
        let names = "ALL,".repeat(count);
        format!("chain: [{{name: a, image: a, securityContext: {{capabilities: {{drop: [{names}]}}}}}}]")
    };
    assert!(Catalogue::parse("auditors.yaml", &dropped(64)).is_ok());
    assert!(
        refusal(&dropped(65))
            .ends_with("securityContext.capabilities.drop[64]: expected at most 64 items, found more")
    );

    let probe = |bytes: usize| {
        format!("chain: [{{name: a, image: a, probes: {{readiness: {{path: /{}}}}}}}]", "x".repeat(bytes - 1))
    };
    assert!(Catalogue::parse("auditors.yaml", &probe(4096)).is_ok());
    assert!(refusal(&probe(4097)).contains("expected at most 4096 bytes in one value, found 4097"));

    assert!(Catalogue::parse("auditors.yaml", &with("env", &variables(1, &"x".repeat(4096)))).is_ok());
    assert!(
        refusal(&with("env", &variables(1, &"x".repeat(4097))))
            .contains("expected at most 4096 bytes in one value, found 4097")
    );
    assert!(Catalogue::parse("auditors.yaml", &with("env", &variables(4, &"x".repeat(4000)))).is_ok());
    assert!(
        refusal(&with("env", &variables(5, &"x".repeat(4000))))
            .contains("expected at most 16384 bytes in one entry, found more")
    );
}

#[test]
fn aliases_count_towards_the_size_of_an_entry() {
    let few = "chain: [{name: &n a, image: *n, description: *n, env: &e {A: x}, labels: *e}]";
    assert_eq!(parsed(few).auditors().len(), 1);

    let text = "x".repeat(4000);
    let uses: Vec<_> = (0..60).map(|number| format!("N{number}: *t")).collect();
    let many =
        format!("chain: [{{name: a, image: a, description: &t {text}, env: {{{}}}}}]", uses.join(", "));
    assert!(refusal(&many).contains("expected at most 16384 bytes in one entry, found more"));

    // Probe paths and profile names count towards the limit.
    let probes = "readiness: {path: *p}, liveness: {path: *p}, startup: {path: *p}";
    let paths = |bytes: usize, also: &str| {
        let path = "x".repeat(bytes);
        format!("chain: [{{name: a, image: a, env: {{A: &p /{path}}}, probes: {{{probes}}}{also}}}]")
    };
    assert!(Catalogue::parse("auditors.yaml", &paths(4000, "")).is_ok());
    let profile = ", securityContext: {appArmorProfile: {type: Localhost, localhostProfile: *p}}";
    assert!(refusal(&paths(4000, profile)).contains("expected at most 16384 bytes in one entry"));

    let map = "chain: [{name: a, image: a, env: &e {A: &t [x]}}, *e, *t]";
    assert!(refusal(map).contains("chain[0].env.A: invalid type: sequence"));
}

#[test]
fn worst_case_texts_are_rejected_quickly() {
    let aliases = |each: &str| format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(20_000), each.repeat(20_000));
    let texts = [
        "[".repeat(131_000),
        "[?".repeat(65_000),
        "{a: ".repeat(32_000),
        format!("{}{}", "[?".repeat(4096), "? ".repeat(60_000)),
        "- ".repeat(65_000),
        "? ".repeat(65_000),
        "a: ".repeat(40_000),
        "---\n".repeat(32_000),
        format!("chain: [{}]", "{},".repeat(40_000)),
        format!("chain: [{}]", "[],".repeat(40_000)),
        format!("chain: [&a {{name: a, image: a}}, {}]", "*a,".repeat(40_000)),
        aliases("*a,"),
        format!("chain: [{{name: a, image: a, probes: {{readiness: {}", "{path: ".repeat(4000)),
        format!("chain: [{{name: a, image: a, probes: {{readiness: {{path: {}", "[".repeat(4000)),
        format!(
            "chain: [{{name: a, image: a, securityContext: {{capabilities: {{drop: [{}",
            "&a ALL,".repeat(16_000)
        ),
        format!(
            "chain: [{{name: a, image: a, securityContext: {{capabilities: {{add: [{}]}}}}}}]",
            "&a [*a],".repeat(2000)
        ),
        format!("defaults: &d {{intercept: &i [{}]}}", "*i,".repeat(40_000)),
        format!("defaults: {{{}}}", "intercept: env,".repeat(8000)),
        format!("defaults: {{audit-mode: {}}}", "x".repeat(100_000)),
        format!(
            "chain: [{{name: a, image: a, probes: {{readiness: {{periodSeconds: {}}}}}}}]",
            "9".repeat(100_000)
        ),
        (0..20_000).map(|number| format!("&a{number} ")).collect(),
    ];
    for text in texts {
        let start = std::time::Instant::now();
        assert!(Catalogue::parse("auditors.yaml", &text).is_err());
        let taken = start.elapsed();
        // Each text takes milliseconds. Without the limits, some take minutes.
        assert!(taken.as_secs() < 20, "{taken:?} for {}", &text[..40]);
    }
}

#[test]
fn resources_that_the_api_server_rejects_are_rejected() {
    let accepted = [
        "{limits: {cpu: 1, example.com/gpu: 2}}",
        "{requests: {example.com/gpu: 2}, limits: {example.com/gpu: '2'}}",
        "{limits: {hugepages-2Mi: 4Mi, memory: 1Gi}}",
        "{requests: {cpu: 1, hugepages-1Gi: 1Gi}, limits: {hugepages-1Gi: 1024Mi}}",
        "{requests: {ephemeral-storage: 1Gi}}",
        "{limits: {sub.example.com/A_b.c-1: 0}}",
        "{requests: {cpu: 1}, limits: {cpu: 2}, min: {cpu: 1}, max: {cpu: 2}}",
        "{limits: {memory: 1Gi}, min: {memory: 1024Mi}, max: {memory: 1Gi}}",
        "{requests: {ephemeral-storage: 1Gi}, min: {ephemeral-storage: 0}, max: {ephemeral-storage: 1Gi}}",
    ];
    for resources in accepted {
        let yaml = format!("chain: [{{name: a, image: a, resources: {resources}}}]");
        assert!(Catalogue::parse("auditors.yaml", &yaml).is_ok(), "{resources}");
    }
    let names = "expected cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>";
    let long = format!("{{limits: {{example.com/{}: 1}}}}", "a".repeat(64));
    let far = format!("{{limits: {{{}.example.com/a: 1}}}}", vec!["a".repeat(63); 4].join("."));
    let refused = [
        ("{limits: {storage: 1}}", names),
        ("{limits: {/gpu: 1}}", names),
        ("{limits: {example.com/: 1}}", names),
        ("{limits: {Example.com/gpu: 1}}", names),
        ("{limits: {example..com/gpu: 1}}", names),
        ("{limits: {example.com/a/b: 1}}", names),
        ("{limits: {example.com/-gpu: 1}}", names),
        ("{limits: {example.com/gpu_: 1}}", names),
        ("{limits: {example.com/g pu: 1}}", names),
        ("{limits: {requests.example.com/gpu: 1}}", names),
        ("{limits: {kubernetes.io/gpu: 1}}", names),
        ("{limits: {a.kubernetes.io/gpu: 1}}", names),
        (&long, names),
        (&far, names),
        ("{limits: {hugepages-: 1, cpu: 1}}", names),
        ("{limits: {hugepages-big: 1, cpu: 1}}", names),
        ("{limits: {hugepages-0: 1, cpu: 1}}", names),
        ("{limits: {hugepages-1m: 1, cpu: 1}}", names),
        ("{limits: {hugepages-+2Mi: 2Mi, cpu: 1}}", names),
        (
            "{limits: {example.com/gpu: 500m}}",
            "`limits.example.com/gpu`: expected a whole number, found 500m",
        ),
        (
            "{requests: {example.com/gpu: 1}}",
            "`limits.example.com/gpu` is missing, expected 1, as in `requests.example.com/gpu`",
        ),
        (
            "{requests: {example.com/gpu: 1}, limits: {example.com/gpu: 2}}",
            "`requests.example.com/gpu`: expected `limits.example.com/gpu` 2, found 1",
        ),
        (
            "{limits: {hugepages-2Mi: 3Mi, cpu: 1}}",
            "`limits.hugepages-2Mi`: expected a multiple of the page size, found 3Mi",
        ),
        (
            "{requests: {hugepages-2Mi: 2Mi, cpu: 1}, limits: {hugepages-2Mi: 4Mi}}",
            "`requests.hugepages-2Mi`: expected `limits.hugepages-2Mi` 4Mi, found 2Mi",
        ),
        (
            "{requests: {cpu: 1}, min: {cpu: 1001m}}",
            "`min.cpu`: expected at most `requests.cpu` 1, found 1001m",
        ),
        ("{limits: {cpu: 1}, min: {cpu: 2}}", "`min.cpu`: expected at most `limits.cpu` 1, found 2"),
        (
            "{requests: {cpu: 1}, limits: {cpu: 2}, max: {cpu: 1}}",
            "`max.cpu`: expected at least `limits.cpu` 2, found 1",
        ),
        ("{requests: {cpu: 1}, max: {cpu: 0.5}}", "`max.cpu`: expected at least `requests.cpu` 1, found 0.5"),
        ("{requests: {cpu: 1}, min: {memory: 1}}", "`min.memory` bounds nothing, expected `requests.memory`"),
        ("{max: {memory: 1}}", "`max.memory` bounds nothing"),
        (
            "{limits: {example.com/gpu: 1}, min: {example.com/gpu: 1}}",
            "expected cpu, memory or ephemeral-storage, found",
        ),
        ("{requests: {cpu: 1}, min: {cpu: x}}", "min.cpu: expected a quantity"),
        ("{limits: {hugepages-2Mi: 2Mi}}", "expected cpu or memory besides hugepages-2Mi, found neither"),
    ];
    for (resources, problem) in refused {
        let message = refusal(&format!("chain: [{{name: a, image: a, resources: {resources}}}]"));
        assert!(message.contains(problem), "{resources}: {message}");
    }
}

#[test]
fn malformed_text_is_rejected() {
    let texts = [
        "\0".to_owned(),
        "chain: [{name: a, image: a}]\0".to_owned(),
        "defaults: {intercept: \"env\\0\"}".to_owned(),
        "chain: [{name: a, image: a, probes: {readiness: {path: \"/\\0\"}}}]".to_owned(),
        "chain: [{name: a, image: a, securityContext: {appArmorProfile: {type: Localhost, localhostProfile: \"a\\0\"}}}]".to_owned(),
        "\u{1b}[2J".to_owned(),
        "defaults: {\u{202e}: env}".to_owned(),
        "defaults: !!binary {}\0".to_owned(),
        format!("defaults: {{intercept: env}}#{}", "x".repeat(256 * 1024)),
    ];
    for text in texts {
        let message = refusal(&text);
        assert!(message.len() < 500 && !message.chars().any(char::is_control), "{message:?}");
    }
}
