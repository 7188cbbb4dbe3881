//! The OLM bundle in deploy/olm.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use lucid_e2e::{ClusterExt as _, eventually};
use serde_json::{Value, json};

use super::{document, documents, path};
use crate::common::{cluster, operator};

const VERSION: &str = "deploy/olm/manifests/lucid-operator.clusterserviceversion.yaml";
const DEFINITION: &str = "deploy/olm/manifests/auditors.lucid.computing.crd.yaml";

fn bundle() -> Value {
    document(VERSION, "ClusterServiceVersion")
}

fn deployment() -> Value {
    document("deploy/lucid.yaml", "Deployment")
}

fn rules(kind: &str) -> Vec<Value> {
    document("deploy/lucid.yaml", kind)["rules"].as_array().unwrap().clone()
}

#[test]
fn the_deployment_differs_in_the_certificates_only() {
    let install = &bundle()["spec"]["install"]["spec"];
    let [ours] = install["deployments"].as_array().unwrap().as_slice() else { panic!("one Deployment") };
    let theirs = deployment();
    assert_eq!(ours["name"], theirs["metadata"]["name"]);
    let mut expected = theirs["spec"].clone();
    let pod = &mut expected["template"]["spec"];
    // OpenShift assigns uids per namespace; the image declares one.
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert!(pod["securityContext"]["runAsUser"].is_null());
    let env = pod["containers"][0]["env"].as_array_mut().unwrap();
    env.insert(2, json!({"name": "LUCID_CERTIFICATES", "value": "olm"}));
    // Set in deploy/verifier.yaml, and not in the bundle.
    env.retain(|variable| variable["name"] != "LUCID_VERIFIER_URL");
    assert_eq!(ours["spec"], expected);
}

/// Returns `true` if a rule grants no more than another one for the same objects.
fn is_within(rule: &Value, other: &Value) -> bool {
    let verbs = |rule: &Value| rule["verbs"].as_array().unwrap().clone();
    let allowed = verbs(other);
    let objects = ["apiGroups", "resources", "resourceNames"];
    objects.iter().all(|key| rule[key] == other[key]) && verbs(rule).iter().all(|it| allowed.contains(it))
}

