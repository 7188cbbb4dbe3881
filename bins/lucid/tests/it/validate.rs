//! `lucid validate` as a process.

use crate::program::run_command;

/// Returns exit code, standard output and standard error.
fn review(pod: &str, arguments: &[&str]) -> (i32, String, String) {
    run_command("validate", arguments, pod)
}

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [
    {"name": "web", "image": "example.com/web:1"},
    {"name": "lucid-toxicity-auditor", "image": "ghcr.io/lucid/lucid-toxicity-auditor:latest"}]}}"#;
const PLAIN: &str = r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]}}"#;
/// Options that refuse images that are not notarized, and nothing else.
const STRICT: [&str; 4] = [
    "--strict-notarization",
    "--admission-mode=enforce",
    "--tier-label=",
    "--verifier-url=http://127.0.0.1:1",
];

#[test]
fn a_pod_is_refused_allowed_with_warnings_or_allowed() {
    let line = "container lucid-toxicity-auditor, image ghcr.io/lucid/lucid-toxicity-auditor:latest: missing digest\n";
    let (code, output, _) = review(POD, &STRICT);
    assert_eq!((code, output), (1, format!("{line}refused\n")));
    for arguments in [&["--tier-label="][..], &["--tier-label=", "--strict-notarization", STRICT[3]]] {
        let (code, output, _) = review(POD, arguments);
        assert_eq!((code, output), (0, format!("{line}allowed with warnings\n")), "{arguments:?}");
    }
    let (code, output, _) = review(PLAIN, &STRICT);
    assert_eq!((code, output.as_str()), (0, "no auditor containers\nallowed\n"));
}

#[test]
fn auditors_of_a_catalogue_count_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = folder.path().join("auditors.yaml");
    std::fs::write(&catalogue, "chain: [{name: topics, image: example.com/web}]").unwrap();
    let (code, output, _) = review(POD, &["--tier-label=", "--catalogue", catalogue.to_str().unwrap()]);
    assert_eq!((code, output.lines().count()), (0, 3), "{output}");
}

const SECURED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {lucid.io/secured: "true"}}
spec: {containers: [{name: web, image: "example.com/web:1"}], shareProcessNamespace: true}
"#;
const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata: {labels: {lucid.io/secured: "true", lucid.computing/break-glass: INC-1}}
    spec: {hostPID: true, containers: [{name: web, image: "example.com/web:1"}]}
"#;

#[test]
fn the_whole_policy_is_applied_to_pods_and_workloads_in_yaml() {
    let enforce = ["--admission-mode", "enforce", "--tier-label", ""];
    let (code, output, _) = review(SECURED, &enforce);
    assert_eq!(code, 1, "{output}");
    assert!(
        output.contains("asks for an auditor chain and has none") && output.ends_with("refused\n"),
        "{output}"
    );
    let (code, output, _) = review(SECURED, &["--admission-mode", "audit"]);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("label lucid.computing/tier is missing"), "{output}");
    assert!(output.ends_with("allowed with warnings\n"), "{output}");
    let (_, output, _) = review(SECURED, &["--admission-mode", "audit", "-o", "json"]);
    assert!(output.contains(r#""tier":"missing""#), "{output}");

    let (code, output, _) = review(DEPLOYMENT, &enforce);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains(r#"break-glass by ticket "INC-1""#), "{output}");
    let (code, output, _) = review(DEPLOYMENT, &[&enforce[..], &["--break-glass-pattern", ""]].concat());
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("hostPID is true") && output.contains("its pods would be refused"), "{output}");
    let (code, output, _) = review(PLAIN, &[&enforce[..], &["--require-chain"]].concat());
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("the namespace requires an auditor chain"), "{output}");
    let chosen = SECURED.replace("labels:", "annotations: {lucid.computing/intercept: env}, labels:");
    let not_allowed = "annotation lucid.computing/intercept is not allowed";
    for (arguments, refused) in [
        (&["--require-chain"][..], true),
        (&["--pod-choices=chain"][..], true),
        (&["--require-chain", "--pod-choices=all"][..], false),
        (&[][..], false),
    ] {
        let (_, output, _) = review(&chosen, &[&enforce[..], arguments].concat());
        assert_eq!(output.contains(not_allowed), refused, "{arguments:?}: {output}");
    }
}

