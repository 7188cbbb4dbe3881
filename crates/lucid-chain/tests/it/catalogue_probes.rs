//! The `probes` of a catalogue entry.

use lucid_chain::{Probe, Probes};
use serde_json::json;

use crate::common::{auditor, refusal_of};

#[test]
fn an_entry_has_only_the_written_probes() {
    for nothing in ["description: x", "probes: {}", "probes: "] {
        assert_eq!(auditor(nothing).probes(), &Probes::default(), "{nothing}");
    }
    let probes = auditor("probes: {readiness: {}}").probes().clone();
    assert_eq!(probes.readiness, Some(Probe::default()));
    assert_eq!((probes.liveness, probes.startup), (None, None));
}

#[test]
fn every_field_of_a_probe_can_be_written() {
    let entry = auditor(
        "probes: {
            readiness: {path: /ready?full=1, initialDelaySeconds: 1, periodSeconds: 2, timeoutSeconds: 3,
                        successThreshold: 4, failureThreshold: 5},
            liveness: {initialDelaySeconds: 0, periodSeconds: 2147483647, successThreshold: 1},
            startup: {failureThreshold: '600'}}",
    );
    let Probes { readiness: Some(readiness), liveness: Some(liveness), startup: Some(startup), .. } =
        entry.probes().clone()
    else {
        panic!("{entry:?}")
    };
    let port = 8093.try_into().unwrap();
    assert_eq!(
        readiness.manifest(port),
        json!({
            "httpGet": {"path": "/ready?full=1", "port": 8093, "scheme": "HTTP"},
            "initialDelaySeconds": 1,
            "periodSeconds": 2,
            "timeoutSeconds": 3,
            "successThreshold": 4,
            "failureThreshold": 5,
        })
    );
    assert_eq!((liveness.path.as_str(), liveness.period_seconds), ("/health", 2_147_483_647));
    assert_eq!((startup.failure_threshold, startup.period_seconds), (600, 1));
}

#[test]
fn omitted_probe_fields_have_api_server_defaults() {
    let port = 8090.try_into().unwrap();
    let filled_in = json!({
        "httpGet": {"path": "/health", "port": 8090, "scheme": "HTTP"},
        "periodSeconds": 10,
        "timeoutSeconds": 1,
        "successThreshold": 1,
        "failureThreshold": 3,
    });
    let probes = auditor("probes: {readiness: {}, liveness: {}, startup: {}}").probes().clone();
    assert_eq!(probes.readiness.unwrap().manifest(port), filled_in);
    assert_eq!(probes.liveness.unwrap().manifest(port), filled_in);
    // The startup probe polls often, to start applications early, and allows enough time.
    let startup = probes.startup.unwrap();
    assert_eq!(startup, Probe::default_startup());
    assert_eq!((startup.period_seconds, startup.failure_threshold), (1, 120));
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
            let accepted = match (probe, field) {
                ("liveness" | "startup", "successThreshold") => "1".to_owned(),
                _ => format!("{least} to {most}"),
            };
            for value in ["-1", "2147483648", "1s", "1.0", "0x1", "many"] {
                cases.push((
                    format!("probes: {{{probe}: {{{field}: {value}}}}}"),
                    probe,
                    field,
                    value,
                    accepted.clone(),
                ));
            }
            if least == 1 {
                cases.push((
                    format!("probes: {{{probe}: {{{field}: 0}}}}"),
                    probe,
                    field,
                    "0",
                    accepted.clone(),
                ));
            }
            auditor(&format!("probes: {{{probe}: {{{field}: {least}}}}}"));
        }
    }
    for (members, probe, field, value, accepted) in cases {
        assert_eq!(
            refusal_of(&members),
            format!("probes.{probe}.{field}: found {value}, accepted {accepted}")
        );
    }
    assert!(
        refusal_of("probes: {readiness: {periodSeconds: }}")
            .ends_with("found nothing, accepted 1 to 2147483647")
    );
    for path in ["", "health", "' /health'", "'/a b'", "/é", "\"/a\\n\"", "\"/\\0\"", "http://other/health"]
    {
        let problem = refusal_of(&format!("probes: {{readiness: {{path: {path}}}}}"));
        assert!(problem.starts_with("probes.readiness.path: found "), "{problem}");
        assert!(
            problem.ends_with(
                "accepted a path such as /health: it starts with '/' and holds visible ASCII characters"
            ),
            "{problem}"
        );
    }
}