#[test]
fn permissions_are_those_of_deploy_less_what_olm_does() {
    let install = &bundle()["spec"]["install"]["spec"];
    for (permissions, kind) in [("clusterPermissions", "ClusterRole"), ("permissions", "Role")] {
        let [granted] = install[permissions].as_array().unwrap().as_slice() else { panic!("{permissions}") };
        assert_eq!(granted["serviceAccountName"], "lucid-operator");
        let granted = granted["rules"].as_array().unwrap();
        let known = rules(kind);
        for rule in granted {
            let is_granted = known.iter().any(|it| is_within(rule, it));
            assert!(is_granted, "{kind} of deploy/ does not have {rule}");
        }
        // Tasks that OLM takes over: certificates and registrations; and optional access reviews.
        for rule in known.iter().filter(|rule| !granted.iter().any(|it| is_within(it, rule))) {
            let resources = &rule["resources"];
            let is_of_others =
                ["secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
            let is_of_others =
                is_of_others.iter().any(|it| resources.as_array().unwrap().contains(&json!(it)));
            assert!(
                is_of_others || resources == &json!(["subjectaccessreviews"]),
                "{kind} is without {rule}"
            );
        }
    }
}

#[test]
fn versions_and_images_match_the_programs() {
    let bundle = bundle();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(bundle["spec"]["version"], version);
    assert_eq!(bundle["metadata"]["name"], format!("lucid-operator.v{version}"));
    let image = &deployment()["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(&bundle["metadata"]["annotations"]["containerImage"], image);
    let related = &bundle["spec"]["relatedImages"];
    assert_eq!(&related[0]["image"], image);
    let configuration = lucid_chain::Configuration::new(lucid_chain::Catalogue::builtin(), None).unwrap();
    assert_eq!(related[1]["image"], configuration.init_image.to_string());
    assert_eq!(related[2]["image"], configuration.catalogue().egress().unwrap().image());
    let annotations = documents("deploy/olm/metadata/annotations.yaml").remove(0)["annotations"].clone();
    let containerfile = std::fs::read_to_string(path("deploy/olm/Containerfile")).unwrap();
    for (key, value) in annotations.as_object().unwrap() {
        let label = format!("LABEL {key}={}\n", value.as_str().unwrap());
        assert!(containerfile.contains(&label), "{label}");
    }
}

#[test]
fn the_definition_equals_that_of_deploy() {
    let expected = document("deploy/auditor-crd.yaml", "CustomResourceDefinition");
    assert_eq!(document(DEFINITION, "CustomResourceDefinition"), expected);
    let owned = &bundle()["spec"]["customresourcedefinitions"]["owned"][0];
    assert_eq!(owned["name"], expected["metadata"]["name"]);
    let versions = expected["spec"]["versions"].as_array().unwrap();
    assert!(versions.iter().any(|it| it["name"] == owned["version"] && it["storage"] == true));
}

/// Scope of a webhook, in fields shared by ClusterServiceVersions and registrations.
fn called_for(webhook: &Value) -> Value {
    let keys = [
        "admissionReviewVersions",
        "failurePolicy",
        "reinvocationPolicy",
        "sideEffects",
        "timeoutSeconds",
        "rules",
    ];
    let members = keys.map(|key| (key.to_owned(), webhook[key].clone()));
    Value::Object(members.into_iter().filter(|(_, value)| !value.is_null()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn olm_registers_the_webhooks_of_the_operator() {
    let cluster = cluster().await;
    let _operator = operator(&cluster, |it| it).await;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let mutating = serde_json::to_value(mutating.get("lucid-operator").await.unwrap()).unwrap();
    let validating = serde_json::to_value(validating.get("lucid-operator").await.unwrap()).unwrap();
    let webhooks: Vec<_> =
        [&mutating, &validating].into_iter().flat_map(|it| it["webhooks"].as_array().unwrap()).collect();
    let bundle = bundle();
    let definitions = bundle["spec"]["webhookdefinitions"].as_array().unwrap();
    for (kind, name) in [
        ("MutatingAdmissionWebhook", "mutate.lucid.computing"),
        ("ValidatingAdmissionWebhook", "validate.lucid.computing"),
    ] {
        let definition = definitions.iter().find(|it| it["generateName"] == name).unwrap();
        let webhook = webhooks.iter().find(|it| it["name"] == name).unwrap();
        assert_eq!(definition["type"], kind);
        assert_eq!(called_for(definition), called_for(webhook), "{name}");
        let url = webhook["clientConfig"]["url"].as_str().unwrap();
        assert!(url.ends_with(definition["webhookPath"].as_str().unwrap()), "{url}");
        assert_eq!(definition["objectSelector"], json!({"matchLabels": {"lucid.io/secured": "true"}}));
    }
    let port = deployment()["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"].clone();
    for definition in definitions {
        assert_eq!(definition["targetPort"], port);
        assert_eq!(definition["deploymentName"], "lucid-operator");
    }
    // OLM creates it unchanged, and the example of the catalogue with it.
    let definition = serde_json::from_value(document(DEFINITION, "CustomResourceDefinition")).unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let examples = bundle["metadata"]["annotations"]["alm-examples"].as_str().unwrap();
    let examples: Vec<Value> = serde_json::from_str(examples).unwrap();
    for example in examples {
        // Until the API server serves the definition.
        eventually("the example is applied", async || {
            let applied = cluster.kubectl(&["apply", "-f", "-"], &example.to_string()).unwrap();
            if applied.status.success() { Ok(()) } else { Err(applied) }
        })
        .await;
    }
}