#[test]
fn exemptions_are_read_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exemptions.yaml");
    let review_with = |exemptions: &str| {
        std::fs::write(&file, exemptions).unwrap();
        review(POD, &[&STRICT[..], &["--exemptions", file.to_str().unwrap()]].concat())
    };
    let (code, output, error) = review_with("exemptions: [{name: dev, images: [ghcr.io/lucid]}]");
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("exempt by dev: auditor container lucid-toxicity-auditor"), "{output}");
    for (exemptions, says) in [
        ("exemptions: [{name: dev}]", "at least one of namespaces, images, digests and hostPaths"),
        ("exemptions: [{name: dev, images: [nginx]}]", "does not name a registry"),
        ("exemptions: [{name: dev, namespaces: ['*']}]", "expected the name of a namespace"),
        ("exemptions: [{name: dev, image: [ghcr.io/a]}]", "unknown field `image`"),
        ("exemption: []", "unknown field `exemption`"),
        ("", "exemptions.yaml"),
    ] {
        let (code, output, error) = review_with(exemptions);
        assert_eq!((code, output.as_str()), (2, ""), "{exemptions}");
        assert!(error.contains("exemptions.yaml: ") && error.contains(says), "{exemptions}: {error}");
    }
}

#[test]
fn invalid_policy_settings_are_rejected() {
    for (arguments, says) in [
        (vec!["--admission-mode", "enforced"], "possible values: audit, enforce"),
        (vec!["--break-glass-pattern", "INC-("], "failed to read the pattern of tickets"),
        (vec!["--tier-label", "a b"], "expected a label's key"),
        (vec!["--tier-label=-a"], "expected a label's key"),
        (vec!["--tier-label", "a.-b/tier"], "expected a label's key"),
        (vec!["--exemptions", "/nonexistent/exemptions.yaml"], "/nonexistent/exemptions.yaml"),
    ] {
        let (code, _, error) = review(PLAIN, &arguments);
        assert_eq!(code, 2, "{arguments:?}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
}

#[test]
fn unreadable_input_is_an_error_that_names_it() {
    for (pod, arguments, exit_code, says) in [
        ("{", vec![], 1, "-, document 1: line 2, column 1"),
        (
            "",
            vec![],
            2,
            "expected v1 Pods with containers, workloads with a template of such pods, or AdmissionReviews of either; found nothing",
        ),
        (
            "# nothing\n---\n",
            vec![],
            2,
            "expected v1 Pods with containers, workloads with a template of such pods, or AdmissionReviews of either; found nothing",
        ),
        ("{}", vec![], 2, "; found no apiVersion and no kind"),
        (
            r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}"#,
            vec![],
            1,
            "Pod (without a name): spec.containers is empty",
        ),
        (
            r#"{"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}"#,
            vec![],
            1,
            "Deployment (without a name): spec.template is missing",
        ),
        (
            r#"{"apiVersion": "apps/v1beta1", "kind": "Deployment"}"#,
            vec![],
            1,
            "expected version v1, found apiVersion \"apps/v1beta1\"",
        ),
        (r#"{"apiVersion": "v1", "kind": "List", "items": []}"#, vec![], 2, "found a list without items"),
        (r#"{"apiVersion": "v1", "kind": "Service"}"#, vec![], 2, "found v1 Service"),
        (TWICE, vec![], 1, r#"found the key "labels" twice in one map"#),
        (BOOLEAN, vec![], 1, "metadata.labels.lucid.io/secured: invalid type: boolean `true`"),
        (
            r#"{"apiVersion": "apps/v1", "kind": "Deployment", "spec": 5}"#,
            vec![],
            1,
            "failed to read the Deployment at spec: invalid type: integer",
        ),
        (POD, vec!["--file", "/nonexistent/pod.json"], 2, "/nonexistent/pod.json"),
        (POD, vec!["--catalogue", "/nonexistent/auditors.yaml"], 2, "/nonexistent/auditors.yaml"),
        (POD, vec!["--strict-notarization"], 2, "LUCID_VERIFIER_URL"),
    ] {
        let (code, output, error) = review(pod, &arguments);
        assert_eq!((code, output.as_str()), (exit_code, ""), "{arguments:?}");
        assert!(error.contains(says), "{arguments:?}: {error}");
        // The input is YAML, so positions in JSON would be meaningless.
        assert!(!error.contains("line 1 column"), "{error}");
    }
}

/// A pod with a duplicate key, the first value of which would request a chain.
const TWICE: &str = r#"apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {lucid.io/secured: "true"}
  labels: {app: web}
spec: {containers: [{name: web, image: "example.com/web:1"}]}
"#;
const BOOLEAN: &str = "apiVersion: v1
kind: Pod
metadata: {name: web, labels: {lucid.io/secured: yes}}
spec: {containers: [{name: web, image: 'example.com/web:1'}]}
";

#[test]
fn every_object_of_every_document_and_list_is_judged() {
    let enforce = ["--admission-mode", "enforce", "--tier-label", ""];
    // A single object is reported without its name, regardless of empty documents, comments and byte order marks.
    for around in ["\u{feff}", "---\n", "# comment\n---\n"] {
        let (code, output, error) = review(&format!("{around}{PLAIN}\n---\n"), &enforce);
        assert_eq!((code, output.as_str()), (0, "no auditor containers\nallowed\n"), "{error}");
    }
    let service = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}"#;
    let list = format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{service}, {PLAIN}]}}"#);
    let (code, output, _) = review(&format!("{list}\n---{SECURED}---\n"), &enforce);
    assert_eq!(code, 1, "{output}");
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[..2], ["Pod (without a name): no auditor containers", "Pod (without a name): allowed"]);
    assert!(lines.contains(&"Pod web: refused"), "{output}");

    // Items of a PodList have no kind.
    let pods = r#"{"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]}}]}"#;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, other) = (file("pods.json", pods), file("secured.yaml", SECURED));
    let (code, output, _) = review("", &[&enforce[..], &["-f", &one, "-f", &other]].concat());
    assert_eq!(code, 1, "{output}");
    assert!(output.contains(&format!("{one}: Pod web: allowed\n")), "{output}");
    assert!(output.ends_with(&format!("{other}: Pod web: refused\n")), "{output}");

    // A rejection takes precedence over errors, and an error does not hide the other verdicts.
    let (code, output, error) = review(&format!("{TWICE}---{SECURED}"), &enforce);
    assert_eq!(code, 1, "{output}");
    assert!(output.ends_with("Pod web: refused\n") && error.contains("twice"), "{output}{error}");
    let (code, output, error) = review(&format!("{TWICE}---\n{PLAIN}"), &enforce);
    assert_eq!(code, 1, "{output}");
    assert!(output.ends_with(": allowed\n") && error.contains("no verdict on 1 of 2"), "{output}{error}");
}

