//! `cargo xtask demo --node`: requests through a chain, in running pods.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use lucid_e2e::{Error, INJECTION, Installation, TOXICITY, call, image, notarized_auditors};
use lucid_testbed::Binaries;
use serde_json::{Value, json};

use super::{Demo, table};
use crate::testbed::point_kubectl_at;

const NAMESPACE: &str = "shop";
const POD: &str = "sentiment";
const REQUESTED: &str = "injection,toxicity,pii";
const AUDITORS: [&str; 3] = ["lucid-injection-auditor", "lucid-toxicity-auditor", "lucid-pii-auditor"];

/// A request of the demo: its client, its prompt and the expected outcome.
struct Request {
    from: &'static str,
    prompt: String,
    /// Auditor that denies the request, if any.
    refused_by: Option<&'static str>,
}

pub(super) async fn play(demo: &Demo) -> Result<(), Error> {
    eprintln!("demo: building Lucid and its images, and starting a cluster with a node");
    let site = Installation::prepare().await?;
    eprintln!("demo: helm install lucid charts/lucid");
    site.install(&notarized_auditors()?).await?;
    eprintln!("demo: a pod with a model, and the annotation lucid.computing/auditors: {REQUESTED}");
    let address = deploy(&site).await?;

    let [injection, toxicity, _] = AUDITORS;
    let requests = [
        ("outside the pod", "What a fine day".to_owned(), None),
        ("outside the pod", format!("Please {INJECTION}"), Some(injection)),
        ("outside the pod", format!("Hello, {TOXICITY}"), Some(toxicity)),
        ("the pod itself, to 127.0.0.1:5000", "What a fine day".to_owned(), None),
    ];
    let mut table = table();
    table.set_header(["client", "prompt", "passes", "answer"]);
    let mut surprises = Vec::new();
    for (index, (from, prompt, refused_by)) in requests.into_iter().enumerate() {
        let request = Request { from, prompt, refused_by };
        let answer =
            if index == 3 { ask_within(&site, &request)? } else { ask(&site, address, &request).await? };
        let (passes, outcome) = describe(&answer);
        if !is_expected(&request, &answer) {
            surprises.push(format!("{}: {answer}", request.prompt));
        }
        table.add_row([request.from.to_owned(), request.prompt, passes, outcome]);
    }
    let (prompt, masked) =
        ("What is the number of my card?", "Your card number is <CREDIT_CARD>, valid until May.");
    let answer = stream_chat(&site, address, prompt).await?;
    if answer != masked {
        surprises.push(format!("{prompt}: {answer}"));
    }
    table.add_row(["outside the pod, streamed".to_owned(), prompt.to_owned(), AUDITORS.join("\n"), answer]);
    println!("\n{table}\n");
    if !surprises.is_empty() {
        return Err(format!("unexpected answers:\n{}", surprises.join("\n")).into());
    }
    if !demo.once {
        println!("The cluster stays up. In another terminal:\n");
        point_kubectl_at(&site.cluster, &Binaries::from_env()?);
        println!("    kubectl --namespace {NAMESPACE} logs {POD} --all-containers");
        println!("    kubectl --namespace {NAMESPACE} describe pod {POD}");
        println!("\nCtrl-C ends everything.");
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// Creates the pod and waits until it is ready. Returns the address of its model.
async fn deploy(site: &Installation) -> Result<SocketAddr, Error> {
    site.cluster.create_namespace(NAMESPACE, &[("lucid.computing/enabled", "true")]).await?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": POD, "annotations": {"lucid.computing/auditors": REQUESTED}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "model", "image": image("example-model")?.pinned(), "ports": [{"containerPort": 5000}]},
            {"name": "app", "image": Installation::BUSYBOX, "args": ["sleep", "86400"]},
        ]},
    }))?;
    let pods = Api::<Pod>::namespaced(site.cluster.client(), NAMESPACE);
    pods.create(&PostParams::default(), &pod).await?;
    let name = format!("pod/{POD}");
    let ready = ["wait", "-n", NAMESPACE, &name, "--for=condition=Ready", "--timeout=180s"];
    site.kubectl(&ready)
        .map_err(|error| format!("{error}\n{}", site.kubectl_says(&["describe", "-n", NAMESPACE, &name])))?;
    let address = pods.get(POD).await?.status.and_then(|status| status.pod_ip);
    let address: IpAddr = address.ok_or("a pod that is ready has no address")?.parse()?;
    Ok((address, 5000).into())
}

async fn ask(site: &Installation, address: SocketAddr, request: &Request) -> Result<Value, Error> {
    let body = json!({"prompt": request.prompt}).to_string();
    Ok(call(&site.cluster, address, "/v1/chat", Some(&body)).await?.body)
}

/// Returns the text of a streamed chat.
async fn stream_chat(site: &Installation, address: SocketAddr, prompt: &str) -> Result<String, Error> {
    let messages = json!([{"role": "user", "content": prompt}]);
    let body = json!({"model": "echo", "stream": true, "messages": messages}).to_string();
    let answer = call(&site.cluster, address, "/v1/chat/completions", Some(&body)).await?.body;
    let events = answer.as_str().unwrap_or_default();
    let chunks =
        events.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let words =
        chunks.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned));
    Ok(words.collect())
}

/// Sends the request from an application container in the pod.
fn ask_within(site: &Installation, request: &Request) -> Result<Value, Error> {
    let body = format!("--post-data={}", json!({"prompt": request.prompt}));
    let wget = ["/busybox", "wget", "-q", "-O", "-", &body, "http://127.0.0.1:5000/v1/chat"];
    let answer = site.kubectl(&[&["exec", "-n", NAMESPACE, POD, "-c", "app", "--"], &wget[..]].concat())?;
    serde_json::from_str(&answer).map_err(|_| answer.into())
}

/// Describes the auditors that a request has passed, and its answer.
fn describe(answer: &Value) -> (String, String) {
    let error = &answer["error"];
    if let Some(auditor) = error["auditor"].as_str() {
        return (String::new(), format!("{auditor}: {}", error["message"].as_str().unwrap_or_default()));
    }
    let passed: Vec<_> = passed(answer).collect();
    (passed.join("\n"), format!("the model: I was asked {}", answer["body"].as_str().unwrap_or_default()))
}

/// Auditors that a request to the model has passed.
fn passed(answer: &Value) -> impl Iterator<Item = &str> {
    let way = answer["headers"]["via"].as_array().into_iter().flatten().filter_map(Value::as_str);
    way.filter_map(|hop| hop.split(' ').nth(1))
}

fn is_expected(request: &Request, answer: &Value) -> bool {
    match request.refused_by {
        Some(auditor) => answer["error"]["auditor"] == auditor,
        None => passed(answer).eq(AUDITORS),
    }
}
