//! The final chain is correct, with another injector before or after Lucid.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use crate::common::{chain, cluster, create, operator, pod, unplanned, until};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use lucid_certs::{CertificateAuthority, ServerTls, ServingCertificateResolver, ServingNames};
use lucid_e2e::Answer;
use lucid_testbed::Cluster;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, BoxError, JsonPatch, Router, Server, Webhook};
use serde_json::{Value, json};
use tower::service_fn;

/// The annotation with the actions of the other injector.
const TO_DO: &str = "example.com/to-do";

/// Actions of another injector on each call.
struct Other {
    name: &'static str,
    change: fn(&mut Value),
    /// Reinvocation policy after changes by Lucid.
    reinvocation: &'static str,
}

fn containers<'p>(pod: &'p mut Value, list: &str) -> &'p mut Vec<Value> {
    let spec = pod["spec"].as_object_mut().unwrap();
    spec.entry(list).or_insert(json!([])).as_array_mut().unwrap()
}

/// Adds a container at `index` (or the end) unless it exists.
fn add(pod: &mut Value, list: &str, index: usize, container: Value) {
    let containers = containers(pod, list);
    if containers.iter().all(|found| found["name"] != container["name"]) {
        containers.insert(index.min(containers.len()), container);
    }
}

fn plain(name: &str) -> Value {
    json!({"name": name, "image": "example.com/other:1", "command": ["true"]})
}

fn native(name: &str, port: u16) -> Value {
    json!({"name": name, "image": "example.com/proxy:1", "restartPolicy": "Always",
        "ports": [{"containerPort": port, "name": "proxy"}], "startupProbe": {"tcpSocket": {"port": port}}})
}

fn is_ours(container: &Value) -> bool {
    container["name"].as_str().is_some_and(|name| name.starts_with("lucid-"))
}

const OTHERS: [Other; 11] = [
    Other {
        name: "sidecar-on-an-auditors-port",
        change: |pod| {
            let proxy = json!({"name": "mesh-proxy", "image": "example.com/proxy:1",
                "ports": [{"containerPort": 8090}]});
            add(pod, "containers", 99, proxy);
        },
        reinvocation: "IfNeeded",
    },
    Other {
        name: "another-port-of-the-model",
        change: |pod| {
            let ports = json!([{"containerPort": 5000}, {"containerPort": 9000, "name": "http"}]);
            let model = containers(pod, "containers").iter_mut().find(|found| found["name"] == "model");
            model.unwrap()["ports"] = ports;
        },
        reinvocation: "IfNeeded",
    },
    Other {
        name: "init-container-first",
        change: |pod| add(pod, "initContainers", 0, plain("other-init")),
        reinvocation: "IfNeeded",
    },
    Other {
        name: "init-container-last",
        change: |pod| add(pod, "initContainers", 99, plain("other-init")),
        reinvocation: "IfNeeded",
    },
    Other {
        name: "native-sidecar-first",
        change: |pod| add(pod, "initContainers", 0, native("mesh-proxy", 8090)),
        reinvocation: "IfNeeded",
    },
    Other {
        name: "native-sidecar-last",
        change: |pod| add(pod, "initContainers", 99, native("mesh-proxy", 8093)),
        reinvocation: "IfNeeded",
    },
    Other {
        name: "workload-identity-in-all",
        change: |pod| {
            let has = |list: &Value, name: &str| {
                list.as_array().is_some_and(|list| list.iter().any(|found| found["name"] == name))
            };
            if !has(&pod["spec"]["volumes"], "identity") {
                let token =
                    json!({"serviceAccountToken": {"audience": "sts.amazonaws.com", "path": "token"}});
                let volume = json!({"name": "identity", "projected": {"sources": [token]}});
                containers(pod, "volumes").push(volume);
            }
            for list in ["initContainers", "containers"] {
                for container in containers(pod, list) {
                    if !has(&container["env"], "AWS_CONTAINER_CREDENTIALS_FULL_URI") {
                        let container = container.as_object_mut().unwrap();
                        let env = container.entry("env").or_insert(json!([])).as_array_mut().unwrap();
                        let agent = "http://169.254.170.23/v1/credentials";
                        env.push(json!({"name": "AWS_CONTAINER_CREDENTIALS_FULL_URI", "value": agent}));
                        let mounts = container.entry("volumeMounts").or_insert(json!([]));
                        let mount = json!({"name": "identity", "mountPath": "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount", "readOnly": true});
                        mounts.as_array_mut().unwrap().push(mount);
                    }
                }
            }
        },
        reinvocation: "IfNeeded",
    },
    Other {
        name: "image-of-ours-replaced",
        change: |pod| {
            for list in ["initContainers", "containers"] {
                for container in containers(pod, list).iter_mut().filter(|found| is_ours(found)) {
                    container["image"] = json!("example.com/evil:1");
                    container["command"] = json!(["sleep"]);
                }
            }
        },
        reinvocation: "Never",
    },
    Other {
        name: "ours-removed",
        change: |pod| {
            for list in ["initContainers", "containers"] {
                containers(pod, list).retain(|found| !is_ours(found));
            }
        },
        reinvocation: "Never",
    },
    Other {
        name: "all-in-reverse",
        change: |pod| {
            for list in ["initContainers", "containers"] {
                containers(pod, list).reverse();
            }
        },
        reinvocation: "Never",
    },
    Other {
        name: "ours-twice",
        change: |pod| {
            for list in ["initContainers", "containers"] {
                let ours: Vec<_> =
                    containers(pod, list).iter().filter(|found| is_ours(found)).cloned().collect();
                for mut copy in ours {
                    copy["name"] = json!(format!("{}-copy", copy["name"].as_str().unwrap()));
                    copy.as_object_mut().unwrap().remove("ports");
                    add(pod, list, 99, copy);
                }
            }
        },
        reinvocation: "Never",
    },
];