#[test]
fn admission_reviews_are_validated_by_their_operation() {
    let enforce = ["--admission-mode", "enforce", "--tier-label", ""];
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"lucid.io/secured": "true"}},
        "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]}}"#;
    let of = |operation: &str, rest: &str| {
        format!(
            r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {{"uid": "1",
            "kind": {{"group": "", "version": "v1", "kind": "Pod"}}, "namespace": "shop", "operation": "{operation}"{rest}}}}}"#
        )
    };
    for (asked, code) in [
        (of("CREATE", &format!(r#", "object": {pod}"#)), 1),
        (of("UPDATE", &format!(r#", "object": {pod}, "oldObject": {pod}"#)), 0),
        (of("DELETE", &format!(r#", "oldObject": {pod}"#)), 0),
        (of("DELETE", &format!(r#", "object": {pod}"#)), 0),
        (of("CONNECT", &format!(r#", "object": {pod}"#)), 0),
    ] {
        let (found, output, error) = review(&asked, &enforce);
        assert_eq!(found, code, "{asked}: {output}{error}");
    }
}

#[test]
fn pods_being_deleted_are_evaluated_like_others() {
    let deleted = SECURED.replace("{name: web,", "{name: web, deletionTimestamp: '2026-01-01T00:00:00Z',");
    let (code, output, _) = review(&deleted, &["--admission-mode", "enforce", "--tier-label", ""]);
    assert_eq!(code, 1, "{output}");
}

#[test]
fn verdicts_are_written_as_json_lines() {
    let enforce = ["-o", "json", "--admission-mode", "enforce", "--tier-label", ""];
    let (code, output, _) = review(&format!("{POD}\n---{SECURED}"), &enforce);
    assert_eq!(code, 1, "{output}");
    let lines: Vec<serde_json::Value> =
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["allowed"], &lines[1]["allowed"]), (2, &true.into(), &false.into()));
    assert_eq!(lines[0]["images"][0]["verdict"], "missing digest");
    assert_eq!((&lines[1]["kind"], &lines[1]["name"]), (&"Pod".into(), &"web".into()));
    assert_eq!((&lines[1]["file"], &lines[1]["document"]), (&"-".into(), &2.into()));
    assert!(lines[1]["findings"][0].as_str().unwrap().contains("asks for an auditor chain"), "{output}");
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_the_command_silently() {
    use std::process::{Command, Stdio};

    let mut child = Command::new(env!("CARGO_BIN_EXE_lucid"))
        .arg("validate")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), PLAIN.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(141), String::new()));

    let mut child = Command::new(env!("CARGO_BIN_EXE_lucid"))
        .args(["validate", "-f", "/nonexistent/pod.yaml"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn namespaces_that_the_webhooks_skip_are_skipped() {
    let pod = |namespace: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: a, namespace: {namespace}}}, spec: {{containers: [{{name: b}}]}}}}"
        )
    };
    let arguments = ["--require-chain", "--admission-mode", "enforce"];
    for namespace in ["kube-system", "kube-public", "kube-node-lease", "lucid-system"] {
        let (code, output, error) = review(&pod(namespace), &arguments);
        assert_eq!(code, 0, "{output}{error}");
        assert!(output.contains(&format!("Lucid never touches pods of namespace {namespace}")), "{output}");
    }
    assert_eq!(review(&pod("shop"), &arguments).0, 1);
}

#[test]
fn the_object_of_an_admission_review_is_named() {
    let reviews = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "shop",
        "object": {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "a"}]}}}}"#;
    let (code, output, error) = review(&format!("{reviews}{reviews}"), &[]);
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("Pod shop/web-: "), "{output}");
}

#[test]
fn output_of_inject_force_is_accepted() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {lucid.computing/tier: A}}, spec: {containers: [{name: b}]}}";
    let (code, injected, error) = run_command("inject", &["--force", "-f", "-"], pod);
    assert_eq!(code, 0, "{error}");
    let (code, output, error) = review(&injected, &["--admission-mode", "enforce"]);
    assert_eq!(code, 0, "{output}{error}");
}

