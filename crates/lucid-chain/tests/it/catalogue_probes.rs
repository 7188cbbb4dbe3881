//! The `probes` of a catalogue entry.

use serde_json::{Value, json};

use crate::common::{auditor, manifest, refusal_of};

/// Returns the readiness, liveness and startup probe of an entry with `members`.
fn probes(members: &str) -> [Value; 3] {
    let mut manifest = manifest(members);
    ["readinessProbe", "livenessProbe", "startupProbe"].map(|key| manifest[key].take())
}

fn default() -> Value {
    json!({
        "httpGet": {"path": "/health", "port": 8080, "scheme": "HTTP"},
        "periodSeconds": 10,
        "timeoutSeconds": 1,
        "successThreshold": 1,
        "failureThreshold": 3,
    })
}

fn probe(fields: Value) -> Value {
    let mut probe = default();
    json_patch::merge(&mut probe, &fields);
    probe
}

#[test]
fn an_entry_has_only_the_probes_it_contains() {
    for nothing in ["description: x", "probes: {}", "probes: "] {
        assert_eq!(probes(nothing), [Value::Null, Value::Null, Value::Null], "{nothing}");
    }
    assert_eq!(probes("probes: {readiness: {}}"), [default(), Value::Null, Value::Null]);
}

#[test]
fn every_field_of_a_probe_can_be_written() {
    let found = probes(
        "probes: {
            readiness: {path: /ready?full=1, initialDelaySeconds: 1, periodSeconds: 2, timeoutSeconds: 3,
                        successThreshold: 4, failureThreshold: 5},
            liveness: {initialDelaySeconds: 0, periodSeconds: 2147483647, successThreshold: 1},
            startup: {failureThreshold: '600'}}",
    );
    let readiness = json!({
        "httpGet": {"path": "/ready?full=1", "port": 8080, "scheme": "HTTP"},
        "initialDelaySeconds": 1,
        "periodSeconds": 2,
        "timeoutSeconds": 3,
        "successThreshold": 4,
        "failureThreshold": 5,
    });
    let liveness = probe(json!({"periodSeconds": 2_147_483_647}));
    let startup = probe(json!({"failureThreshold": 600, "periodSeconds": 1}));
    assert_eq!(found, [readiness, liveness, startup]);
}

#[test]
fn omitted_probe_fields_have_api_server_defaults() {
    // The startup probe polls often, to start applications early, and allows enough time.
    let startup = probe(json!({"failureThreshold": 120, "periodSeconds": 1}));
    let found = probes("probes: {readiness: {}, liveness: {}, startup: {}}");
    assert_eq!(found, [default(), default(), startup]);
}

#[test]
fn probes_that_the_api_server_rejects_are_rejected() {
    let most = "2147483647";
    let mut cases = Vec::new();
    for probe in ["readiness", "liveness", "startup"] {
        for (field, least) in [
            ("initialDelaySeconds", 0),
            ("periodSeconds", 1),
            ("timeoutSeconds", 1),
            ("failureThreshold", 1),
            ("successThreshold", 1),
        ] {
            let expected = match (probe, field) {
                ("liveness" | "startup", "successThreshold") => "1".to_owned(),
                _ => format!("{least} to {most}"),
            };
            for value in ["-1", "2147483648", "1s", "1.0", "0x1", "many"] {
                cases.push((
                    format!("probes: {{{probe}: {{{field}: {value}}}}}"),
                    probe,
                    field,
                    value,
                    expected.clone(),
                ));
            }
            if least == 1 {
                cases.push((
                    format!("probes: {{{probe}: {{{field}: 0}}}}"),
                    probe,
                    field,
                    "0",
                    expected.clone(),
                ));
            }
            auditor(&format!("probes: {{{probe}: {{{field}: {least}}}}}"));
        }
    }
    for (members, probe, field, value, expected) in cases {
        assert_eq!(
            refusal_of(&members),
            format!("probes.{probe}.{field}: expected {expected}, found {value}")
        );
    }
    assert!(
        refusal_of("probes: {readiness: {periodSeconds: }}")
            .ends_with("expected 1 to 2147483647, found nothing")
    );
    for path in ["", "health", "' /health'", "'/a b'", "/é", "\"/a\\n\"", "\"/\\0\"", "http://other/health"]
    {
        let problem = refusal_of(&format!("probes: {{readiness: {{path: {path}}}}}"));
        let expected = "probes.readiness.path: \
                        expected a path such as /health: it starts with '/' and holds visible ASCII characters, found ";
        assert!(problem.starts_with(expected), "{problem}");
    }
}
