//! Chains for outbound traffic end in lucid-egress.

use crate::common::*;
use lucid_chain::{
    AllowedHosts, Catalogue, Configuration, Decision, Egress, ImpossibleReason, Inputs, Plan, PodView,
    Upstream, keys,
};
use serde_json::{Value, json};

fn outbound(annotations: Value) -> Value {
    let mut all = json!({keys::DIRECTION: "outbound"});
    for (key, value) in annotations.as_object().unwrap() {
        all[key] = value.clone();
    }
    pod(all, &[8000])
}

fn plan_in(pod: &Value, configuration: &Configuration) -> Plan {
    planned_by(outcome_in(pod, configuration, None))
}

fn refusal_in(pod: &Value, configuration: &Configuration) -> ImpossibleReason {
    match outcome_in(pod, configuration, None).decision {
        Decision::Impossible { reason } => reason,
        other => panic!("{other:?}"),
    }
}

fn egress_of(plan: &Plan) -> Egress {
    let json = variable(&plan.containers.last().unwrap().manifest(), keys::EGRESS_ENV).unwrap();
    Egress::from_json(&json).unwrap()
}

#[test]
fn the_last_hop_has_its_own_uid_and_is_hardened_like_an_auditor() {
    let plan = plan_in(&outbound(json!({})), &with_rules());
    let [first, _, egress] = &plan.containers[..] else { panic!("{plan:?}") };
    assert_eq!(egress.name, "lucid-egress");
    assert_eq!((egress.uid, egress.port.get()), (Some(20003), 8083));
    let (first, egress) = (first.manifest(), egress.manifest());
    let mut context = egress["securityContext"].clone();
    context["runAsUser"] = first["securityContext"]["runAsUser"].clone();
    assert_eq!(context, first["securityContext"]);
    assert_eq!(egress["volumeMounts"], first["volumeMounts"]);
    let settings =
        egress["env"].as_array().unwrap().iter().find(|it| it["name"] == keys::EGRESS_ENV).unwrap();
    assert_eq!(settings["value"], r#"{"intake":8084,"first":8081,"exit":8083,"model":5000}"#);
}

#[test]
fn all_redirected_calls_enter_at_the_intake() {
    let redirect = redirect_of(&plan_in(&outbound(json!({})), &with_rules()));
    assert_eq!(
        redirect.to_json(),
        r#"{"version":1,"chain":[{"uid":20003,"port":8084},{"uid":20001,"port":8081},{"uid":20002,"port":8082}],"model":5000,"inbound":false,"outbound":[8000],"exit":8083}"#
    );
    assert_eq!(lucid_chain::redirect::Redirect::from_json(&redirect.to_json()), Ok(redirect.clone()));
    let script = redirect.nft_script();
    for rule in [
        // The exit is for the last auditor alone, the first auditor and the model for lucid-egress.
        "oifname \"lo\" meta skuid 20002 tcp dport { 8082, 8083 } return",
        "oifname \"lo\" meta skuid 20003 tcp dport { 5000, 8081 } return",
        "oifname \"lo\" tcp dport { 5000, 8081, 8082, 8083 } redirect to :8084",
        "meta skuid { 20001, 20002, 20003 } return",
        "oifname != \"lo\" tcp dport 8000 redirect to :8084",
    ] {
        assert!(script.contains(rule), "{rule} is not in\n{script}");
    }
}

#[test]
fn chains_end_at_the_model_unless_outbound_is_redirected() {
    for (direction, configuration) in
        [("inbound", with_rules()), ("both", builtin()), ("outbound", builtin())]
    {
        let pod = pod(json!({keys::DIRECTION: direction, keys::TARGET_PORT: "5000"}), &[8000]);
        let plan = plan_in(&pod, &configuration);
        assert!(plan.containers.iter().all(|planned| !planned.is_egress()), "{direction}");
    }
}

#[test]
fn an_upstream_sets_the_base_urls_of_sdks() {
    for configuration in [with_rules(), builtin()] {
        let mut pod = outbound(json!({keys::UPSTREAM: "https://api.example.com/v1/"}));
        pod["spec"]["containers"][0]["env"] =
            json!([{"name": "ANTHROPIC_BASE_URL", "value": "https://own.example"}]);
        let warnings = patch_warnings(&patch_in(&pod, &configuration));
        assert!(
            warnings
                .iter()
                .any(|it| it.contains("sets ANTHROPIC_BASE_URL itself") && it.contains("localhost:8081")),
            "{warnings:?}"
        );
        let patched = injected_with(&pod, &configuration);
        assert_eq!(
            patched["spec"]["containers"][0]["env"],
            json!([
                {"name": "ANTHROPIC_BASE_URL", "value": "https://own.example"},
                {"name": "AUDITOR_URL", "value": "http://localhost:8081"},
                {"name": "OPENAI_BASE_URL", "value": "http://localhost:8081/v1"},
            ])
        );
        let upstream = egress_of(&plan_in(&pod, &configuration)).upstream.clone();
        assert_eq!(upstream.unwrap().to_string(), "https://api.example.com/v1");
        let removed = lucid_chain::uninject(&patched);
        assert_eq!(apply(&patched, &removed), pod);
    }
}

#[test]
fn the_defaults_of_a_catalogue_set_upstream_and_allowed_hosts() {
    let yaml = "defaults: {direction: outbound, upstream: 'http://llm.models.svc', allowed-hosts: '*.models.svc, 10.0.0.0/8'}";
    let configuration = configured(yaml, &["injection"]);
    let plan = plan_in(&pod(json!({}), &[8000]), &configuration);
    let egress = egress_of(&plan);
    assert_eq!(egress.upstream.as_ref().unwrap().to_string(), "http://llm.models.svc");
    assert_eq!(egress.allowed_hosts.as_ref().unwrap().to_string(), "*.models.svc, 10.0.0.0/8");
    // An annotation takes precedence.
    let annotated = pod(json!({keys::UPSTREAM: "http://other.models.svc:81"}), &[8000]);
    assert_eq!(
        setting(&plan_in(&annotated, &configuration), "OPENAI_BASE_URL"),
        "http://localhost:8081 (address of the first auditor)"
    );
    let plan = plan_in(&annotated, &configuration);
    assert_eq!(egress_of(&plan).upstream.as_ref().unwrap().to_string(), "http://other.models.svc:81");
    // The namespace's annotation is in between.
    let of_namespace = settings([(keys::UPSTREAM, " http://namespace.models.svc ")]);
    assert!(of_namespace.problems().is_empty());
    for (pod, expected) in
        [(pod(json!({}), &[8000]), "http://namespace.models.svc"), (annotated, "http://other.models.svc:81")]
    {
        let json = pod.to_string();
        let inputs = Inputs { settings: &of_namespace, ..Inputs::new(&configuration) };
        let plan = planned_by(lucid_chain::plan(&PodView::from_json(&json).unwrap(), &inputs));
        assert!(setting(&plan, "upstream").starts_with(&format!("{expected} (")));
    }
    let invalid = settings([(keys::UPSTREAM, "namespace")]);
    assert!(invalid.problems()[0].contains("an http or https URL without user"), "{invalid:?}");
    // An invalid one is ignored.
    let invalid = outcome_in(&pod(json!({keys::UPSTREAM: "llm"}), &[8000]), &configuration, None);
    assert!(warnings(&invalid)[0].contains("expected an http or https URL"), "{:?}", warnings(&invalid));
}

#[test]
fn traffic_without_a_destination_is_refused_with_a_reason() {
    assert_eq!(refusal_in(&outbound(json!({})), &builtin()), ImpossibleReason::NoDestination);
    let both = json!({keys::DIRECTION: "both", keys::UPSTREAM: "http://llm", keys::TARGET_PORT: "5000"});
    let reason = refusal_in(&pod(both.clone(), &[5000]), &builtin());
    assert_eq!(reason, ImpossibleReason::AmbiguousDestination { upstream: "http://llm".to_owned() });
    plan_in(&pod(both, &[5000]), &with_rules());

    let listed = json!({keys::UPSTREAM: "http://llm", keys::ALLOWED_HOSTS: "*.models.svc"});
    let reason = refusal_in(&outbound(listed), &with_rules());
    assert!(reason.to_string().contains("http://llm"), "{reason}");
    assert_eq!(reason.reason(), "UpstreamNotAllowed");
}

#[test]
fn an_upstream_in_the_pod_is_refused_from_every_source() {
    let refused = |pod: &Value, configuration: &Configuration, upstream: &str| {
        let reason = refusal_in(pod, configuration);
        assert_eq!(reason.reason(), "UpstreamInPod", "{reason}");
        assert!(
            reason.to_string().contains(upstream) && reason.to_string().contains(keys::TARGET_PORT),
            "{reason}"
        );
    };
    for upstream in [
        "http://localhost:8081",
        "https://localhost",
        "http://api.localhost:9000",
        "http://127.8.8.8:9000",
        "http://[::1]:8082",
        "http://[::ffff:127.0.0.1]:8082",
        "http://0.0.0.0:8081",
        "http://[::]:8081",
        "http://web:8081",
        "http://alias.example:8081",
    ] {
        let mut pod = outbound(json!({keys::UPSTREAM: upstream}));
        pod["metadata"]["name"] = json!("web");
        pod["spec"]["hostAliases"] = json!([{"ip": "127.0.0.1", "hostnames": ["Alias.example"]},
            {"ip": "10.0.0.1", "hostnames": ["other.example"]}]);
        for configuration in [with_rules(), builtin()] {
            refused(&pod, &configuration, upstream);
        }
        pod["metadata"]["annotations"][keys::UPSTREAM] = json!("http://other.example:8081");
        plan_in(&pod, &with_rules());
    }

    let yaml = "defaults: {direction: outbound, upstream: 'http://localhost:8081'}";
    refused(&pod(json!({}), &[8000]), &configured(yaml, &["injection"]), "http://localhost:8081");
    let namespace = settings([(keys::UPSTREAM, "http://localhost:8081")]);
    let (json, configuration) = (outbound(json!({})).to_string(), with_rules());
    let inputs = Inputs { settings: &namespace, ..Inputs::new(&configuration) };
    let outcome = lucid_chain::plan(&PodView::from_json(&json).unwrap(), &inputs);
    assert!(
        matches!(&outcome.decision, Decision::Impossible { reason } if reason.reason() == "UpstreamInPod"),
        "{:?}",
        outcome.decision
    );
    // Inbound traffic has no upstream.
    plan_in(&pod(json!({keys::UPSTREAM: "http://localhost:8081"}), &[5000]), &with_rules());
}

#[test]
fn an_upstream_that_no_connection_reaches_is_refused() {
    for upstream in [
        "https://[fe80::1]",
        "http://[febf::1]:8000/v1",
        "http://[ff02::1]",
        "http://[::ffff:224.0.0.1]",
        "http://239.1.2.3:8000",
        "http://255.255.255.255",
    ] {
        for configuration in [with_rules(), builtin()] {
            let reason = refusal_in(&outbound(json!({keys::UPSTREAM: upstream})), &configuration);
            assert_eq!(reason.reason(), "UpstreamUnreachable", "{reason}");
            assert!(reason.to_string().contains(upstream), "{reason}");
        }
    }
    for upstream in ["http://169.254.20.10:8000", "https://[fd00::1]", "http://[fec0::1]"] {
        plan_in(&outbound(json!({keys::UPSTREAM: upstream})), &with_rules());
    }
}

#[test]
fn the_egress_entry_pins_the_image_and_is_not_an_auditor() {
    let image = format!("registry.example/lucid-egress@sha256:{}", "e".repeat(64));
    let configuration =
        configured(&format!("chain: [{{name: lucid-egress, image: \"{image}\"}}]"), &["injection"]);
    let plan = plan_in(&outbound(json!({})), &configuration);
    assert_eq!(plan.containers[1].auditor.image(), image);
    assert_eq!(plan.containers[1].auditor.description(), "Forwards outbound traffic to its destination");
    let named = outcome_in(&outbound(json!({keys::AUDITORS: "egress"})), &configuration, None);
    assert!(warnings(&named)[0].contains("unknown auditor"), "{:?}", warnings(&named));
    let reference = "registry.example/lucid-egress:1".parse().unwrap();
    assert_eq!(configuration.catalogue().auditor_of_image(&reference).unwrap().name(), "lucid-egress");
    assert!(Catalogue::builtin().auditor_of_container("lucid-egress").is_some());
}

#[test]
fn a_configured_image_replaces_only_the_default_one() {
    let image = "registry.example/lucid-egress:2".parse().unwrap();
    let catalogue = Catalogue::builtin().with_egress_image(&image);
    assert_eq!(catalogue.egress().unwrap().image(), image.to_string());
    assert_eq!(catalogue.auditors(), Catalogue::builtin().auditors());
    assert_eq!(catalogue.resolve("injection").unwrap().name(), "lucid-injection-auditor");
    assert_eq!(catalogue.auditor_of_image(&image).unwrap().name(), "lucid-egress");
    let other = "other.example/lucid-egress:1".parse().unwrap();
    assert_eq!(catalogue.with_egress_image(&other).egress().unwrap().image(), other.to_string());

    let entry = |rest: &str| {
        let yaml = format!("chain: [{{name: lucid-egress, {rest}}}]");
        let own = Catalogue::parse("auditors.yaml", &yaml).unwrap();
        Catalogue::builtin().overlay(&own).with_egress_image(&image).egress().unwrap().clone()
    };
    let inherited = entry("env: {LUCID_UPSTREAM_CA: pem}");
    assert_eq!((inherited.image(), inherited.variables().count()), (&*image.to_string(), 1));
    assert_eq!(entry("image: r.example/egress:1").image(), "r.example/egress:1");
}

#[test]
fn hosts_are_allowed_by_name_and_by_address() {
    let hosts: AllowedHosts =
        "llm.models.svc:8000, *.Example.com 10.0.0.0/8,fd00::/8, 192.0.2.1".parse().unwrap();
    for (host, port, allowed) in [
        ("llm.models.svc", 8000, true),
        ("LLM.models.svc.", 8000, true),
        ("llm.models.svc", 80, false),
        ("api.example.com", 1, true),
        ("example.com", 1, false),
        ("badexample.com", 1, false),
        ("10.0.0.1", 8000, false),
    ] {
        assert_eq!(hosts.allow_name(host, port), allowed, "{host}:{port}");
    }
    for (address, allowed) in [
        ("10.255.0.1", true),
        ("11.0.0.1", false),
        ("192.0.2.1", true),
        ("192.0.2.2", false),
        ("fd12::1", true),
        ("fe80::1", false),
        ("::ffff:10.0.0.1", true),
    ] {
        assert_eq!(hosts.allow_address(address.parse().unwrap()), allowed, "{address}");
    }
    for invalid in ["", " , ", "a..b", "*", "*.", "a*.b", "10.0.0.0/33", "a:0", "a:b", "http://a", "[::1"] {
        assert!(invalid.parse::<AllowedHosts>().is_err(), "{invalid:?}");
    }
}

#[test]
fn an_upstream_is_an_http_url() {
    for (text, origin, path) in [
        ("https://api.example.com", "https://api.example.com", ""),
        ("HTTP://LLM:8000/V1/", "http://llm:8000", "/V1"),
        ("http://[fd00::1]:81/a/b", "http://[fd00::1]:81", "/a/b"),
    ] {
        let upstream: Upstream = text.parse().unwrap();
        assert_eq!((upstream.origin(), upstream.path()), (origin, path));
    }
    for invalid in [
        "",
        "llm",
        "ftp://a",
        "https://",
        "https://me@a",
        "https://a?b",
        "https://a/#b",
        "https://a/$(B)",
        "http://a:0",
    ] {
        assert!(invalid.parse::<Upstream>().is_err(), "{invalid:?}");
    }
}
