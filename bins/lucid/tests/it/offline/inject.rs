//! Injection into files, and the way back.

use serde_json::Value;

use super::common::*;

const ALL: [&str; 4] = ["helm.yaml", "kinds.yaml", "foreign.yaml", "stored.json"];

#[test]
fn documents_without_a_trigger_stay_unchanged() {
    let foreign = manifest("foreign.yaml");
    assert_eq!(piped(&["inject"], &foreign), foreign);
    assert_eq!(piped(&["uninject"], &foreign), foreign);
    for odd in ["", "\n", "# nothing\n---\n", "\u{feff}a: 1", "a: 1\r\n---\r\nb: 2"] {
        assert_eq!(piped(&["inject"], odd), odd);
    }
}

#[test]
fn injection_is_idempotent() {
    for name in ALL {
        let injected = piped(&["inject"], &manifest(name));
        assert_eq!(piped(&["inject"], &injected), injected, "{name}");
    }
}

#[test]
fn uninject_gives_the_original_back() {
    for name in ALL {
        let before = manifest(name);
        let after = piped(&["uninject"], &piped(&["inject"], &before));
        assert_eq!(values(&after), values(&before), "{name}");
    }
    for secret in ["mirror", "mirror,other"] {
        let before = manifest("helm.yaml");
        let after = piped(&["inject", "--image-pull-secrets", secret, "--direction", "both"], &before);
        assert_eq!(values(&piped(&["uninject"], &after)), values(&before));
    }
}

#[test]
fn every_kind_with_a_pod_gets_its_chain() {
    const CHAIN: [&str; 2] = ["lucid-guardrails-auditor", "lucid-guardrails-auditor-2"];
    let injected = values(&piped(&["inject"], &manifest("kinds.yaml")));
    let spec = |document: usize, path: &str| injected[document].pointer(path).unwrap();
    for (document, path) in [(0, "/spec"), (1, "/spec/template/spec"), (3, "/spec/template/spec")] {
        let spec = spec(document, path);
        assert_eq!(names(&spec["containers"]), [&["model"], &CHAIN[..]].concat(), "{spec}");
        assert_eq!(names(&spec["initContainers"]), ["lucid-init"]);
    }
    let daemon_set = spec(2, "/spec/template/spec");
    let chain = [&["model", "second"], &CHAIN[..], &["lucid-egress"]].concat();
    assert_eq!(names(&daemon_set["containers"]), chain);
    for application in 0..2 {
        assert_eq!(names(&daemon_set["containers"][application]["env"]), ["A", "AUDITOR_URL"]);
    }
    // The annotation selects the chain.
    assert_eq!(names(&spec(4, "/spec/template/spec")["containers"]), ["model", "lucid-toxicity-auditor"]);
    // Jobs complete: their auditors are native sidecars.
    let job = spec(5, "/spec/template/spec");
    assert_eq!(names(&job["containers"]), ["model"]);
    assert_eq!(names(&job["initContainers"]), [&CHAIN[..], &["lucid-init"]].concat());
    let cron_job = spec(6, "/spec/jobTemplate/spec/template/spec");
    assert_eq!(names(&cron_job["initContainers"]), [&["setup"], &CHAIN[..], &["lucid-init"]].concat());
    assert_eq!(spec(7, "/items/0/kind"), "Service");
    assert_eq!(names(spec(7, "/items/1/spec/containers")), [&["model"], &CHAIN[..]].concat());
    assert_eq!(names(spec(7, "/items/2/spec/template/spec/containers")).len(), 3);
    assert_eq!(names(spec(8, "/spec/template/spec/containers")), ["web"]);
}

#[test]
fn scalars_are_parsed_as_by_kubectl() {
    let injected = piped(&["inject"], &manifest("kinds.yaml"));
    for text in ["containerPort: 5000\n", "hostNetwork: false\n", "value: http://localhost:5000\n"] {
        assert!(injected.contains(text), "{text}");
    }
}

