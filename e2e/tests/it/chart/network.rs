//! Network policies.

use serde_yaml::Value;

use super::{documents, key, pods, template};

async fn installed(values: &[&str]) -> Vec<Value> {
    let everything = ["networkPolicy.enabled=true", "webhooks.validating.by=both", "cainjector.enabled=true"];
    documents(&template("lucid-system", &[&everything, values].concat(), &[]).await.unwrap())
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

#[tokio::test]
async fn every_pod_has_one_policy_for_both_directions() {
    let documents = installed(&["verifier.enabled=true"]).await;
    let policies: Vec<_> = documents.iter().filter(|it| it["kind"] == "NetworkPolicy").collect();
    let mut pods_found = 0;
    for document in documents.iter().filter(|it| pods(it).is_some()) {
        let labels = match document["kind"].as_str() {
            Some("Pod") => &document["metadata"]["labels"],
            _ => &document["spec"]["template"]["metadata"]["labels"],
        };
        let selects = |policy: &&&Value| {
            let wanted = policy["spec"]["podSelector"]["matchLabels"].as_mapping().unwrap();
            !wanted.is_empty() && wanted.iter().all(|(label, value)| labels[label] == *value)
        };
        let [policy] = policies.iter().filter(selects).collect::<Vec<_>>()[..] else {
            panic!("{:?}", key(document))
        };
        assert_eq!(policy["spec"]["policyTypes"], yaml("[Ingress, Egress]"));
        pods_found += 1;
    }
    assert_eq!((pods_found, policies.len()), (6, 6));
}

/// In the Prometheus operator, an endpoint names a port of a Service, which maps to a container port.
#[tokio::test]
async fn prometheus_finds_the_metrics_of_every_program() {
    let documents = installed(&["metrics.serviceMonitor.enabled=true", "verifier.enabled=true"]).await;
    let monitor = &documents.iter().find(|it| it["kind"] == "ServiceMonitor").unwrap()["spec"];
    let wanted = monitor["selector"]["matchLabels"].as_mapping().unwrap();
    let [endpoint] = &monitor["endpoints"].as_sequence().unwrap()[..] else { panic!("{monitor:?}") };
    assert_eq!(endpoint["path"], "/metrics");
    let mut found = Vec::new();
    for service in documents.iter().filter(|it| it["kind"] == "Service") {
        let labels = &service["metadata"]["labels"];
        if !wanted.iter().all(|(label, value)| labels[label] == *value) {
            continue;
        }
        let [port] = &service["spec"]["ports"].as_sequence().unwrap()[..] else { panic!("{service:?}") };
        assert_eq!(port["name"], endpoint["port"]);
        let program = service["spec"]["selector"]["app.kubernetes.io/name"].as_str().unwrap();
        let workload = documents.iter().find(|it| key(it) == ("Deployment", program)).unwrap();
        let ports = &pods(workload).unwrap()["containers"][0]["ports"];
        assert!(ports.as_sequence().unwrap().iter().any(|it| it["name"] == port["targetPort"]), "{ports:?}");
        assert_eq!(labels["app.kubernetes.io/name"], program, "by which jobs are called");
        found.push(program);
    }
    assert_eq!(found, ["lucid-operator", "lucid-validator", "lucid-cainjector"]);
}
