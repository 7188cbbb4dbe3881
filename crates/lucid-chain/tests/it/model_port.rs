//! The model's port.

use crate::common::*;
use lucid_chain::{ModelPortSource, keys};
use serde_json::{Value, json};

#[test]
fn the_model_port_comes_from_the_first_source() {
    let container = || "web".to_owned();
    let named = |name| ModelPortSource::NamedPort { container: container(), name };
    let assumed = "no declared port tells where the model listens; 5000 is assumed: set the annotation lucid.computing/target-port";
    let http = json!({"name": "http", "containerPort": 80});
    let model = json!({"name": "model", "containerPort": 81});
    let other = json!({"containerPort": 82});
    let default = json!({"containerPort": 5000});
    let udp = json!({"name": "model", "containerPort": 83, "protocol": "UDP"});
    let cases = [
        (Some("9"), Some(7), json!([model]), 7, ModelPortSource::Operator, None),
        (Some("9"), None, json!([model]), 9, ModelPortSource::Annotation, None),
        (None, None, json!([other, http, model]), 81, named("model"), None),
        (None, None, json!([other, http]), 80, named("http"), None),
        (None, None, json!([other]), 82, ModelPortSource::OnlyPort { container: container() }, None),
        (
            None,
            None,
            json!([other, other, udp]),
            82,
            ModelPortSource::OnlyPort { container: container() },
            None,
        ),
        (
            None,
            None,
            json!([other, default]),
            5000,
            ModelPortSource::DeclaredDefault { container: container() },
            None,
        ),
        (None, None, json!([other, {"containerPort": 84}]), 5000, ModelPortSource::Assumed, Some(assumed)),
        (None, None, json!([]), 5000, ModelPortSource::Assumed, Some(assumed)),
        (None, None, Value::Null, 5000, ModelPortSource::Assumed, Some(assumed)),
        (
            None,
            None,
            json!([{"name": "http", "containerPort": 0}]),
            5000,
            ModelPortSource::Assumed,
            Some(assumed),
        ),
    ];
    for (annotation, operator, declared, port, source, warning) in cases {
        let mut pod = pod(json!({}), &[]);
        if let Some(annotation) = annotation {
            pod["metadata"]["annotations"] = json!({keys::TARGET_PORT: annotation});
        }
        pod["spec"]["containers"][0]["ports"] = declared;
        let mut configuration = builtin();
        configuration.overrides.target_port = operator.map(|port| u16::try_into(port).unwrap());
        let outcome = outcome_in(&pod, &configuration, None);
        assert_eq!(warnings(&outcome), Vec::from_iter(warning), "{pod}");
        let plan = planned_by(outcome);
        assert_eq!((plan.model_port.port.get(), plan.model_port.source), (port, source), "{pod}");
        assert_eq!(plan.containers.last().unwrap().next_port.get(), port, "{pod}");
    }
}

#[test]
fn http_and_only_ports_count_only_for_inbound_traffic() {
    let container = || "web".to_owned();
    let http = json!({"name": "http", "containerPort": 8000});
    let only = json!({"containerPort": 8000});
    let model = json!({"name": "model", "containerPort": 81});
    let default = json!({"containerPort": 5000});
    let named = |name| ModelPortSource::NamedPort { container: container(), name };
    let declared = || ModelPortSource::DeclaredDefault { container: container() };
    let cases = [
        ("inbound", json!([http]), 8000, named("http"), false),
        ("inbound", json!([only]), 8000, ModelPortSource::OnlyPort { container: container() }, false),
        ("outbound", json!([http]), 5000, ModelPortSource::Assumed, true),
        ("outbound", json!([only]), 5000, ModelPortSource::Assumed, true),
        ("outbound", json!([http, default]), 5000, declared(), false),
        ("outbound", json!([http, model]), 81, named("model"), false),
        ("both", json!([http]), 5000, ModelPortSource::Assumed, true),
        ("both", json!([only, default]), 5000, declared(), false),
        ("both", json!([http, model]), 81, named("model"), false),
    ];
    for (direction, declared, port, source, warned) in cases {
        let mut pod = pod(json!({keys::DIRECTION: direction}), &[]);
        pod["spec"]["containers"][0]["ports"] = declared;
        let outcome = outcome_in(&pod, &with_rules(), None);
        assert_eq!(outcome.warnings.len(), usize::from(warned), "{pod}");
        let plan = planned_by(outcome);
        assert_eq!((plan.model_port.port.get(), plan.model_port.source), (port, source), "{pod}");
    }
    // The port is not kept when the direction changes either.
    let mut turned = injected(&pod(json!({}), &[8000]));
    turned["metadata"]["annotations"][keys::DIRECTION] = json!("outbound");
    let turned = planned_by(outcome_in(&turned, &with_rules(), None));
    assert_eq!(turned.model_port.source, ModelPortSource::Assumed);
    let annotated = pod(json!({keys::DIRECTION: "both", keys::TARGET_PORT: "8000"}), &[8000]);
    assert_eq!(planned(&annotated).model_port.source, ModelPortSource::Annotation);
}

#[test]
fn ports_of_another_injector_do_not_move_the_model_port() {
    let proxies = [
        json!({"name": "proxy", "ports": [{"containerPort": 15090}]}),
        json!({"name": "proxy", "ports": [{"containerPort": 15090, "name": "http"}]}),
        json!({"name": "proxy", "ports": [{"containerPort": 5000}, {"containerPort": 15090}]}),
    ];
    let with = |pod: &Value, proxy: &Value| {
        let mut pod = pod.clone();
        pod["spec"]["containers"].as_array_mut().unwrap().push(proxy.clone());
        pod
    };
    let first = injected(&pod(json!({}), &[9000]));
    let kept = ModelPortSource::Kept { container: "lucid-guardrails-auditor-2".to_owned() };
    for proxy in proxies {
        let second = with(&first, &proxy);
        let outcome = outcome(&second);
        assert!(outcome.warnings.is_empty(), "{outcome:?}");
        let plan = planned_by(outcome);
        assert_eq!((plan.model_port.port.get(), &plan.model_port.source), (9000, &kept), "{second}");
        assert!(patch_of(&second).operations.is_empty(), "{second}");
    }

    // Undeclared ports, ports of forged auditors and pods with a port named `model` do not keep the end of the chain.
    let proxy = json!({"name": "proxy", "ports": [{"containerPort": 15090}]});
    let mut moved = with(&first, &proxy);
    moved["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9001);
    assert_eq!(planned(&moved).model_port.source, ModelPortSource::Assumed);
    let model = json!({"name": "proxy", "ports": [{"containerPort": 15090, "name": "model"}]});
    assert_eq!(planned(&with(&first, &model)).model_port.port.get(), 15090);
    let edits = [
        ("/image", json!("busybox")),
        ("/env/0/value", json!("another")),
        ("/env/1/value", json!("http://localhost:9000/")),
        ("/env/1/value", json!("https://localhost:9000")),
        ("/env/1/value", json!("http://localhost:0")),
        ("/env/1", json!({"name": "LUCID_CHAIN_NEXT", "valueFrom": {}})),
    ];
    for (path, value) in edits {
        let mut pod = with(&first, &proxy);
        *pod.pointer_mut(&format!("/spec/containers/2{path}")).unwrap() = value;
        assert_eq!(planned(&pod).model_port.source, ModelPortSource::Assumed, "{pod}");
    }
}