/// Serves the other injector, and registers it to be called before Lucid for pods with the label `order: before`, and after
/// Lucid for those with `order: after`.
async fn serve_others(cluster: &Cluster) {
    let names = ServingNames::for_hosts(&["127.0.0.1"]).unwrap();
    let now = SystemTime::now();
    let ca = CertificateAuthority::generate(&names, now).unwrap();
    let resolver = ServingCertificateResolver::default();
    resolver.swap(&ca.issue(&names, now).unwrap());
    let inject = service_fn(async |request: AdmissionRequest| {
        let object = request.object.unwrap();
        let mut pod: Value = object.decode()?;
        let to_do = pod["metadata"]["annotations"][TO_DO].as_str().unwrap_or_default().to_owned();
        if let Some(other) = OTHERS.iter().find(|other| other.name == to_do) {
            (other.change)(&mut pod);
        }
        Ok::<_, BoxError>(AdmissionResponse::patch(JsonPatch::of_change(&object, &pod)?))
    });
    let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let url = format!("https://{}/mutate", server.local_addr());
    let tls = ServerTls::new(Arc::new(resolver)).build().unwrap();
    tokio::spawn(server.serve(
        Arc::new(tls),
        Router::new().webhook("/mutate", Webhook::mutating("other.example.com", inject)),
        std::future::pending(),
    ));
    let bundle = ByteString(ca.trust_bundle().to_pem().into_bytes());
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    // The API server calls them in the order of their names.
    for (name, order) in [("a-mesh", "before"), ("z-mesh", "after")] {
        let webhooks = ["Never", "IfNeeded"].map(|policy| {
            json!({
                "name": format!("{}.example.com", policy.to_lowercase()),
                "clientConfig": {"url": url, "caBundle": bundle},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "objectSelector": {"matchLabels": {"order": order, "reinvocation": policy}},
                "reinvocationPolicy": policy, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            })
        });
        let registration = json!({"metadata": {"name": name}, "webhooks": webhooks});
        api.create(&PostParams::default(), &serde_json::from_value(registration).unwrap()).await.unwrap();
    }
}

