//! Guards and permissions with a real API server: from the YAML of a configuration and the cluster's RBAC to the stored
//! objects.

use futures::future::join_all;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::PostParams;
use lucid_e2e::eventually;
use lucid_webhook::client::ClusterClient;
use lucid_webhook::guard::Permissions;
use lucid_webhook::registration::{Rule, WebhookRegistration, parse_selector};
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, BoxError, Changed, Object, Operation, Router, Webhook,
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::servers::serve;
use super::{Answer, Scene, in_namespace, rule};
use crate::common::exposed;

const JSON: &str = "application/json";
const OUTSIDE: &str = "the webhook failed: the patch is refused: the patch changes \"/metadata/labels/marked\"; \
                       expected only changes of /data";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";

fn labels(labels: Value) -> LabelSelector {
    serde_json::from_value(json!({"matchLabels": labels})).unwrap()
}

/// Registers the webhooks of `router` with the API server, and waits until they are in effect.
async fn register(scene: &Scene, router: Router) {
    async fn in_effect() -> AdmissionResponse {
        AdmissionResponse::deny(403, "Forbidden", "in effect")
    }
    let marker = |registration: WebhookRegistration| {
        let marked = format!("{}-{:?}", scene.namespace, registration.kind());
        registration
            .with_rule(Rule::of::<ConfigMap>([Operation::Create]))
            .with_object_selector(labels(json!({"marker": marked})))
    };
    let router = router
        .webhook("/marker-m", Webhook::mutating("m.marker.example.com", in_effect).with_registration(marker))
        .webhook(
            "/marker-v",
            Webhook::validating("v.marker.example.com", in_effect).with_registration(marker),
        );
    scene.configure(&router).await;
    for kind in ["Mutating", "Validating"] {
        let marked = json!({"metadata": {"generateName": "marker-", "labels": {"marker": format!("{}-{kind}", scene.namespace)}}});
        eventually("the registration is in effect", async || {
            let answer = scene.create("configmaps?dryRun=All", &marked).await;
            answer.message().contains("in effect").then_some(()).ok_or(answer)
        })
        .await;
    }
}

async fn grant(scene: &Scene, name: &str, verb: &str, subject: Value) {
    let namespace = scene.namespace;
    let role = json!({
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}],
    });
    let binding = json!({
        "metadata": {"name": name},
        "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
    });
    scene.send(Method::POST, &format!("{RBAC}/{namespace}/roles"), JSON, &role).await.stored();
    scene.send(Method::POST, &format!("{RBAC}/{namespace}/rolebindings"), JSON, &binding).await.stored();
    let review = json!({"spec": {
        "user": format!("system:serviceaccount:{namespace}:{name}"),
        "groups": if subject["kind"] == "Group" { json!([subject["name"]]) } else { json!([]) },
        "resourceAttributes": {"namespace": namespace, "resource": "configmaps", "verb": verb},
    }});
    eventually("the access is granted", async || {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = scene.send(Method::POST, path, JSON, &review).await.stored();
        (answer["status"]["allowed"] == true).then_some(()).ok_or(answer)
    })
    .await;
}

fn config_map(name: &str, labels: Value, annotations: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}})
}

async fn mark(Object(mut object): Object<ConfigMap>) -> Changed<ConfigMap> {
    object.metadata.labels.get_or_insert_default().insert("marked".into(), "true".into());
    Changed::new(object)
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Handled,
    Alone(&'static [&'static str]),
    Refused(u16, &'static str),
}
use Outcome::{Alone, Handled, Refused};

struct Case {
    name: &'static str,
    /// In YAML.
    permissions: &'static str,
    annotations: Value,
    outcome: Outcome,
}

fn case(name: &'static str, permissions: &'static str, outcome: Outcome) -> Case {
    Case { name, permissions, annotations: json!(null), outcome }
}

async fn check(scene: &Scene, webhook: impl Fn(String) -> Webhook, cases: &[Case]) {
    let router = cases.iter().fold(Router::new(), |router, case| {
        let permissions: Permissions = serde_yaml::from_str(case.permissions).unwrap();
        let webhook = webhook(format!("{}.example.com", case.name))
            .with_client(scene.client())
            .with_permissions(watch::channel(permissions).1)
            .with_registration(|registration| {
                registration
                    .with_rule(Rule::of::<ConfigMap>([Operation::Create, Operation::Update]))
                    .with_namespace_selector(labels(json!({"kubernetes.io/metadata.name": scene.namespace})))
                    .with_object_selector(labels(json!({"case": case.name})))
            });
        router.webhook(format!("/{}", case.name), webhook)
    });
    register(scene, router).await;
    join_all(cases.iter().map(async |case| {
        let object = config_map(case.name, json!({"case": case.name}), case.annotations.clone());
        check_outcome(case, &scene.create("configmaps", &object).await);
    }))
    .await;
}

