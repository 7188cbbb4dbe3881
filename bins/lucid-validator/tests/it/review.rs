//! `lucid-validator review` as a process.

use crate::program::run;

/// Exit code, standard output and standard error.
fn review(pod: &str, arguments: &[&str]) -> (i32, String, String) {
    run("review", arguments, pod)
}

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [
    {"name": "web", "image": "example.com/web:1"},
    {"name": "lucid-toxicity-auditor", "image": "ghcr.io/lucid/lucid-toxicity-auditor:latest"}]}}"#;
const PLAIN: &str = r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]}}"#;
const NOBODY: &str = "--verifier-url=http://127.0.0.1:1";

#[test]
fn a_pod_is_refused_allowed_with_warnings_or_allowed() {
    let line = "container lucid-toxicity-auditor, image ghcr.io/lucid/lucid-toxicity-auditor:latest: missing digest\n";
    let (code, output, _) = review(POD, &["--strict-notarization", NOBODY]);
    assert_eq!((code, output), (3, format!("{line}refused\n")));
    let (code, output, _) = review(POD, &[]);
    assert_eq!((code, output), (0, format!("{line}allowed with warnings\n")));
    let (code, output, _) = review(PLAIN, &["--strict-notarization", NOBODY]);
    assert_eq!((code, output.as_str()), (0, "no auditor containers\nallowed\n"));
}

#[test]
fn auditors_of_a_catalogue_count_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = folder.path().join("auditors.yaml");
    std::fs::write(&catalogue, "chain: [{name: pii, image: example.com/web}]").unwrap();
    let (code, output, _) = review(POD, &["--catalogue", catalogue.to_str().unwrap()]);
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
    assert_eq!(code, 3, "{output}");
    assert!(
        output.contains("asks for an auditor chain and has none") && output.ends_with("refused\n"),
        "{output}"
    );
    let (code, output, _) = review(SECURED, &["--admission-mode", "audit"]);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("label lucid.computing/tier is missing"), "{output}");
    assert!(output.ends_with("allowed with warnings\n"), "{output}");

    let (code, output, _) = review(DEPLOYMENT, &enforce);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains(r#"break-glass by ticket "INC-1""#), "{output}");
    let (code, output, _) = review(DEPLOYMENT, &[&enforce[..], &["--break-glass-pattern", ""]].concat());
    assert_eq!(code, 3, "{output}");
    assert!(output.contains("hostPID is true") && output.contains("its pods would be refused"), "{output}");
    let (code, output, _) = review(PLAIN, &[&enforce[..], &["--require-chain"]].concat());
    assert_eq!(code, 3, "{output}");
    assert!(output.contains("the namespace requires an auditor chain"), "{output}");
}

#[test]
fn exemptions_are_read_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exemptions.yaml");
    let review_with = |exemptions: &str| {
        std::fs::write(&file, exemptions).unwrap();
        review(POD, &["--strict-notarization", NOBODY, "--exemptions", file.to_str().unwrap()])
    };
    let (code, output, error) = review_with("exemptions: [{name: dev, images: [ghcr.io/lucid]}]");
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("exempt by dev: auditor container lucid-toxicity-auditor"), "{output}");
    for (exemptions, says) in [
        ("exemptions: [{name: dev}]", "at least one of namespaces, images and digests"),
        ("exemptions: [{name: dev, images: [nginx]}]", "names no registry"),
        ("exemptions: [{name: dev, image: [ghcr.io/a]}]", "unknown field `image`"),
        ("exemption: []", "unknown field `exemption`"),
        ("", "exemptions.yaml"),
    ] {
        let (code, output, error) = review_with(exemptions);
        assert_eq!((code, output.as_str()), (1, ""), "{exemptions}");
        assert!(error.contains("LUCID_EXEMPTIONS") && error.contains(says), "{exemptions}: {error}");
    }
}

#[test]
fn settings_of_the_policy_that_mean_nothing_are_refused() {
    for (arguments, says) in [
        (vec!["--admission-mode", "enforced"], "possible values: audit, enforce"),
        (vec!["--break-glass-pattern", "INC-("], "failed to read the pattern of tickets"),
        (vec!["--tier-label", "a b"], "accepted is a label's key"),
        (vec!["--exemptions", "/nonexistent/exemptions.yaml"], "/nonexistent/exemptions.yaml"),
    ] {
        let (code, _, error) = review(PLAIN, &arguments);
        assert!(code == 1 || code == 2, "{arguments:?}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_it() {
    for (pod, arguments, says) in [
        ("{", vec![], "-: "),
        ("{}", vec![], "accepted is one v1 Pod"),
        (r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}"#, vec![], "with containers"),
        (r#"{"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}"#, vec![], "Deployment"),
        (r#"{"apiVersion": "v1", "kind": "List", "items": []}"#, vec![], "List"),
        (POD, vec!["--file", "/nonexistent/pod.json"], "/nonexistent/pod.json"),
        (POD, vec!["--catalogue", "/nonexistent/auditors.yaml"], "/nonexistent/auditors.yaml"),
        (POD, vec!["--strict-notarization"], "LUCID_VERIFIER_URL"),
    ] {
        let (code, output, error) = review(pod, &arguments);
        assert_eq!((code, output.as_str()), (1, ""), "{arguments:?}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
}