fn manifest(name: &str, other: &Other, order: &str, restart_policy: &str) -> Value {
    let labels = json!({"lucid.io/secured": "true", "order": order, "reinvocation": other.reinvocation});
    let annotations = json!({"lucid.computing/auditor-chain": "injection,toxicity", TO_DO: other.name});
    let mut pod = pod(name, labels, annotations);
    pod["spec"]["restartPolicy"] = json!(restart_policy);
    pod["spec"]["serviceAccountName"] = json!("web");
    pod["spec"]["initContainers"] = json!([plain("download")]);
    pod
}

fn names(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.as_ref().unwrap();
    let inits = spec.init_containers.iter().flatten();
    inits.chain(&spec.containers).map(|container| container.name.clone()).collect()
}

#[tokio::test]
async fn the_chain_is_correct_beside_another_injector() {
    let cluster = cluster().await;
    let _operator = operator(&cluster, |operator| operator).await;
    serve_others(&cluster).await;
    changes_before_and_after(&cluster).await;
    a_sidecar_takes_the_port_of_an_auditor(&cluster).await;
}

async fn changes_before_and_after(cluster: &Cluster) {
    let has_proxy = |response: &Answer| {
        response.result.as_ref().is_ok_and(|pod| names(pod).contains(&"mesh-proxy".to_owned()))
    };
    for order in ["before", "after"] {
        let named = |name: &str| manifest(&format!("{order}-{name}"), &OTHERS[0], order, "Always");
        until(cluster, "shop", named, has_proxy).await;
    }
    let mut faults = Vec::new();
    for other in &OTHERS {
        for (order, restart_policy) in
            [("before", "Always"), ("after", "Always"), ("before", "Never"), ("after", "Never")]
        {
            let name = format!("{}-{order}-{}", other.name, restart_policy.to_lowercase());
            let response = create(cluster, "shop", &manifest(&name, other, order, restart_policy)).await;
            let warnings = response.warnings.join("\n");
            let stored = response.stored().unwrap_or_else(|error| panic!("{name}: {error}"));
            let differs = unplanned(&stored);
            if !differs.is_empty() {
                faults.push(format!("{name}: {differs}\n{warnings}\n{}", json!(stored.spec)));
            }
            let found = names(&stored);
            let unique: BTreeSet<_> = found.iter().collect();
            if unique.len() != found.len() {
                faults.push(format!("{name}: not unique: {found:?}"));
            }
            for expected in
                ["lucid-injection-auditor", "lucid-toxicity-auditor", "lucid-init", "download", "model"]
            {
                if !unique.contains(&expected.to_owned()) {
                    faults.push(format!("{name}: {expected} is not in {found:?}"));
                }
            }
            let is_replaced = other.name == "image-of-ours-replaced" && order == "after";
            if warnings.contains("is replaced") != is_replaced {
                faults.push(format!("{name}: {warnings}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

async fn a_sidecar_takes_the_port_of_an_auditor(cluster: &Cluster) {
    // The sidecar adds a second declared port to the model's one.
    let named = |name: &str| {
        let mut manifest = manifest(name, &OTHERS[0], "after", "Always");
        manifest["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(9000);
        manifest
    };
    let has_proxy = |response: &Answer| {
        response.result.as_ref().is_ok_and(|pod| names(pod).contains(&"mesh-proxy".to_owned()))
    };
    let response = until(cluster, "shop", named, has_proxy).await;
    let hops = chain(&response.stored().unwrap());
    let hops: Vec<_> = hops.into_iter().filter(|(.., next)| next.is_some()).collect();
    let auditor = |name: &str, port: i32, next: &str| (name.to_owned(), Some(port), Some(next.to_owned()));
    assert_eq!(
        hops,
        [
            auditor("lucid-injection-auditor", 8093, "http://localhost:8096"),
            auditor("lucid-toxicity-auditor", 8096, "http://localhost:9000"),
        ]
    );
}
