//! A real API server takes what is printed.

use lucid_e2e::ClusterExt as _;
use lucid_testbed::Cluster;
use serde_json::Value;

use super::common::*;

/// Runs kubectl with `input` at its standard input; it has to succeed.
fn kubectl(cluster: &Cluster, arguments: &[&str], input: &str) -> String {
    let output = cluster.kubectl(arguments, input).unwrap();
    assert!(output.status.success(), "{arguments:?}: {}\n{input}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_printed_objects_and_parses_them_alike() {
    let cluster = Cluster::builder().start().await.unwrap();
    kubectl(&cluster, &["create", "namespace", "shop"], "");
    for (name, formats) in
        [("helm.yaml", &["yaml", "json"][..]), ("kinds.yaml", &["yaml", "json"]), ("stored.json", &["yaml"])]
    {
        let before = manifest(name);
        for format in formats {
            let injected = piped(&["inject", "-o", format], &before);
            kubectl(&cluster, &["apply", "--dry-run=server", "-f", "-"], &injected);
        }
        // The request that kubectl would send.
        let sent = kubectl(
            &cluster,
            &["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"],
            &before,
        );
        let sent: Vec<Value> = values(&sent).iter().flat_map(objects).map(spec).collect();
        let read: Vec<Value> = values(&before).iter().flat_map(objects).map(spec).collect();
        assert_eq!(sent, read, "{name}");
    }
}

/// The items of a list, or the object alone.
fn objects(value: &Value) -> Vec<Value> {
    match value["items"].as_array() {
        Some(items) => items.iter().flat_map(objects).collect(),
        None => vec![value.clone()],
    }
}

/// Fields that kubectl neither defaults nor extends.
fn spec(object: Value) -> Value {
    object["spec"].clone()
}
