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

fn policy<'a>(documents: &'a [Value], name: &str) -> &'a Value {
    &documents.iter().find(|it| key(it) == ("NetworkPolicy", name)).unwrap()["spec"]
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

#[tokio::test]
async fn policies_allow_api_servers_prometheus_and_the_verifier() {
    let documents = installed(&[
        "verifier.enabled=true",
        "networkPolicy.apiServerCidrs={10.0.0.1/32}",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring",
        "networkPolicy.auditFrom[0].podSelector.matchLabels.reads=decisions",
    ])
    .await;
    // Probes come from the node, which no policy blocks.
    let pods =
        |program: &str| format!("{{podSelector: {{matchLabels: {{app.kubernetes.io/name: {program}}}}}}}");
    // `helm test` checks the certificates.
    let check = pods("lucid-check");
    let reader = "{podSelector: {matchLabels: {reads: decisions}}}";
    let webhook = &*format!(
        "{{ports: [{{port: webhook}}], from: [{{ipBlock: {{cidr: 10.0.0.1/32}}}}, {check}, {reader}]}}"
    );
    let programs = format!("{}, {}", pods("lucid-operator"), pods("lucid-validator"));
    let webhooks = &*format!("{{ports: [{{port: webhook}}], to: [{programs}]}}");
    let metrics = "{ports: [{port: admin}], from: [{namespaceSelector: {matchLabels: {name: monitoring}}}]}";
    let dns = "{ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}, {port: 5353, protocol: UDP}, {port: 5353, protocol: TCP}]}";
    let api_server = "{ports: [{port: 443}, {port: 6443}], to: [{ipBlock: {cidr: 10.0.0.1/32}}]}";
    let verifier = &*format!("{{ports: [{{port: 8080}}], to: [{}]}}", pods("lucid-verifier"));
    for (program, ingress, egress) in [
        ("lucid-operator", &[webhook, metrics][..], &[dns, api_server, verifier][..]),
        ("lucid-validator", &[webhook, metrics], &[dns, api_server, verifier]),
        ("lucid-cainjector", &[metrics], &[dns, api_server]),
        ("lucid-check", &[], &[dns, api_server, webhooks]),
        ("lucid-uninstall", &[], &[dns, api_server]),
    ] {
        let spec = policy(&documents, program);
        let list = |rules: &[&str]| yaml(&format!("[{}]", rules.join(", ")));
        assert_eq!(spec["ingress"], list(ingress), "{program}");
        assert_eq!(spec["egress"], list(egress), "{program}");
    }
    let spec = policy(&documents, "lucid-verifier");
    assert_eq!(spec["ingress"], yaml(&format!("[{{ports: [{{port: http}}], from: [{programs}]}}]")));
    assert!(spec["egress"].is_null(), "it calls no other program");
}

#[tokio::test]
async fn external_verifiers_are_reached_at_the_port_of_their_url() {
    for (url, port) in [
        ("https://verifier.example", 443),
        ("http://verifier.example/path", 80),
        ("https://verifier.example:8443/path", 8443),
        ("http://[fd00::1]:8080", 8080),
        ("http://[fd00::1]", 80),
    ] {
        let documents = installed(&[&format!("notary.url={url}")]).await;
        let egress = &policy(&documents, "lucid-operator")["egress"];
        assert_eq!(egress[2], yaml(&format!("{{ports: [{{port: {port}}}]}}")), "{url}");
    }
    // A Service in the cluster may map to another port, which the policy must allow.
    let values = ["notary.url=http://verifier.sec.svc", "networkPolicy.verifierPorts={8080}"];
    let documents = installed(&values).await;
    let egress = &policy(&documents, "lucid-operator")["egress"];
    assert_eq!(egress[2], yaml("{ports: [{port: 80}, {port: 8080}]}"));
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
