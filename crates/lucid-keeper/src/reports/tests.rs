use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use lucid_e2e::{ClusterExt as _, eventually};
use lucid_testbed::Cluster;

use super::*;

const DEFINITIONS: [&str; 2] =
    [include_str!("../../tests/data/reports.yaml"), include_str!("../../tests/data/policyreports.yaml")];

fn finding(name: &str, state: State, reason: &str) -> Finding {
    let workload = Some(Workload { kind: "deployment".to_owned(), name: "web".to_owned() });
    Finding { name: name.to_owned(), uid: format!("uid-{name}"), workload, state, reason: reason.to_owned() }
}

fn built(kind: &ApiResource, findings: &[Finding], audited: u64) -> Value {
    report(kind, "shop", &sorted(findings), audited, 7, |_| 5)
}

#[test]
fn both_kinds_have_the_same_results() {
    let finding = finding("web-1", State::Stale, "image differs");
    let expected = json!({
        "apiVersion": "openreports.io/v1alpha1",
        "kind": "Report",
        "metadata": {
            "name": "lucid",
            "namespace": "shop",
            "labels": { "app.kubernetes.io/managed-by": "lucid-keeper" },
        },
        "scope": { "apiVersion": "v1", "kind": "Namespace", "name": "shop" },
        "summary": { "pass": 3, "fail": 0, "warn": 1, "error": 0, "skip": 0 },
        "results": [{
            "source": "lucid",
            "policy": "auditor-chain",
            "rule": "Stale",
            "result": "warn",
            "severity": "medium",
            "message": "image differs",
            "resources": [
                { "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "uid-web-1" },
            ],
            "properties": { "workload": "deployment/web" },
            "timestamp": { "seconds": 5, "nanos": 0 },
        }],
    });
    let [preferred, former] = kinds();
    let findings = [finding];
    assert_eq!(built(&preferred, &findings, 3), expected);

    let mut expected = expected;
    expected["apiVersion"] = json!("wgpolicyk8s.io/v1alpha2");
    expected["kind"] = json!("PolicyReport");
    assert_eq!(built(&former, &findings, 3), expected);
}

#[test]
fn failures_come_first_in_any_order_of_findings() {
    let mut findings: Vec<_> =
        State::ALL.iter().map(|state| finding(&format!("{state}").to_lowercase(), *state, "")).collect();
    let report = built(&kinds()[0], &findings, 0);
    assert_eq!(report["summary"], json!({ "fail": 3, "error": 1, "warn": 4, "skip": 1, "pass": 1 }));
    let results = report["results"].as_array().unwrap().iter();
    let rules: Vec<_> = results.map(|result| result["rule"].as_str().unwrap()).collect();
    let expected = [
        "Altered",
        "Missing",
        "Revoked",
        "Unknown",
        "AssumedPort",
        "Ignored",
        "NotReady",
        "Stale",
        "Skipped",
        "Audited",
    ];
    assert_eq!(rules, expected);
    findings.reverse();
    assert_eq!(built(&kinds()[0], &findings, 0), report);
}

#[test]
fn a_report_is_bounded() {
    let reason = "<".repeat(100_000);
    let longest = |number| {
        let mut finding = finding(&format!("{number:0>253}"), State::Stale, &reason);
        finding.workload = Some(Workload { kind: "deployment".to_owned(), name: "w".repeat(253) });
        finding
    };
    let mut findings: Vec<_> = (0..MAX_RESULTS).map(longest).collect();
    let report = built(&kinds()[0], &findings, 0);
    assert_eq!(report["results"].as_array().unwrap().len(), MAX_RESULTS);
    assert_eq!(report["results"][MAX_RESULTS - 1]["rule"], "Stale");
    // As the API server's encoder does.
    let size = report.to_string().replace('<', "\\u003c").len();
    assert!(size < 1_300_000, "{size}");

    findings.push(finding("last", State::Missing, ""));
    let report = built(&kinds()[0], &findings, 0);
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), MAX_RESULTS);
    assert_eq!(results[0]["message"], "the pod requests a chain and has none");
    let last = &results[MAX_RESULTS - 1];
    assert_eq!(last["message"], "2 more pods are only counted in the summary");
    assert_eq!((&last["rule"], &last["result"]), (&json!("Unlisted"), &json!("warn")));
    assert_eq!(report["summary"]["warn"], MAX_RESULTS);
}

/// Installs a kind, and waits until it can be listed.
async fn install(client: &Client, kind: &ApiResource, definition: &str) {
    let definition: CustomResourceDefinition = serde_yaml::from_str(definition).unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    eventually("a served kind", async || api.list_metadata(&ListParams::default()).await).await;
}

/// Returns the client of an account with no other permissions than those needed.
async fn allowed(cluster: &Cluster) -> Client {
    let (group, name) = ("rbac.authorization.k8s.io", MANAGER);
    let rules = kinds().map(|kind| {
        let verbs = ["list", "create", "patch", "delete"];
        json!({ "apiGroups": [kind.group], "resources": [kind.plural], "resourceNames": [NAME], "verbs": verbs })
    });
    let role = json!({ "metadata": { "name": name }, "rules": rules });
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": name }],
    });
    let (roles, bindings) = (Api::all(cluster.client()), Api::all(cluster.client()));
    let (role, binding) = (serde_json::from_value(role).unwrap(), serde_json::from_value(binding).unwrap());
    let _: ClusterRole = roles.create(&PostParams::default(), &role).await.unwrap();
    let _: ClusterRoleBinding = bindings.create(&PostParams::default(), &binding).await.unwrap();

    let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig_for(name, None).unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.proxy_url = None;
    let client = Client::try_from(config).unwrap();
    // The API server observes new permissions by a watch.
    eventually("permissions", async || Reports::new(client.clone()).refresh().await).await;
    client
}

