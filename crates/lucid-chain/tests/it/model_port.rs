//! The model's port.

use crate::common::*;
use lucid_chain::{Decision, Plan, PortList, keys};
use serde_json::{Value, json};

fn is_assumed(plan: &Plan) -> bool {
    setting(plan, "model port") == "5000 (built-in default)"
}

/// Returns the setting of a plan with this port. `source` is `named`, `only`, `probe` or `proxy` with a container, or
/// as written.
fn expected(port: u16, source: &str) -> String {
    let words: Vec<_> = source.split(' ').collect();
    let source = match words[..] {
        ["annotation"] => "annotation lucid.computing/target-port".to_owned(),
        ["only", container] => format!("the only declared port, of container {container}"),
        ["named", container, name] => format!("port named {name} of container {container}"),
        ["probe", container] => format!("probe of container {container}"),
        ["proxy", container] => format!("port of the serving proxy {container}"),
        _ => source.to_owned(),
    };
    format!("{port} ({source})")
}

#[test]
fn the_model_port_comes_from_the_first_source() {
    let port = |number: u16| json!({"containerPort": number});
    let name = |number: u16, name: &str| json!({"containerPort": number, "name": name});
    let udp = json!({"name": "model", "containerPort": 83, "protocol": "UDP"});
    let cases = [
        (Some("9"), Some(7), json!([name(81, "model")]), 7, "operator configuration"),
        (Some("9"), None, json!([name(81, "model")]), 9, "annotation"),
        (None, None, json!([port(82), name(80, "http"), name(81, "model")]), 81, "named web model"),
        (None, None, json!([port(82), name(80, "http")]), 80, "named web http"),
        (None, None, json!([port(82)]), 82, "only web"),
        (None, None, json!([port(82), port(82), udp]), 82, "only web"),
        (None, None, json!([name(82, "metrics"), name(80, "grpc")]), 80, "only web"),
    ];
    for (annotation, operator, declared, port, source) in cases {
        let mut pod = pod(json!({}), &[]);
        if let Some(annotation) = annotation {
            pod["metadata"]["annotations"] = json!({keys::TARGET_PORT: annotation});
        }
        pod["spec"]["containers"][0]["ports"] = declared;
        let mut configuration = builtin();
        configuration.overrides.target_port = operator.map(|port: u16| port.to_string().parse().unwrap());
        let outcome = outcome_in(&pod, &configuration, None);
        assert_eq!(warnings(&outcome), Vec::<String>::new(), "{pod}");
        let plan = planned_by(outcome);
        assert_eq!(setting(&plan, "model port"), expected(port, source), "{pod}");
        assert_eq!(plan.containers.last().unwrap().next_port.get(), port, "{pod}");
    }
}

