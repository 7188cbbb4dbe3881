//! Refused documents and their messages.

use serde_json::Value;

use super::common::*;

const HOST_NETWORK: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: edge, namespace: shop}\nspec:\n  template:\n    metadata: {labels: {lucid.io/secured: \"true\"}}\n    spec: {hostNetwork: true, containers: [{name: model}]}\n";

#[test]
fn a_refused_document_is_left_out_and_the_others_are_printed() {
    let before = "kind: Other # first\n---\n";
    let text = format!("{before}{HOST_NETWORK}---\n{POD}");
    let ran = run(&["inject", "-f", "-"], &text);
    assert_eq!(ran.code, 1);
    assert!(
        ran.messages.contains("error: -, document 2 at line 3, Deployment shop/edge: "),
        "{}",
        ran.messages
    );
    assert!(ran.messages.contains("hostNetwork"), "{}", ran.messages);
    assert!(ran.output.starts_with("kind: Other # first\n---\n"), "{}", ran.output);
    let found = values(&ran.output);
    assert_eq!(found.iter().map(|it| it["kind"].as_str().unwrap()).collect::<Vec<_>>(), ["Other", "Pod"]);
    assert_eq!(names(&found[1]["spec"]["containers"]).len(), 3);

    let ran = run(&["inject", "-f", "-", "-o", "patch"], &text);
    let lines: Vec<Value> = ran.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((ran.code, lines.len()), (1, 3));
    assert_eq!((&lines[0], &lines[1]), (&serde_json::json!([]), &Value::Null));

    // With rules left out it can be done.
    assert_eq!(run(&["inject", "-f", "-", "--intercept", "env"], &text).code, 0);
}

#[test]
fn a_refused_item_is_left_out_of_its_list() {
    let indent = |text: &str| text.replace('\n', "\n  ").trim_end().to_owned();
    let list = format!("kind: List\napiVersion: v1\nitems:\n- {}\n- {}\n", indent(HOST_NETWORK), indent(POD));
    let ran = run(&["inject", "-f", "-"], &list);
    assert_eq!(ran.code, 1);
    assert!(ran.messages.contains("Deployment shop/edge"), "{}", ran.messages);
    let injected = values(&ran.output).remove(0);
    let items = &injected["items"];
    assert_eq!(items.as_array().unwrap().len(), 1);
    assert_eq!(names(&items[0]["spec"]["containers"]).len(), 3);

    // Applying the patch has the same result: no item without its chain.
    let ran = run(&["inject", "-f", "-", "-o", "patch"], &list);
    assert_eq!(ran.code, 1);
    let mut document = values(&list).remove(0);
    let patch: json_patch::Patch = serde_json::from_str(&ran.output).unwrap();
    json_patch::patch(&mut document, &patch).unwrap();
    assert_eq!(&document["items"], items);
}

#[test]
fn unreadable_documents_are_refused_with_their_line() {
    for (text, says) in [
        ("a: 1\n---\nkind: Pod\nkind: Pod\n", "document 2: line 4, column 1: found the key \"kind\" twice"),
        ("a: [\n", "document 1: line "),
        ("{\"a\": 1,\n\"b\": ]}", "document 1: line 2, column 6: expected value"),
    ] {
        let text = format!("{text}\n---\n{POD}");
        let ran = run(&["inject", "-f", "-"], &text);
        assert_eq!(ran.code, 1, "{}", ran.output);
        assert!(ran.messages.contains(says), "{}", ran.messages);
        assert!(ran.output.ends_with("- downwardAPI: {}\n    name: lucid-no-token\n"), "{}", ran.output);
        assert_eq!(run(&["uninject", "-f", "-"], &text).code, 1);
        assert_eq!(run(&["explain", "-f", "-"], &text).code, 1);
    }
    // The API server refuses it, too: the value of a variable is not a boolean.
    let ran = run(
        &["inject", "-f", "-"],
        &POD.replace("    ports:", "    env: [{name: A, value: yes}]\n    ports:"),
    );
    assert_eq!(ran.code, 1);
    assert!(ran.messages.contains("spec.containers[0].env[0].value"), "{}", ran.messages);
}

#[test]
fn usage_errors_have_their_own_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.yaml");
    std::fs::write(&broken, "chain:\n- name: x\n").unwrap();
    let broken = broken.to_str().unwrap();
    let binary = folder.path().join("binary");
    std::fs::write(&binary, [0xff, 0xfe, 0]).unwrap();
    for (arguments, says) in [
        (vec!["inject"], "--file"),
        (vec!["inject", "-f", "/nonexistent/a.yaml"], "/nonexistent/a.yaml"),
        (vec!["inject", "-f", folder.path().to_str().unwrap()], "failed to read"),
        (vec!["inject", "-f", binary.to_str().unwrap()], "failed to read"),
        (vec!["inject", "-f", "-", "-o", "xml"], "xml"),
        (vec!["inject", "-f", "-", "--catalogue", "/nonexistent/b.yaml"], "/nonexistent/b.yaml"),
        (vec!["inject", "-f", "-", "--catalogue", broken], "line 2"),
        (vec!["inject", "-f", "-", "--chain", "injectoin"], "did you mean lucid-injection-auditor?"),
        (vec!["inject", "-f", "-", "--namespace-labels", "a"], "key=value"),
        (vec!["inject", "-f", "-", "--namespace-config", broken], "lucid-auditor-chain"),
        (vec!["uninject", "-f", "/nonexistent/a.yaml"], "/nonexistent/a.yaml"),
        (vec!["explain", "-f", "/nonexistent/a.yaml"], "/nonexistent/a.yaml"),
        (vec!["review", "-f", "/nonexistent/a.json"], "/nonexistent/a.json"),
    ] {
        let ran = run(&arguments, POD);
        assert_eq!((ran.code, ran.output.as_str()), (2, ""), "{arguments:?}: {}", ran.messages);
        assert!(ran.messages.contains(says), "{arguments:?}: {}", ran.messages);
    }
}

#[test]
fn invalid_pod_annotations_are_warnings() {
    let pod =
        POD.replace("  labels:", "  annotations:\n    lucid.computing/audit-mode: sometimes\n  labels:");
    let ran = run(&["inject", "-f", "-"], &pod);
    assert_eq!(ran.code, 0);
    assert!(
        ran.messages
            .contains("warning: -, document 1 at line 1, Pod web: annotation lucid.computing/audit-mode")
    );
}

#[test]
fn forged_status_annotations_remove_no_containers() {
    let pod = POD.replace(
        "  labels:",
        "  annotations:\n    lucid.computing/status: '{\"chain\":[\"model\"]}'\n  labels:",
    );
    let ran = run(&["uninject", "-f", "-"], &pod);
    assert_eq!(ran.code, 0);
    assert_eq!(names(&values(&ran.output)[0]["spec"]["containers"]), ["model"]);
    assert!(ran.messages.contains("\"model\" stays"), "{}", ran.messages);
}

#[test]
fn neighbours_of_a_refused_json_document_stay_apart() {
    let refused = serde_json::to_string(&values(HOST_NETWORK)[0]).unwrap();
    let ran = run(
        &["inject", "-f", "-"],
        &format!("kind: A\n---\n{refused}\n{{\"kind\": \"B\"}} {{\"kind\": \"C\"}}\n"),
    );
    let kinds: Vec<Value> = values(&ran.output).into_iter().map(|mut it| it["kind"].take()).collect();
    assert_eq!((ran.code, kinds), (1, vec!["A".into(), "B".into(), "C".into()]), "{}", ran.output);
}
