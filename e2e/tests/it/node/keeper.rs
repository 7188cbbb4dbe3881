//! Running pods on a node: auditors are updated beside their model, and pods are evicted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lucid_e2e::{ClusterExt as _, Installation, call, eventually, image};
use serde_json::{Value, json};

use super::{addresses, pod, values};
use crate::common::{ENABLED, deployment};

const NAMESPACE: &str = "lucid-system";
const FEWEST_REQUESTS: u32 = 10;
const MISSING: &str = "registry.example/missing@sha256:";

/// Values with an auditor `swap` of this image.
fn with_auditor(values: &Value, image: &str) -> String {
    let mut values = values.clone();
    let entry = json!({"name": "swap", "image": image, "port": 8099, "env": {"BLOCKED_PHRASES": "swordfish"},
        "probes": {"readiness": {}}});
    values["catalogue"]["chain"].as_array_mut().unwrap().push(entry);
    values.to_string()
}

fn pods(site: &Installation, namespace: &str) -> Vec<Value> {
    let pods = site.kubectl(&["get", "pods", "-n", namespace, "-o", "json"]).unwrap();
    let pods: Value = serde_json::from_str(&pods).unwrap();
    let mut pods = pods["items"].as_array().unwrap().clone();
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    pods
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Status of a container or native sidecar, with its image in the pod's spec.
fn container(pod: &Value, name: &str) -> (Value, String) {
    let of = |lists: [&Value; 2]| {
        let mut all = lists.into_iter().filter_map(Value::as_array).flatten();
        all.find(|it| it["name"] == name).cloned().unwrap_or_default()
    };
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let image =
        of([&spec["containers"], &spec["initContainers"]])["image"].as_str().unwrap_or_default().to_owned();
    (of([&status["containerStatuses"], &status["initContainerStatuses"]]), image)
}

/// Names of the pods, with the container ids of their models.
fn models(site: &Installation, namespace: &str) -> Vec<(String, String)> {
    let model = |pod: &Value| {
        let id = container(pod, "model").0["containerID"].to_string();
        (pod["metadata"]["name"].as_str().unwrap().to_owned(), id)
    };
    pods(site, namespace).iter().map(model).collect()
}

/// Waits until all pods of the namespace run the auditor's image and are ready.
async fn until_all_run(site: &Installation, (namespace, count): (&str, usize), image: &str) {
    eventually("all pods run the image", async || {
        let pods = pods(site, namespace);
        let digest = image.rsplit_once('@').unwrap().1;
        let runs = |pod: &Value| {
            let (status, of_spec) = container(pod, "swap");
            of_spec == image
                && status["imageID"].as_str().is_some_and(|id| id.ends_with(digest))
                && is_ready(pod)
        };
        if pods.len() == count && pods.iter().all(runs) { Ok(()) } else { Err(format!("{pods:#?}")) }
    })
    .await;
}

#[tokio::test]
async fn auditors_are_updated_beside_their_model_and_pods_evicted() {
    if !Installation::can_run() {
        return;
    }
    let site = Arc::new(Installation::prepare().await.unwrap());
    let (first, second) =
        (image("example-auditor").unwrap().pinned(), image("lucid-guardrails-auditor").unwrap().pinned());
    let missing = format!("{MISSING}{}", "0".repeat(64));
    let mut values = values();
    values["policy"] = json!({"admissionMode": "enforce"});
    values["keeper"] = json!({"actions": ["update", "evict"], "default": "update", "rate": 60});
    for image in [&first, &missing] {
        let digest = image.rsplit_once('@').unwrap().1;
        values["verifier"]["notarized"].as_array_mut().unwrap().push(json!(digest));
    }
    site.install(&with_auditor(&values, &first)).await.unwrap();
    site.cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
    let audited = |name: &str, mode: &str| {
        let mut manifest = pod(name, &json!({"lucid.computing/sidecar-mode": mode}));
        manifest["metadata"]["annotations"]["lucid.computing/auditors"] = json!("swap");
        manifest["metadata"]["labels"] = json!({"lucid.computing/tier": "A"});
        manifest
    };
    let manifest = audited("web", "containers");
    let mut workload = deployment("web", 2, &manifest);
    workload["apiVersion"] = json!("apps/v1");
    workload["kind"] = json!("Deployment");
    site.cluster.kubectl(&["create", "-n", "shop", "-f", "-"], &workload.to_string()).unwrap();
    site.cluster.create_namespace("sidecars", &[ENABLED]).await.unwrap();
    let native = audited("native", "native").to_string();
    site.cluster.kubectl(&["create", "-n", "sidecars", "-f", "-"], &native).unwrap();
    let (web, native) = (("shop", 2), ("sidecars", 1));
    until_all_run(&site, web, &first).await;
    until_all_run(&site, native, &first).await;
    let (before, beside) = (models(&site, "shop"), models(&site, "sidecars"));

    let traffic = Traffic::start(&site).await;
    site.install(&with_auditor(&values, &second)).await.unwrap();
    until_all_run(&site, web, &second).await;
    traffic.end().await;
    until_all_run(&site, native, &second).await;
    assert_eq!(models(&site, "shop"), before, "the models run on");
    assert_eq!(models(&site, "sidecars"), beside, "the model beside a native sidecar runs on");
    // Else the missing image might be tried on it.
    site.kubectl(&["delete", "pod", "-n", "sidecars", "native", "--grace-period=0", "--force"]).unwrap();

    // An image that does not exist stops at the first pod, whoever leads.
    site.install(&with_auditor(&values, &missing)).await.unwrap();
    let with_missing =
        || pods(&site, "shop").iter().filter(|pod| container(pod, "swap").1 == missing).count();
    eventually("one pod has the missing image", async || with_missing() == 1).await;
    let holder = || {
        let jsonpath = "jsonpath={.spec.holderIdentity}";
        site.kubectl(&["get", "lease", "lucid-keeper", "-n", NAMESPACE, "-o", jsonpath]).unwrap()
    };
    let killed = holder();
    site.kubectl(&["delete", "pod", "-n", NAMESPACE, &killed, "--force", "--grace-period=0"]).unwrap();
    eventually("another replica leads", async || ![killed.as_str(), ""].contains(&holder().as_str())).await;
    // Several times the interval of steps.
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(with_missing(), 1);
    assert_eq!(models(&site, "shop"), before, "the models run on");
    site.install(&with_auditor(&values, &second)).await.unwrap();
    until_all_run(&site, web, &second).await;

    let budget =
        ["create", "poddisruptionbudget", "web", "-n", "shop", "--selector=app=web", "--min-available=1"];
    site.kubectl(&budget).unwrap();
    site.kubectl(&["label", "namespace", "shop", "lucid.computing/keeper=evict"]).unwrap();
    let traffic = Traffic::start(&site).await;
    site.install(&with_auditor(&values, &first)).await.unwrap();
    eventually("both pods are replaced", async || {
        assert!(pods(&site, "shop").iter().any(is_ready), "no pod is ready");
        let names = models(&site, "shop");
        names.len() == 2 && names.iter().all(|(name, _)| before.iter().all(|(old, _)| old != name))
    })
    .await;
    until_all_run(&site, web, &first).await;
    traffic.end().await;
}

/// Requests to the pods of the Deployment, one of which must respond.
struct Traffic {
    stop: Arc<AtomicBool>,
    requests: tokio::task::JoinHandle<(u32, Vec<String>)>,
}

impl Traffic {
    async fn start(site: &Arc<Installation>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (site, is_over) = (Arc::clone(site), Arc::clone(&stop));
        let requests = tokio::spawn(async move {
            let (mut count, mut failures) = (0, Vec::new());
            while count < FEWEST_REQUESTS || !is_over.load(Ordering::Relaxed) {
                count += 1;
                // A pod may leave between the list and the request, as behind a Service.
                let mut failure = String::new();
                for _ in 0..3 {
                    failure = request(&site).await.err().unwrap_or_default();
                    if failure.is_empty() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                if !failure.is_empty() {
                    failures.push(failure);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            (count, failures)
        });
        Self { stop, requests }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (count, failures) = self.requests.await.unwrap();
        assert!(failures.is_empty(), "{} of {count} requests failed: {failures:?}", failures.len());
    }
}

/// Calls the first ready pod that responds.
async fn request(site: &Installation) -> Result<(), String> {
    let mut why = "no pod is ready".to_owned();
    for pod in pods(site, "shop").iter().filter(|pod| is_ready(pod)) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let address = addresses(site, "shop", name).await[0];
        let body = json!({"prompt": "hello"}).to_string();
        match call(&site.cluster, (address, 5000).into(), "/v1/chat", Some(&body)).await {
            Ok(reaction) if reaction.status.is_success() => return Ok(()),
            other => why = format!("{other:?}"),
        }
    }
    Err(why)
}