/// Name, ports as `name:number` and probes as `kind=path:port` of containers. `native` precedes the names of native
/// sidecars.
type Containers<'t> = &'t [(&'t str, &'t str, &'t str)];

fn pod_of(containers: Containers<'_>) -> Value {
    let mut pod = pod(json!({}), &[]);
    pod["spec"]["containers"] = json!([]);
    pod["spec"]["initContainers"] = json!([]);
    for (name, ports, probes) in containers {
        let ports = ports.split_whitespace().map(|port| match port.split_once(':') {
            Some((name, number)) => json!({"name": name, "containerPort": number.parse::<u16>().unwrap()}),
            None => json!({"containerPort": port.parse::<u16>().unwrap()}),
        });
        let mut container = json!({"image": "web:1", "ports": ports.collect::<Vec<_>>()});
        for probe in probes.split_whitespace() {
            let (kind, target) = probe.split_once('=').unwrap();
            let (path, port) = target.split_once(':').unwrap();
            let port = port.parse::<u16>().map_or_else(|_| json!(port), Value::from);
            container[kind] = match path {
                "tcp" => json!({"tcpSocket": {"port": port}}),
                "grpc" => json!({"grpc": {"port": port}}),
                _ => json!({"httpGet": {"path": path, "port": port}}),
            };
        }
        let list = match name.strip_prefix("native ") {
            Some(name) => {
                container["name"] = json!(name);
                container["restartPolicy"] = json!("Always");
                "initContainers"
            }
            None => {
                container["name"] = json!(name);
                "containers"
            }
        };
        pod["spec"][list].as_array_mut().unwrap().push(container);
    }
    pod
}

#[test]
fn ports_and_probes_single_out_the_model() {
    let cases: &[(Containers<'_>, u16, &str)] = &[
        // A KServe predictor with a transformer, without and with Knative's proxy.
        (
            &[
                ("kserve-container", "8085", "readinessProbe=tcp:8085"),
                ("transformer", "http1:8080", "readinessProbe=/v1/models/vision:8080"),
            ],
            8080,
            "named transformer http1",
        ),
        (
            &[
                ("kserve-container", "", ""),
                ("transformer", "user-port:8080", ""),
                (
                    "queue-proxy",
                    "http-queueadm:8022 http-autometric:9090 http-usermetric:9091 queue-port:8012 https-port:8112",
                    "readinessProbe=/:8012",
                ),
            ],
            8012,
            "proxy queue-proxy",
        ),
        (
            &[("user", "h2c:8080", ""), ("queue-proxy", "http-queueadm:8022 queue-port:8013", "")],
            8013,
            "proxy queue-proxy",
        ),
        // A Ray head.
        (
            &[("ray-head", "gcs-server:6379 dashboard:8265 client:10001 serve:8000 metrics:8080", "")],
            8000,
            "named ray-head serve",
        ),
        // Disaggregated serving: routing in front of vLLM.
        (
            &[
                ("native routing-proxy", "proxy:8000", ""),
                (
                    "vllm",
                    "metrics:8200 nixl:5557",
                    "startupProbe=/v1/models:8200 readinessProbe=/health:8200",
                ),
            ],
            8000,
            "proxy routing-proxy",
        ),
        // The only port is that of a native sidecar.
        (&[("native server", "http:8000", ""), ("uploader", "", "")], 8000, "only server"),
        (&[("native mesh", "admin:8090", ""), ("model", "8000", "")], 8000, "only model"),
        (&[("istio-proxy", "http-envoy-prom:15090 15021", ""), ("model", "8000", "")], 8000, "only model"),
        (&[("daprd", "dapr-http:3500", ""), ("model", "8000", "")], 8000, "only model"),
        // Triton.
        (&[("triton", "http:8000 grpc:8001 metrics:8002", "")], 8000, "named triton http"),
        (&[("tf", "grpc:8500 rest-api:8501", "")], 8501, "named tf rest-api"),
        (&[("triton", "http-triton:8000 grpc-triton:8001", "")], 8000, "named triton http-triton"),
        (&[("triton", "8000 8001", "readinessProbe=/v2/health/ready:8000")], 8000, "probe triton"),
        (&[("vllm", "container-port:8000 zmq-port:55555", "livenessProbe=/health:8000")], 8000, "only vllm"),
        (&[("main", "8001", ""), ("llm-d-routing-sidecar", "8000", "")], 8000, "proxy llm-d-routing-sidecar"),
        (
            &[("kserve-container", "8085", ""), ("transformer-container", "8080", "")],
            8080,
            "proxy transformer-container",
        ),
        (&[("m", "http:8080", ""), ("kube-rbac-proxy", "https:8443", "")], 8080, "only m"),
        (&[("m", "healthcare-http:8080", "")], 8080, "only m"),
        (&[("a", "http:8000 https:8443", "")], 8000, "named a http"),
        (&[("a", "8000 prompt-cache:9000 pprof:6060", "readinessProbe=/health:8000")], 8000, "probe a"),
        (&[("a", "srv:8000 9000", "readinessProbe=tcp:srv")], 8000, "probe a"),
        (&[("a", "8000 9000", "readinessProbe=grpc:9000")], 9000, "probe a"),
        // The names and the probe tell together.
        (&[("a", "http:8000 api:8001 9000", "readinessProbe=/health:8001")], 8001, "probe a"),
        // Probes that say what a port is for.
        (&[("a", "8000 9000", "livenessProbe=/metrics:9000")], 8000, "only a"),
        (
            &[("a", "http:8000 http2:8001", "livenessProbe=/livez:8001 readinessProbe=/v1/models:8000")],
            8000,
            "only a",
        ),
        // Nothing is declared.
        (&[("a", "", "readinessProbe=/health:8000")], 8000, "probe a"),
    ];
    for &(containers, port, source) in cases {
        let pod = pod_of(containers);
        let outcome = outcome(&pod);
        assert_eq!(warnings(&outcome), Vec::<String>::new(), "{pod}");
        let plan = planned_by(outcome);
        assert_eq!(setting(&plan, "model port"), expected(port, source), "{pod}");
        assert!(!is_assumed(&plan));
        // The chain is in the pod now, and its own ports and probes are not the model's.
        let again = planned(&injected(&pod));
        assert_eq!(setting(&again, "model port"), expected(port, source), "{pod}");
    }
}

#[test]
fn an_ambiguous_model_port_is_assumed() {
    let cases: &[(Containers<'_>, &str)] = &[
        (&[("a", "", "")], ""),
        (&[("a", "0", "")], ""),
        // A Ray worker.
        (&[("ray-worker", "metrics:8080", "readinessProbe=/:8080")], "8080 (ray-worker)"),
        (&[("a", "http-metrics:8080 health:8081 admin:9000", "")], ""),
        (&[("a", "8000 8001", "")], "8000 (a), 8001 (a)"),
        (&[("a", "5000 8001", "")], "5000 (a), 8001 (a)"),
        (&[("a", "http:8000", ""), ("b", "http:8001", "")], "8000 (a), 8001 (b)"),
        (&[("a", "model:8001", ""), ("b", "model:8000", "")], "8000 (b), 8001 (a)"),
        // Probes contradict the only port or the names.
        (
            &[("vllm", "metrics:8000 kv:5556 other:5557", "readinessProbe=/health:8000")],
            "5557 (vllm), 8000 (vllm)",
        ),
        (&[("vllm", "other:5557", "livenessProbe=/health:8000")], "5557 (vllm)"),
        (
            &[("vllm", "", "readinessProbe=/health:8000"), ("cache", "tcp-cache:6380", "")],
            "6380 (cache), 8000 (vllm)",
        ),
        (&[("vllm", "8000", "readinessProbe=/health:8000"), ("b", "rest:6333", "")], "6333 (b), 8000 (vllm)"),
        // The name of a port says nothing about other containers.
        (&[("vllm", "8000", ""), ("mcp", "http:3001", "")], "3001 (mcp), 8000 (vllm)"),
        (
            &[("vllm", "8000", ""), ("helper", "9000", "readinessProbe=/ready:9000")],
            "8000 (vllm), 9000 (helper)",
        ),
        (&[("vllm", "", ""), ("cloud-sql-proxy", "5432", "")], ""),
        (&[("vllm", "", ""), ("b", "", "readinessProbe=/:13133")], "13133 (b)"),
        (&[("vllm", "ssh:22", "")], ""),
        (&[("vllm", "6379", "")], ""),
        // A server for health beside the model.
        (
            &[("litellm", "4000 4001", "readinessProbe=/health/readiness:4001")],
            "4000 (litellm), 4001 (litellm)",
        ),
        (&[("a", "8080 8081", "livenessProbe=tcp:8080 readinessProbe=/ready:8081")], "8080 (a), 8081 (a)"),
        (
            &[("a", "8000", "readinessProbe=/:8000"), ("native b", "8001", "readinessProbe=/:8001")],
            "8000 (a), 8001 (b)",
        ),
        // The probe may target the model or a server beside it.
        (&[("a", "8000 8081", "readinessProbe=/readyz:8081")], "8000 (a), 8081 (a)"),
        (&[("a", "", "readinessProbe=/healthz:8081")], ""),
        (&[("a", "", "readinessProbe=/:8000"), ("b", "", "readinessProbe=/:8001")], "8000 (a), 8001 (b)"),
    ];
    for &(containers, candidates) in cases {
        let pod = pod_of(containers);
        let why = match candidates {
            "" => ", because no declared port or readiness probe names one".to_owned(),
            _ => String::new(),
        };
        let to =
            if candidates.is_empty() { String::new() } else { format!(", to one or more of {candidates}") };
        let warning = format!(
            "the model is assumed to listen on 5000{why}: name a port `model`, or set lucid.computing/target-port or target-port in \
             auditors.yaml{to}"
        );
        for pod in [pod.clone(), injected(&pod)] {
            let outcome = outcome(&pod);
            assert_eq!(warnings(&outcome), [warning.as_str()], "{pod}");
            let plan = planned_by(outcome);
            assert!(is_assumed(&plan), "{pod}");
        }
    }
}

#[test]
fn several_ports_are_guarded_each_on_its_own_route() {
    let annotations = json!({keys::TARGET_PORT: "8080, 8085", keys::AUDITORS: "injection,toxicity"});
    let pod = pod(annotations, &[8080, 8085, 8091]);
    let plan = planned_by(outcome_in(&pod, &with_rules(), None));
    assert_eq!(setting(&plan, "model port"), "8080,8085 (annotation lucid.computing/target-port)");
    let routes = plan.containers.iter().map(|it| variable(&it.manifest(), keys::ROUTES_ENV).unwrap());
    let routes: Vec<_> = routes.collect();
    // 8091 is taken.
    assert_eq!(routes, ["8090=8093,8092=8094", "8093=8080,8094=8085"]);
    let redirect = redirect_of(&plan);
    let guarded: Vec<_> =
        redirect.guarded().into_iter().map(|(port, first)| (port.get(), first.get())).collect();
    assert_eq!(guarded, [(8080, 8090), (8085, 8092), (8093, 8090), (8094, 8092)]);
    let manifest = plan.containers[0].manifest();
    assert_eq!(
        manifest["ports"],
        json!([{"containerPort": 8090}, {"name": "route-8092", "containerPort": 8092}])
    );
    let env = |name: &str| variable(&manifest, name).unwrap();
    assert_eq!([env("PORT"), env("LUCID_CHAIN_NEXT")], ["8090", "http://localhost:8093"]);
    // Planning again changes nothing; another port replans.
    let patched = injected(&pod);
    assert!(patch_of(&patched).is_empty());
    let mut moved = patched;
    moved["metadata"]["annotations"][keys::TARGET_PORT] = json!("8080,8085,8091");
    let warnings = patch_of(&moved).warnings;
    assert!(warnings.iter().all(|it| it.reason() == "ContainerReplanned"), "{warnings:?}");
}

#[test]
fn auditors_without_routes_and_egress_take_one_port() {
    let catalogue = "chain: [{name: topics, image: topics}]";
    let cases = [
        (json!({keys::AUDITORS: "topics"}), "topics"),
        (json!({keys::AUDITORS: "injection", keys::DIRECTION: "both"}), "lucid-egress"),
    ];
    for (mut annotations, auditor) in cases {
        annotations[keys::TARGET_PORT] = json!("8080,8085");
        let configuration = configured(catalogue, &["topics"]);
        let outcome = outcome_in(&pod(annotations, &[]), &configuration, None);
        let Decision::Impossible { reason } = outcome.decision else { panic!("{outcome:?}") };
        let expected = format!(
            "failed to guard the ports 8080,8085 of the model: auditor {auditor} listens on one port"
        );
        assert!(reason.to_string().starts_with(&expected), "{reason}");
        assert_eq!(reason.reason(), "RoutesUnsupported");
    }
}

#[test]
fn target_ports_are_a_bounded_list() {
    let nine: Vec<_> = (1..=9).map(|port: u16| port.to_string()).collect();
    for good in ["1", "65535", "8080,8085", " 8080 , 8085 ", &nine[..8].join(",")] {
        let ports: PortList = good.parse().unwrap();
        assert_eq!(ports.to_string(), good.replace(' ', ""));
    }
    for bad in ["", ",", "0", "65536", "+1", "8080,", "8080,8080", "8080;8085", "http", &nine.join(",")] {
        assert!(bad.parse::<PortList>().is_err(), "{bad}");
    }
}

#[test]
fn ports_and_probes_count_only_for_inbound_traffic() {
    let http = json!({"name": "http", "containerPort": 8000});
    let only = json!({"containerPort": 8000});
    let model = json!({"name": "model", "containerPort": 81});
    let default = json!({"containerPort": 5000});
    let declared_default = "built-in default, declared by container web";
    let cases = [
        ("inbound", json!([http, default]), 8000, "named web http", false),
        ("inbound", json!([only]), 8000, "only web", false),
        ("outbound", json!([http]), 5000, "built-in default", true),
        ("outbound", json!([only]), 5000, "built-in default", true),
        ("outbound", json!([http, default]), 5000, declared_default, false),
        ("outbound", json!([http, model]), 81, "named web model", false),
        ("both", json!([http]), 5000, "built-in default", true),
        ("both", json!([default]), 5000, declared_default, false),
        ("both", json!([http, model]), 81, "named web model", false),
    ];
    for (direction, declared, port, source, warned) in cases {
        let mut pod = pod(json!({keys::DIRECTION: direction}), &[]);
        pod["spec"]["containers"][0]["ports"] = declared;
        let outcome = outcome_in(&pod, &with_rules(), None);
        assert_eq!(outcome.warnings.len(), usize::from(warned), "{pod}");
        let plan = planned_by(outcome);
        assert_eq!(setting(&plan, "model port"), expected(port, source), "{pod}");
    }
    // The port is not kept when the direction changes either.
    let mut turned = injected(&pod(json!({}), &[8000]));
    turned["metadata"]["annotations"][keys::DIRECTION] = json!("outbound");
    let turned = planned_by(outcome_in(&turned, &with_rules(), None));
    assert!(is_assumed(&turned));
    let annotated = pod(json!({keys::DIRECTION: "both", keys::TARGET_PORT: "8000"}), &[8000]);
    assert_eq!(setting(&planned(&annotated), "model port"), expected(8000, "annotation"));
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
    let kept = "what container lucid-guardrails-auditor-2 forwards to already";
    for proxy in proxies {
        let second = with(&first, &proxy);
        let outcome = outcome(&second);
        assert!(outcome.warnings.is_empty(), "{outcome:?}");
        let plan = planned_by(outcome);
        assert_eq!(setting(&plan, "model port"), expected(9000, kept), "{second}");
        assert!(patch_of(&second).is_empty(), "{second}");
    }

    // Undeclared ports, ports of forged auditors and pods with a port named `model` do not keep the end of the chain.
    let proxy = json!({"name": "proxy", "ports": [{"containerPort": 15090}]});
    let mut moved = with(&first, &proxy);
    moved["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9001);
    assert!(is_assumed(&planned(&moved)));
    let model = json!({"name": "proxy", "ports": [{"containerPort": 15090, "name": "model"}]});
    assert_eq!(model_port(&planned(&with(&first, &model))), 15090);
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
        assert!(is_assumed(&planned(&pod)), "{pod}");
    }
}