#[track_caller]
fn check_outcome(case: &Case, answer: &Answer) {
    let name = case.name;
    let denied = format!("admission webhook \"{name}.example.com\" denied the request: ");
    match case.outcome {
        Handled => assert_eq!(answer.body["metadata"]["labels"]["marked"], "true", "{name}: {answer:?}"),
        Refused(code, message) => answer.refused(code, &format!("{denied}{message}")),
        Alone(warnings) => {
            let stored = answer.code == 201 && answer.body["metadata"]["labels"] == json!({"case": name});
            assert!(stored && answer.warnings == warnings, "{name}: {answer:?}");
        }
    }
}

#[test]
fn webhooks_follow_configuration_and_rbac() {
    in_namespace("marking", async |scene| {
        for (name, verb) in [("updater", "update"), ("getter", "get"), ("mutater", "mutate")] {
            let account = json!({"kind": "ServiceAccount", "name": name, "namespace": "marking"});
            grant(scene, name, verb, account).await;
        }
        let group = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:policies"});
        grant(scene, "policies", "update", group).await;
        let consent = |names: &str| json!({"canMutate": names});
        let cases = [
            case("unrestricted", "{}", Handled),
            case("updater", "serviceAccountName: marking:updater", Handled),
            case(
                "getter",
                "serviceAccountName: marking:getter",
                Alone(&[
                    "webhook getter.example.com: system:serviceaccount:marking:getter may neither update nor mutate configmaps \
                         getter in namespace marking; the object is left as it is",
                ]),
            ),
            case("mutater", "serviceAccountName: marking:mutater", Handled),
            case("by-group", "serviceAccountName: policies:labeller", Handled),
            case("validating-getter", "serviceAccountName: marking:getter", Refused(403, "handled")),
            case(
                "validating-updater",
                "serviceAccountName: marking:updater",
                Alone(&[
                    "webhook validating-updater.example.com: system:serviceaccount:marking:updater may neither get nor validate \
                     configmaps validating-updater in namespace marking; the object is not validated",
                ]),
            ),
            case("nobody-skip", "{serviceAccountName: 'marking:nobody', forbidden: skip}", Alone(&[])),
            case(
                "nobody-deny",
                "{serviceAccountName: 'marking:nobody', forbidden: deny}",
                Refused(
                    403,
                    "webhook nobody-deny.example.com: system:serviceaccount:marking:nobody may neither update nor mutate configmaps \
                     nobody-deny in namespace marking",
                ),
            ),
            case("strict", "strictMode: true", Alone(&[])),
            Case {
                annotations: consent("other.example.com"),
                ..case("strict-other", "strictMode: true", Alone(&[]))
            },
            Case {
                annotations: consent("other.example.com, asked.example.com"),
                ..case("asked", "strictMode: true", Handled)
            },
            case("elsewhere", "selector: {namespace: [other-*]}", Alone(&[])),
            case("inside", "allowedPaths: [/metadata/labels]", Handled),
            case("outside", "allowedPaths: [/data]", Refused(500, OUTSIDE)),
            case("outside-warn", "{allowedPaths: [/data], failureAction: warn}", Alone(&[OUTSIDE])),
            case("outside-skip", "{allowedPaths: [/data], failureAction: skip}", Alone(&[])),
        ];
        let deny = async || AdmissionResponse::deny(403, "Forbidden", "handled");
        let webhook = |name: String| match name.starts_with("validating-") {
            true => Webhook::validating(name, deny),
            false => Webhook::mutating(name, mark),
        };
        check(scene, webhook, &cases).await;
        for (name, stored) in [("outside", false), ("outside-warn", true), ("nobody-deny", false)] {
            let answer = scene.get(&format!("configmaps/{name}")).await;
            assert_eq!(answer.code == 200, stored, "{name}");
            assert_eq!(answer.body["metadata"]["labels"]["marked"], json!(null), "{name}");
        }
        // The role that lets a webhook ask.
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:auth-delegator";
        let role = scene.send(Method::GET, path, JSON, &Value::Null).await.stored();
        let rules = role["rules"].to_string();
        assert!(rules.contains(r#""resources":["subjectaccessreviews"],"verbs":["create"]"#), "{rules}");
    });
}

#[test]
fn registration_and_guard_exclude_kube_system_by_default() {
    in_namespace("system", async |scene| {
        let mut registry = Registry::default();
        let named = "selector: {namespace: [kube-system, system]}";
        let webhook = |name: &str, permissions: &str| {
            let permissions: Permissions = serde_yaml::from_str(permissions).unwrap();
            Webhook::mutating(format!("{name}.example.com"), mark)
                .with_client(scene.client())
                .with_permissions(watch::channel(permissions).1)
                .with_registration(|registration| {
                    registration
                        .with_rule(Rule::of::<ConfigMap>([Operation::Create]))
                        .with_object_selector(labels(json!({"case": name})))
                })
        };
        let by_name = Webhook::mutating("by-name.example.com", mark).with_registration(|registration| {
            let names = parse_selector("kubernetes.io/metadata.name in (kube-system,system)").unwrap();
            registration
                .with_rule(Rule::of::<ConfigMap>([Operation::Create]))
                .with_namespace_selector(names)
                .with_object_selector(labels(json!({"case": "by-name"})))
        });
        let registered = Router::new()
            .with_metrics(&mut registry)
            .webhook("/by-name", by_name)
            .webhook("/usual", webhook("usual", "{}"))
            .webhook("/half-named", webhook("half-named", named))
            .webhook(
                "/named",
                webhook("named", named).with_registration(WebhookRegistration::with_kube_system),
            );
        let by_hand = Router::new()
            .with_metrics(&mut registry)
            .webhook("/unselective", webhook("unselective", "{}"))
            .webhook("/unselective-named", webhook("unselective-named", named));
        let server = serve(by_hand).await;
        let entries = ["unselective", "unselective-named"].map(|name| {
            let fields = json!({
                "name": format!("{name}.example.com"),
                "objectSelector": {"matchLabels": {"case": name}},
                "rules": [rule("CREATE", "configmaps")],
            });
            super::registration(&server, &format!("/{name}"), fields)
        });
        let configuration = json!({"metadata": {"name": "system-by-hand"}, "webhooks": entries});
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        scene.send(Method::POST, path, JSON, &configuration).await.stored();
        register(scene, registered).await;

        let create = async |namespace: &str, name: &str| {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            let object = config_map(name, json!({"case": name}), json!(null));
            let created = scene.send(Method::POST, &path, JSON, &object).await.stored();
            created["metadata"]["labels"]["marked"] == "true"
        };
        for (name, is_marked, is_called) in [
            ("usual", false, false),
            ("half-named", false, false),
            ("named", true, true),
            ("by-name", true, true),
            ("unselective", false, true),
            ("unselective-named", true, true),
        ] {
            assert!(create("system", name).await, "{name}");
            assert_eq!(create("kube-system", name).await, is_marked, "{name}");
            let calls: u64 = exposed(&registry)
                .lines()
                .filter(|line| line.contains(&format!("requests_total{{webhook=\"{name}.example.com\",")))
                .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
                .sum();
            assert_eq!(calls, 1 + u64::from(is_called), "{name}");
        }
    });
}

#[test]
fn a_handler_writes_only_if_its_side_effects_allow_it() {
    /// Writes a note named after the object, if the API server allows it, and reports the result.
    async fn note(
        request: AdmissionRequest,
        ClusterClient(client): ClusterClient,
    ) -> Result<AdmissionResponse, BoxError> {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        let note = serde_json::from_value(json!({"metadata": {"name": format!("note-{}", request.name)}}))?;
        let note: ConfigMap =
            Api::namespaced(client, namespace).create(&PostParams::default(), &note).await?;
        Ok(AdmissionResponse::allow().with_warning(note.metadata.name.unwrap_or_default()))
    }
    in_namespace("noting", async |scene| {
        let webhook = |name: &'static str| {
            Webhook::validating(format!("{name}.example.com"), note)
                .with_client(scene.client())
                .with_registration(|registration| {
                    registration
                        .with_rule(Rule::of::<ConfigMap>([Operation::Create]))
                        .with_object_selector(labels(json!({"noting": name})))
                })
        };
        let router = Router::new().webhook("/none", webhook("none")).webhook(
            "/none-on-dry-run",
            webhook("none-on-dry-run").with_registration(WebhookRegistration::with_side_effects),
        );
        register(scene, router).await;
        for (webhook, dry_run, noted) in [
            ("none", false, false),
            ("none", true, false),
            ("none-on-dry-run", false, true),
            ("none-on-dry-run", true, false),
        ] {
            let name = format!("{webhook}-{dry_run}");
            let resource = if dry_run { "configmaps?dryRun=All" } else { "configmaps" };
            let object = config_map(&name, json!({"noting": webhook}), json!(null));
            let answer = scene.create(resource, &object).await;
            assert_eq!(answer.warnings, [format!("note-{name}")], "{answer:?}");
            answer.stored();
            let code = scene.get(&format!("configmaps/note-{name}")).await.code;
            assert_eq!(code, if noted { 200 } else { 404 }, "{name}");
        }
    });
}
