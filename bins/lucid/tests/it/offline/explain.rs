//! Explanations of plans.

use serde_json::Value;

use super::common::*;

#[test]
fn a_port_is_explained() {
    let pod = POD
        .replace("containerPort: 5000", "containerPort: 5000\n      name: http\n    - containerPort: 8090");
    let text = piped(&["explain"], &pod);
    for part in [
        "Pod web (-, document 1 at line 1)",
        "port 8093 because 8090 is taken by container model",
        "8096 (lucid-guardrails-auditor-2)",
        "5000 (the model)",
        "port named http of container model",
        "built-in default",
        "label lucid.io/secured",
        "hardened",
        "```mermaid\nflowchart LR\n",
        "a1[\"lucid-guardrails-auditor<br/>port 8093, uid 20001\"] -->|\"8096\"| a2\n",
        "a2[\"lucid-guardrails-auditor-2<br/>port 8096, uid 20002\"] -->|\"5000\"| model\n",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(!piped(&["explain", "-o", "table"], &pod).contains("mermaid"));
}

#[test]
fn every_setting_has_its_source() {
    let pod = POD.replace(
        "  labels:",
        "  annotations: {lucid.computing/direction: both, lucid.computing/target-port: '7000', lucid.computing/auditors: 'toxicity'}\n  labels:",
    );
    let json = piped(
        &[
            "explain",
            "-o",
            "json",
            "--audit-mode",
            "observe",
            "--namespace-labels",
            "pod-security.kubernetes.io/enforce=baseline",
        ],
        &pod,
    );
    let reports: Value = serde_json::from_str(&json).unwrap();
    let report = &reports[0];
    let setting = |name: &str| {
        let found = report["settings"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
        (found["value"].as_str().unwrap(), found["source"].as_str().unwrap())
    };
    assert_eq!(setting("chain"), ("lucid-toxicity-auditor", "annotation lucid.computing/auditors"));
    assert_eq!(setting("model port"), ("7000", "annotation lucid.computing/target-port"));
    assert_eq!(setting("audit mode"), ("observe", "operator configuration"));
    assert_eq!(setting("direction"), ("both", "annotation"));
    assert_eq!(setting("sidecar mode"), ("containers", "restartPolicy of the pod"));
    assert_eq!(setting("intercept"), ("env", "Pod Security level baseline of the namespace"));
    assert_eq!(setting("outbound port"), ("8000", "built-in default"));
    let container = &report["containers"][0];
    assert_eq!(
        (&container["port"], &container["nextPort"], &container["uid"]),
        (&8093.into(), &7000.into(), &20001.into())
    );
    assert!(!report["warnings"].as_array().unwrap().is_empty());
}

#[test]
fn open_ports_are_listed_with_their_reasons() {
    let ports = "containerPort: 5000\n      name: http\n    - containerPort: 9090\n    readinessProbe: {tcpSocket: {port: 8081}}";
    let annotations =
        "annotations: {lucid.computing/open-ports: '9091', lucid.computing/other-ports: closed}";
    let pod = POD.replace("containerPort: 5000", ports);
    let closed = pod.replace("  labels:", &format!("  {annotations}\n  labels:"));
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, annotations: {lucid.computing/other-ports: closed}}\n---\n";
    let open_ports = |input: &str, arguments: &[&str]| {
        let json = piped(&[&["explain", "-o", "json"][..], arguments].concat(), input);
        let reports: Value = serde_json::from_str(&json).unwrap();
        let settings = reports[0]["settings"].as_array().unwrap();
        let found = settings.iter().find(|it| it["name"] == "open ports").unwrap();
        (found["value"].as_str().unwrap().to_owned(), found["source"].as_str().unwrap().to_owned())
    };
    let expected = |value: &str, source: &str| (value.to_owned(), source.to_owned());
    let declared = "9090 (declared by container model)";
    let probed = "8081 (probe or hook of container model)";
    assert_eq!(open_ports(&pod, &[]), expected(declared, "other ports open (built-in default)"));
    let listed = format!("{probed}, 9091 (annotation lucid.computing/open-ports)");
    assert_eq!(open_ports(&closed, &[]), expected(&listed, "other ports closed (annotation)"));
    assert_eq!(
        open_ports(&format!("{namespace}{pod}"), &[]),
        expected(probed, "other ports closed (annotation of the namespace)")
    );
    let unaudited = format!("5000 (declared by container model), {declared}");
    assert_eq!(open_ports(&closed, &["--intercept", "env"]), expected(&unaudited, "intercept env"));
}

#[test]
fn files_and_variables_from_objects_are_listed() {
    let digest = format!("sha256:{}", "2".repeat(64));
    let catalogue = format!(
        "chain: [{{name: topics, image: r.test/topics, env: {{A: text, TOKEN: {{valueFrom: {{secretKeyRef: {{name: s, key: k}}}}}}}}, \
         files: [{{mountPath: /rules, configMap: {{name: rules}}}}, {{mountPath: /m, image: {{reference: 'r.test/m@{digest}'}}}}]}}]"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auditors.yaml");
    std::fs::write(&file, catalogue).unwrap();
    let arguments = ["explain", "--catalogue", file.to_str().unwrap(), "--chain", "topics"];
    let json = piped(&[&arguments[..], &["-o", "json"]].concat(), POD);
    let reports: Value = serde_json::from_str(&json).unwrap();
    let settings = reports[0]["settings"].as_array().unwrap();
    let value = |name: &str| settings.iter().find(|it| it["name"] == name).unwrap()["value"].clone();
    assert_eq!(value("variables of topics"), "TOKEN from secretKeyRef s/k");
    assert_eq!(
        value("files of topics"),
        format!("/rules from ConfigMap rules, /m from image r.test/m@{digest}")
    );
    let text = piped(&arguments, POD);
    assert!(text.contains(&format!("/m from image r.test/m@{digest}")), "{text}");
}

#[test]
fn annotations_count_as_the_namespace_allows() {
    let pod = POD.replace("  labels:", "  annotations: {lucid.computing/audit-mode: observe}\n  labels:");
    let ignored = "annotation lucid.computing/audit-mode is ignored";
    for (key, value, counts) in [
        ("lucid.computing/require-chain", "'true'", false),
        ("lucid.computing/pod-choices", "chain", false),
        ("lucid.computing/pod-choices", "all", true),
    ] {
        for list in ["labels", "annotations"] {
            let namespace = format!(
                "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: default, {list}: {{{key}: {value}}}}}\n"
            );
            let text = piped(&["explain", "-o", "json"], &(pod.clone() + &namespace));
            assert_eq!(!text.contains(ignored), counts, "{list} {key}: {text}");
        }
        let flag = format!("{key}={}", value.replace('\'', ""));
        let text = piped(&["explain", "-o", "json", "--namespace-labels", &flag], &pod);
        assert_eq!(!text.contains(ignored), counts, "{flag}: {text}");
    }
    let flag = "lucid.computing/pod-choices=some";
    let text = piped(&["explain", "--namespace-labels", flag], &pod);
    assert!(text.contains("namespace default, lucid.computing/pod-choices"), "{text}");
}

#[test]
fn the_graph_has_every_chain_once() {
    let graph = run(
        &["explain", "-o", "mermaid", "-f", path("kinds.yaml").to_str().unwrap(), "--direction", "both"],
        "",
    )
    .output;
    assert!(graph.starts_with("flowchart LR\n"));
    assert_eq!(graph.matches("subgraph ").count(), 9, "{graph}");
    assert_eq!(graph.matches("subgraph ").count(), graph.lines().filter(|line| line.trim() == "end").count());
    for text in ["Deployment in-the-same-list", "w0_client([\"client\"])", "w0_app([\"application\"])"] {
        assert!(graph.contains(text), "{text}: {graph}");
    }
}

#[test]
fn pods_without_a_chain_have_a_reason() {
    let text = piped(&["explain"], &POD.replace("lucid.io/secured", "app"));
    assert!(text.contains("the pod does not request one"), "{text}");
    let ran = run(&["explain", "-f", "-", "-o", "json"], &POD.replace("spec:", "spec:\n  hostNetwork: true"));
    assert_eq!(ran.code, 1);
    let reports: Value = serde_json::from_str(&ran.output).unwrap();
    assert_eq!(reports[0]["decision"], "refused");
    assert!(reports[0]["reason"].as_str().unwrap().contains("hostNetwork"));
    assert_eq!(piped(&["explain"], &manifest("foreign.yaml")), "");
}
