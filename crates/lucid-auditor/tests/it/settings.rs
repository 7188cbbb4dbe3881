//! Settings from environment variables.

use std::num::NonZeroU16;
use std::time::Duration;

use lucid_auditor::{AuditMode, Auditor, OnFailure, SettingError, Settings, Unjudged};

fn settings(variables: &[(&str, &str)]) -> Result<Settings, SettingError> {
    let auditor = Auditor::from_variables(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    });
    Ok(auditor?.settings().clone())
}

#[test]
fn lucids_variables_are_parsed() {
    let settings = settings(&[
        ("LUCID_AUDITOR_ID", "lucid-injection-auditor"),
        ("LUCID_CHAIN_NEXT", "http://localhost:8093"),
        ("LUCID_AUDITOR_PORT", "8090"),
        ("LUCID_AUDIT_MODE", "observe"),
        ("LUCID_AUDIT_FAILURE", "allow"),
        ("LUCID_AUDIT_TIMEOUT_MS", "1500"),
        ("LUCID_PROBE_PATHS", "/health,/ready"),
    ])
    .unwrap();
    assert_eq!((settings.id.as_str(), settings.port), ("lucid-injection-auditor", 8090));
    assert_eq!((settings.next.as_str(), settings.mode), ("localhost:8093", AuditMode::Observe));
    assert_eq!(settings.on_failure, Some(OnFailure::Allow));
    assert_eq!(settings.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(settings.probe_paths, ["/health", "/ready"]);
}

#[test]
fn older_names_are_read_and_other_settings_have_defaults() {
    let settings = settings(&[("AUDITOR_URL", "http://localhost:5000/"), ("PORT", "8093")]).unwrap();
    assert_eq!((settings.next.as_str(), settings.port), ("localhost:5000", 8093));
    assert_eq!((settings.mode, settings.max_bytes), (AuditMode::Enforce, 1 << 20));
    assert_eq!((settings.on_failure, settings.timeout), (None, None));
    assert_eq!(settings.lame_duck, Duration::from_secs(10));
    assert_eq!((settings.metrics_port, settings.unjudged), (NonZeroU16::new(18093), Unjudged::Refuse));
}

#[test]
fn invalid_settings_name_variable_value_and_expected_values() {
    let next = ("LUCID_CHAIN_NEXT", "http://localhost:5000");
    for (variables, told) in [
        (&[][..], "LUCID_CHAIN_NEXT: expected http://HOST:PORT, found nothing"),
        (&[("LUCID_CHAIN_NEXT", "https://model")], "found https://model"),
        (&[("LUCID_CHAIN_NEXT", "localhost:5000")], "found localhost:5000"),
        (&[next, ("PORT", "0")], "PORT: expected a port from 1 to 65535, found 0"),
        (
            &[next, ("LUCID_AUDITOR_PORT", "x")],
            "LUCID_AUDITOR_PORT: expected a port from 1 to 65535, found x",
        ),
        (&[next, ("LUCID_AUDIT_MODE", "off")], "expected enforce or observe, found off"),
        (&[next, ("LUCID_AUDIT_FAILURE", "pass")], "LUCID_AUDIT_FAILURE: expected deny or allow, found pass"),
        (
            &[next, ("LUCID_AUDIT_TIMEOUT_MS", "0")],
            "LUCID_AUDIT_TIMEOUT_MS: expected a number of milliseconds above 0, found 0",
        ),
        (&[next, ("LUCID_AUDIT_TIMEOUT_MS", "5s")], "expected a number of milliseconds above 0, found 5s"),
        (&[next, ("LUCID_UNJUDGED", "on")], "LUCID_UNJUDGED: expected refuse or pass, found on"),
        (&[next, ("MAX_BODY_BYTES", "-1")], "MAX_BODY_BYTES: expected a number of bytes, found -1"),
        (&[next, ("MAX_BODY_BYTES", "0")], "MAX_BODY_BYTES: expected a number of bytes, found 0"),
        (&[next, ("LAME_DUCK_SECONDS", "10s")], "LAME_DUCK_SECONDS: expected 0 to 65535, found 10s"),
    ] {
        let message = settings(variables).unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn routes_forward_to_ports_on_localhost_and_default_to_one() {
    let first = [("LUCID_CHAIN_NEXT", "http://127.0.0.1:8093"), ("LUCID_AUDITOR_PORT", "8090")];
    let eight: Vec<_> = (1..8).map(|port| format!("{}=500{port}", 9000 + port)).collect();
    let eight = format!("8090=8093,{}", eight.join(","));
    for (routes, expected) in [
        ("", vec![(8090, "127.0.0.1:8093")]),
        ("8090=8093", vec![(8090, "127.0.0.1:8093")]),
        ("8090=8093,8091=8094", vec![(8090, "127.0.0.1:8093"), (8091, "localhost:8094")]),
        (&eight, {
            let others = ["localhost:5001", "localhost:5002", "localhost:5003", "localhost:5004"];
            let more = ["localhost:5005", "localhost:5006", "localhost:5007"];
            let others = (9001..).zip(others.into_iter().chain(more));
            [(8090, "127.0.0.1:8093")].into_iter().chain(others).collect()
        }),
    ] {
        let settings = settings(&[&first[..], &[("LUCID_ROUTES", routes)]].concat()).unwrap();
        let found: Vec<_> = settings.routes.iter().map(|route| (route.port, route.next.as_str())).collect();
        assert_eq!(found, expected, "{routes}");
        assert_eq!((settings.port, settings.next.as_str()), expected[0]);
    }
}

#[test]
fn invalid_routes_are_refused_with_the_expected_value() {
    let pairs = "PORT=NEXT_PORT, with commas between pairs";
    let first = "8090=5000 first, the ports of LUCID_AUDITOR_PORT and LUCID_CHAIN_NEXT";
    let nine = "8090=5000,2=12,3=13,4=14,5=15,6=16,7=17,8=18,9=19";
    for (routes, expected) in [
        ("x", pairs),
        (" ", pairs),
        (",", pairs),
        ("8090", pairs),
        ("8090=", pairs),
        ("=5000", pairs),
        ("8090=5000,", pairs),
        ("8090=5000;8091=5001", pairs),
        ("8090=5000, 8091=5001", pairs),
        ("8090=5000,8091=5001=5002", pairs),
        ("8090=http://localhost:5000", pairs),
        ("8090:5000", pairs),
        ("+8090=5000", pairs),
        ("08090=5000", pairs),
        ("8090=5000,0=5001", pairs),
        ("8090=5000,8091=0", pairs),
        ("8090=5000,8091=65536", pairs),
        ("8090=5000,8091=-1", pairs),
        (nine, "at most 8 pairs"),
        ("8090=5000,8090=5001", "port 8090 once"),
        ("8090=5000,8090=5000", "port 8090 once"),
        ("8090=5000,8091=5000", "port 5000 once"),
        ("8090=5000,8091=8091", "port 8091 once"),
        ("8090=5000,8091=8090", "port 8090 once"),
        ("8091=5001", first),
        ("8090=5001", first),
        ("8091=5000", first),
        ("8091=5001,8090=5000", first),
    ] {
        let variables = [
            ("LUCID_CHAIN_NEXT", "http://localhost:5000"),
            ("LUCID_AUDITOR_PORT", "8090"),
            ("LUCID_ROUTES", routes),
        ];
        let message = settings(&variables).unwrap_err().to_string();
        assert_eq!(message, format!("LUCID_ROUTES: expected {expected}, found {routes}"));
    }
    let variables = [("AUDITOR_URL", "http://model"), ("PORT", "8090"), ("LUCID_ROUTES", "8090=81")];
    let message = settings(&variables).unwrap_err().to_string();
    assert!(message.contains("expected 8090=80 first"), "{message}");
}