#[test]
fn output_of_inject_is_accepted_with_its_namespaces_and_chains() {
    let pod = r#"{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop, labels: {lucid.io/secured: "true", lucid.computing/tier: A}}, spec: {containers: [{name: b, ports: [{containerPort: 5000}]}]}}"#;
    for other in [
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: lucid-auditor-chain, namespace: shop}, data: {chain: injection}}",
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}}",
    ] {
        let (code, injected, error) = run_command("inject", &["-f", "-"], &format!("{other}\n---\n{pod}"));
        assert_eq!(code, 0, "{error}");
        let (code, output, error) = review(&injected, &["--admission-mode", "enforce"]);
        assert_eq!(code, 0, "{output}{error}");
    }
}

#[test]
fn requirements_of_namespaces_in_the_files_apply() {
    let namespace = r#"{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {lucid.computing/require-chain: "true"}}}"#;
    let pod = |namespace: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: a, namespace: {namespace}, labels: {{lucid.computing/tier: A}}}}, spec: {{containers: [{{name: b}}]}}}}"
        )
    };
    let enforce = ["--admission-mode", "enforce"];
    for (of, expected) in [("shop", 1), ("other", 0)] {
        let (code, output, error) = review(&format!("{namespace}\n---\n{}", pod(of)), &enforce);
        assert_eq!(code, expected, "{output}{error}");
    }
    let labels = ["--namespace-labels", "lucid.computing/require-chain=true"];
    assert_eq!(review(&pod("other"), &[&enforce[..], &labels].concat()).0, 1);
}

#[test]
fn invalid_admission_reviews_have_no_verdict() {
    let valid = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "shop",
        "object": {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}]}}}}"#;
    for (from, to, says) in [
        ("io/v1", "io/v1beta1", "found apiVersion \"admission.k8s.io/v1beta1\""),
        (r#""uid": "1", "#, "", "no uid"),
        ("CREATE", "FOO", "unknown variant `FOO`"),
    ] {
        let (code, output, error) = review(&valid.replacen(from, to, 1), &[]);
        assert!(code == 1 && output.is_empty() && error.contains(says), "{code} {output}{error}");
    }
}