async fn stored(client: &Client, kind: &ApiResource, namespace: &str) -> Option<DynamicObject> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
    match api.get(NAME).await {
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        stored => Some(stored.unwrap()),
    }
}

fn seconds(report: &DynamicObject) -> Vec<i64> {
    let results = report.data["results"].as_array().unwrap().iter();
    results.map(|result| result["timestamp"]["seconds"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn reports_follow_the_findings_and_the_served_kind() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = cluster.client();
    cluster.create_namespace("shop", &[]).await.unwrap();
    cluster.create_namespace("other", &[]).await.unwrap();
    let [preferred, former] = &kinds();
    let both = [finding("b", State::Stale, "image differs"), finding("a", State::Missing, "")];
    let one = &both[..1];

    let user = allowed(&cluster).await;
    let mut reports = Reports::new(user.clone());
    reports.write("shop", one, 2).await.unwrap();
    install(&client, former, DEFINITIONS[1]).await;
    reports.write("shop", one, 2).await.unwrap();
    assert!(stored(&client, former, "shop").await.is_none(), "the kind is looked for at intervals");

    // The predecessor.
    reports.refresh_at = Instant::now();
    reports.write("shop", one, 2).await.unwrap();
    let first = stored(&client, former, "shop").await.unwrap();
    let expected = report(former, "shop", &[&both[0]], 2, 0, |_| seconds(&first)[0]);
    assert_eq!(first.data["results"], expected["results"]);
    assert_eq!(first.data["summary"], expected["summary"]);
    assert_eq!(first.labels()[LABEL], MANAGER);

    // Unchanged content is not written, also after a refresh.
    reports.refresh_at = Instant::now();
    reports.retain(|_| true).await.unwrap();
    reports.client = Client::try_from(kube::Config::new("http://127.0.0.1:1/".parse().unwrap())).unwrap();
    reports.write("shop", one, 2).await.unwrap();
    reports.write("shop", one, 3).await.unwrap_err();
    reports.client = user.clone();

    // An old finding keeps its time.
    for since in reports.written.get_mut("shop").unwrap().since.values_mut() {
        *since = 1;
    }
    reports.write("shop", &both, 1).await.unwrap();
    let changed = stored(&client, former, "shop").await.unwrap();
    let times = seconds(&changed);
    assert!(times[0] > 1 && times[1] == 1, "{times:?}");

    // Other clients' changes are undone.
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "shop", former);
    let forged = json!({ "summary": { "fail": 0 } });
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(&forged)).await.unwrap();
    reports.refresh_at = Instant::now();
    reports.write("shop", &both, 1).await.unwrap();
    assert_eq!(stored(&client, former, "shop").await.unwrap().data, changed.data);
    api.delete(NAME, &DeleteParams::default()).await.unwrap();
    reports.refresh_at = Instant::now();
    reports.write("shop", &both, 1).await.unwrap();
    assert!(stored(&client, former, "shop").await.is_some());
    reports.write("shop", &[], 1).await.unwrap();
    let shrunk = stored(&client, former, "shop").await.unwrap();
    assert_eq!(shrunk.data["results"], json!([]));
    assert_eq!(shrunk.data["summary"]["pass"], 1);

    // The preferred kind replaces it.
    install(&client, preferred, DEFINITIONS[0]).await;
    reports.refresh_at = Instant::now();
    reports.write("shop", &both[1..], 1).await.unwrap();
    assert!(stored(&client, former, "shop").await.is_none());
    let replaced = stored(&client, preferred, "shop").await.unwrap();
    assert_eq!(replaced.data["results"][0]["rule"], "Missing");
    reports.write("other", one, 0).await.unwrap();

    // A new leader removes the reports of others; namespaces without pods lose theirs.
    let mut reports = Reports::new(user);
    reports.retain(|namespace| namespace == "shop").await.unwrap();
    assert!(stored(&client, preferred, "other").await.is_none());
    assert!(stored(&client, preferred, "shop").await.is_some());
    reports.write("shop", &[], 0).await.unwrap();
    assert!(stored(&client, preferred, "shop").await.is_none());

    // Deleted kinds and namespaces are no errors.
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.delete("reports.openreports.io", &DeleteParams::default()).await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), preferred);
    let is_gone = async || {
        let listed = api.list_metadata(&ListParams::default()).await;
        matches!(listed, Err(kube::Error::Api(status)) if status.code == 404)
    };
    eventually("a deleted kind", is_gone).await;
    reports.write("shop", one, 0).await.unwrap();
    reports.write("shop", one, 0).await.unwrap();
    assert!(stored(&client, former, "shop").await.is_some());
    reports.write("absent", one, 0).await.unwrap();
}

#[tokio::test]
async fn the_definitions_of_the_tests_are_strict() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = cluster.client();
    for (kind, definition) in kinds().iter().zip(DEFINITIONS) {
        install(&client, kind, definition).await;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", kind);
        let finding = finding("a", State::Missing, "");
        let good = report(kind, "default", &[&finding], 0, 0, |_| 0);
        let mut bad = good.clone();
        bad["results"][0]["description"] = json!("");
        let params = PatchParams::apply(MANAGER).force();
        for params in [params.clone(), params.validation_strict()] {
            api.patch(NAME, &params, &Patch::Apply(&good)).await.unwrap();
            let error = api.patch(NAME, &params, &Patch::Apply(&bad)).await.unwrap_err().to_string();
            assert!(error.contains("description"), "{error}");
        }
    }
}