#[test]
fn items_of_typed_lists_may_omit_their_kind() {
    let pods = r#"{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a", "labels": {"lucid.io/secured": "true"}},
        "spec": {"containers": [{"name": "web"}]}}]}"#;
    let injected: Value = serde_json::from_str(&piped(&["inject"], pods)).unwrap();
    assert_eq!(names(&injected["items"][0]["spec"]["containers"]).len(), 3);
}

#[test]
fn force_needs_no_trigger() {
    let unasked = POD.replace("lucid.io/secured", "app");
    assert_eq!(piped(&["inject"], &unasked), unasked);
    let forced = piped(&["inject", "--force"], &unasked);
    assert_eq!(names(&values(&forced)[0]["spec"]["containers"]).len(), 3);
    assert_eq!(values(&piped(&["uninject"], &forced)), values(&unasked));
}

#[test]
fn the_namespace_decides_as_in_a_cluster() {
    let restricted = run(
        &["inject", "-f", "-", "--namespace-labels", "a=b,pod-security.kubernetes.io/enforce=restricted"],
        POD,
    );
    assert_eq!(restricted.code, 0);
    assert!(!restricted.output.contains("lucid-init"), "{}", restricted.output);
    assert!(restricted.messages.contains("restricted"), "{}", restricted.messages);

    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: baseline}}\n---\n";
    let in_shop = POD.replace("name: web", "name: web\n  namespace: shop");
    let with = |rest: &str, arguments: &[&str]| {
        piped(&[&["inject"], arguments].concat(), &format!("{namespace}{rest}"))
    };
    assert!(!with(&in_shop, &[]).contains("lucid-init"));
    assert!(with(POD, &[]).contains("lucid-init"));
    assert!(!with(POD, &["--namespace", "shop"]).contains("lucid-init"));

    let chain = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: lucid-auditor-chain, namespace: shop}\ndata: {chain: toxicity}\n---\n";
    let injected = values(&piped(&["inject"], &format!("{chain}{in_shop}")));
    assert_eq!(names(&injected[1]["spec"]["containers"]), ["model", "lucid-toxicity-auditor"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chain.yaml");
    std::fs::write(&file, chain).unwrap();
    let injected = values(&piped(&["inject", "--namespace-config", file.to_str().unwrap()], POD));
    assert_eq!(names(&injected[0]["spec"]["containers"]), ["model", "lucid-toxicity-auditor"]);

    for arguments in [
        ["--namespace", "kube-system"],
        ["-n", "lucid-system"],
        ["--namespace-labels", "lucid.computing/enabled=false"],
    ] {
        let ran = run(&[&["inject", "-f", "-"], &arguments[..]].concat(), POD);
        assert_eq!((ran.code, ran.output.as_str()), (0, POD), "{arguments:?}");
        assert!(ran.messages.contains("no auditors: "), "{}", ran.messages);
    }
}

#[test]
fn the_configuration_is_that_of_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("auditors.yaml");
    std::fs::write(&config, "chain:\n- {name: topics, image: 'registry.example/topics:1', port: 9000}\n")
        .unwrap();
    let arguments = [
        "inject",
        "--catalogue",
        config.to_str().unwrap(),
        "--chain",
        "topics,toxicity",
        "--audit-mode",
        "observe",
    ];
    let injected = values(&piped(&arguments, POD));
    let containers = &injected[0]["spec"]["containers"];
    assert_eq!(names(containers), ["model", "topics", "lucid-toxicity-auditor"]);
    assert_eq!(containers[1]["image"], "registry.example/topics:1");
    assert!(containers[1]["env"].to_string().contains("observe"));
}

#[test]
fn uninject_reports_a_pod_whose_status_annotation_is_missing() {
    let injected = piped(&["inject"], POD);
    let mut pod = values(&injected).remove(0);
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("lucid.computing/status").unwrap();
    let ran = run(&["uninject", "-f", "-"], &pod.to_string());
    assert_eq!((ran.code, &values(&ran.output)[0]), (0, &pod));
    assert!(ran.messages.contains("lucid-guardrails-auditor\" is an auditor"), "{}", ran.messages);
}
