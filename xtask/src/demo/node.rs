//! `cargo xtask demo --node`: what the page for new users says, in running pods.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use lucid_e2e::{ClusterExt as _, Error, Installation, Reaction, call, image, page};
use serde_json::Value;

use super::{Demo, table};
use crate::testbed::point_kubectl_at;

const PAGE: &str = "docs/quickstart.md";
const REGISTRY: &str = "registry.example/lucid";
const NAMESPACE: &str = "shop";
const POD: &str = "model";

pub(super) async fn play(demo: &Demo) -> Result<(), Error> {
    eprintln!("demo: building Lucid and its images, and starting a cluster with a node");
    let site = Installation::prepare().await?;
    let page = fs::read_to_string(page::root().join(PAGE))?;
    let operator = image("lucid-operator")?.reference;
    let (registry, _) = operator.rsplit_once('/').ok_or("an image has no registry")?;
    let digest = image("lucid-guardrails-auditor")?.digest;
    let here = |text: &str| text.replace(REGISTRY, registry).replace("$digest", &digest);

    eprintln!("demo: helm install lucid charts/lucid, with the values of {PAGE}");
    site.install(&here(between(&page, "cat > values.yaml <<END\n", "\nEND\n")?)).await?;
    eprintln!("demo: a pod with a model, and its auditors");
    let pod = here(between(&page, "kubectl apply --namespace shop -f - <<END\n", "\nEND\n")?);
    let address = deploy(&site, &pod).await?;

    let mut table = table();
    table.set_header(["request", "response"]);
    let mut surprises = Vec::new();
    let requests: Vec<_> =
        page.lines().filter_map(|line| line.strip_prefix("ask '")?.strip_suffix('\'')).collect();
    let expected = [None, Some(between(&page, "```json\n", "\n```")?), Some(between(&page, "reads `", "`")?)];
    if requests.len() != expected.len() {
        return Err(format!("{PAGE} has {} requests, not {}", requests.len(), expected.len()).into());
    }
    for (request, expected) in requests.into_iter().zip(expected) {
        let reaction = call(&site.cluster, address, "/v1/chat/completions", Some(request)).await?;
        let answer = text(&reaction);
        let is_expected = match expected.map(|expected| (expected, serde_json::from_str::<Value>(expected))) {
            None => reaction.status == 200,
            Some((_, Ok(body))) => reaction.status == 403 && reaction.body == body,
            Some((words, Err(_))) => reaction.status == 200 && answer == words,
        };
        if !is_expected {
            surprises.push(format!("{request}: {} {answer}", reaction.status));
        }
        table.add_row([request, &answer]);
    }
    println!("\n{table}\n");
    if !surprises.is_empty() {
        return Err(format!("responses that differ from {PAGE}:\n{}", surprises.join("\n")).into());
    }
    if !demo.once {
        println!("The cluster stays up. In another terminal:\n");
        point_kubectl_at(&site.cluster).await?;
        println!("    kubectl --namespace {NAMESPACE} logs {POD} --all-containers");
        println!("    kubectl --namespace {NAMESPACE} describe pod {POD}");
        println!("\nCtrl-C ends everything.");
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// Returns the first part of the page that is enclosed so.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> Result<&'t str, Error> {
    let part = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    Ok(part.ok_or_else(|| format!("{PAGE} has no text between {begin:?} and {end:?}"))?.0)
}

/// Creates the pod and waits until it is ready. Returns the address of its model.
async fn deploy(site: &Installation, pod: &str) -> Result<SocketAddr, Error> {
    site.cluster.create_namespace(NAMESPACE, &[("lucid.computing/enabled", "true")]).await?;
    let output = site.cluster.kubectl(&["apply", "-n", NAMESPACE, "-f", "-"], pod)?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let name = format!("pod/{POD}");
    let ready = ["wait", "-n", NAMESPACE, &name, "--for=condition=Ready", "--timeout=180s"];
    site.kubectl(&ready)
        .map_err(|error| format!("{error}\n{}", site.kubectl_says(&["describe", "-n", NAMESPACE, &name])))?;
    let pods = Api::<Pod>::namespaced(site.cluster.client(), NAMESPACE);
    let address = pods.get(POD).await?.status.and_then(|status| status.pod_ip);
    let address: IpAddr = address.ok_or("a pod that is ready has no address")?.parse()?;
    Ok((address, 5000).into())
}

/// Returns the text of the completion, streamed or not, or the body of another answer.
fn text(answer: &Reaction) -> String {
    if let Some(text) = answer.body["choices"][0]["message"]["content"].as_str() {
        return text.to_owned();
    }
    let Some(events) = answer.body.as_str() else { return answer.body.to_string() };
    let chunks =
        events.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let words =
        chunks.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned));
    let text: String = words.collect();
    if text.is_empty() { events.to_owned() } else { text }
}
