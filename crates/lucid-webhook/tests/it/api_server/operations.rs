//! Requests of the API server: operations, dry run, subresources, conditions, reinvocation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::GroupVersionKind;
use lucid_webhook::registration::{Configurations, Endpoint};
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, BoxError, FieldErrors, FieldPath, JsonPatch, Object, OldObject,
    Operation, RawObject, Router, State, Validator, Webhook, WebhookKind, WithState,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::servers::{CA_BUNDLE, serve};
use super::{Scene, Seen, in_namespace, pod, registration, rule};

async fn allow(request: AdmissionRequest, State(seen): State<Seen>) -> AdmissionResponse {
    seen.add(request);
    AdmissionResponse::allow()
}

fn refusal(message: impl Into<String>) -> AdmissionResponse {
    AdmissionResponse::deny(403, "Forbidden", message)
}

async fn register(scene: &Scene, webhook: impl FnOnce(&'static str) -> Webhook, fields: Value) -> String {
    const NAME: &str = "webhook.example.com";
    let mut fields = fields;
    fields["name"] = NAME.into();
    scene.register_one(WebhookKind::Validating, webhook(NAME), fields).await;
    format!("admission webhook \"{NAME}\" denied the request: ")
}

#[test]
fn a_dry_run_is_marked_and_stores_nothing() {
    async fn label(request: AdmissionRequest, State(seen): State<Seen>) -> Result<JsonPatch, BoxError> {
        let labels = json!({"dry-run": request.dry_run.to_string()});
        seen.add(request);
        Ok(JsonPatch::from_operations(&json!([{"op": "add", "path": "/metadata/labels", "value": labels}]))?)
    }
    in_namespace("dry-run", async |scene| {
        let seen = Seen::default();
        let webhook = Webhook::mutating("label.example.com", label.with_state(seen.clone()));
        let fields = json!({"name": "label.example.com", "sideEffects": "NoneOnDryRun"});
        scene.register_one(WebhookKind::Mutating, webhook, fields).await;

        let answer = scene.create("pods?dryRun=All", &pod("web", json!(null))).await;
        assert_eq!(answer.stored()["metadata"]["labels"], json!({"dry-run": "true"}));
        let request = seen.take_one();
        assert!(request.dry_run);
        let options: Value = request.options.unwrap().decode().unwrap();
        assert_eq!(options["dryRun"], json!(["All"]));
        assert_eq!(scene.get("pods/web").await.code, 404);

        let answer = scene.create("pods", &pod("web", json!(null))).await;
        assert_eq!(answer.stored()["metadata"]["labels"], json!({"dry-run": "false"}));
        assert!(!seen.take_one().dry_run);
    });
}

#[test]
fn a_create_request_describes_what_the_client_sent() {
    in_namespace("creation", async |scene| {
        let seen = Seen::default();
        let webhook = |name| Webhook::validating(name, allow.with_state(seen.clone()));
        register(scene, webhook, json!({})).await;

        scene.create("pods", &pod("web", json!({"a": "b"}))).await.stored();
        let request = seen.take_one();
        assert_eq!(request.operation, Operation::Create);
        assert_eq!(request.kind, GroupVersionKind::gvk("", "v1", "Pod"));
        assert_eq!(request.request_kind, request.kind);
        assert_eq!((&*request.resource.resource, &*request.request_resource.resource), ("pods", "pods"));
        assert_eq!((request.namespace.as_deref(), &*request.name), (Some("creation"), "web"));
        assert_eq!(request.user_info.username, "kubernetes-admin");
        assert!(request.user_info.groups.contains(&"system:masters".to_owned()), "{:?}", request.user_info);
        assert_eq!((request.sub_resource, request.request_sub_resource), (None, None));
        assert!(request.old_object.is_none() && !request.dry_run);
        let pod: Pod = request.object.unwrap().decode().unwrap();
        assert_eq!(pod.spec.unwrap().restart_policy.as_deref(), Some("Always"), "defaults are filled in");

        let mut unnamed = self::pod("", json!(null));
        unnamed["metadata"] = json!({"generateName": "web-"});
        let stored = scene.create("pods", &unnamed).await.stored();
        let request = seen.take_one();
        let given = stored["metadata"]["name"].as_str().unwrap();
        assert!(request.name.is_empty() || request.name == given, "{} is not {given}", request.name);
    });
}

#[test]
fn a_validator_sees_each_operation_of_its_type() {
    struct Owners;
    impl Validator<ConfigMap> for Owners {
        async fn create(&self, new: ConfigMap, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
            let mut errors = FieldErrors::new();
            if !new.data.unwrap_or_default().contains_key("owner") {
                errors.required(FieldPath::new("data").key("owner"), "");
            }
            errors.into_result()?;
            Ok(AdmissionResponse::allow())
        }

        async fn update(
            &self,
            old: ConfigMap,
            new: ConfigMap,
            _: &AdmissionRequest,
        ) -> Result<AdmissionResponse, BoxError> {
            let mut errors = FieldErrors::new();
            if old.data != new.data {
                errors.forbidden(FieldPath::new("data"), "it may not change");
            }
            errors.into_result()?;
            Ok(AdmissionResponse::allow())
        }

        async fn delete(&self, old: ConfigMap, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
            match old.metadata.name.as_deref() {
                Some("kept") => Err(AdmissionResponse::deny(403, "Forbidden", "it is kept").into()),
                _ => Ok(AdmissionResponse::allow()),
            }
        }
    }
    in_namespace("validator", async |scene| {
        let router =
            Router::new().webhook("/", Webhook::validator::<ConfigMap>("owners.example.com", Owners));
        let endpoint = Endpoint::url(serve(router.clone()).await);
        let configurations =
            Configurations::new("owners", endpoint).with_ca_bundle(STANDARD.decode(&*CA_BUNDLE).unwrap());
        let configuration = configurations.validating(router.registrations()).unwrap().unwrap();
        let mut webhook = serde_json::to_value(configuration).unwrap()["webhooks"][0].take();
        webhook["objectSelector"] =
            json!({"matchExpressions": [{"key": "marker", "operator": "DoesNotExist"}]});
        scene.register(WebhookKind::Validating, [webhook]).await;

        let denied =
            |message: &str| format!("admission webhook \"owners.example.com\" denied the request: {message}");
        let map = |data| json!({"metadata": {"name": "kept"}, "data": data});
        let answer = scene.create("configmaps", &map(json!({}))).await;
        answer.refused(422, &denied("ConfigMap \"kept\" is invalid: data[owner]: Required value"));
        scene.create("configmaps", &map(json!({"owner": "jane"}))).await.stored();
        let answer = scene.merge("configmaps/kept", &json!({"data": {"owner": "joe"}})).await;
        answer.refused(422, &denied("ConfigMap \"kept\" is invalid: data: Forbidden: it may not change"));
        scene.merge("configmaps/kept", &json!({"metadata": {"labels": {"a": "b"}}})).await.stored();
        scene.delete("configmaps/kept").await.refused(403, &denied("it is kept"));
        let spare = json!({"metadata": {"name": "spare"}, "data": {"owner": "jane"}});
        scene.create("configmaps", &spare).await.stored();
        scene.delete("configmaps/spare").await.stored();
    });
}

#[test]
fn ephemeral_containers_are_an_update_of_a_subresource() {
    async fn no_shells(
        request: AdmissionRequest,
        OldObject(old): OldObject<Pod>,
        Object(new): Object<Pod>,
        State(seen): State<Seen>,
    ) -> AdmissionResponse {
        seen.add(request);
        let ephemeral = |pod: Pod| pod.spec.and_then(|spec| spec.ephemeral_containers).unwrap_or_default();
        let known = ephemeral(old);
        let mut added = ephemeral(new).into_iter().filter(|container| !known.contains(container));
        match added.find(|container| container.image.as_deref() == Some("shell")) {
            Some(shell) => refusal(format!("{} is a shell", shell.name)),
            None => AdmissionResponse::allow(),
        }
    }
    in_namespace("ephemeral", async |scene| {
        let seen = Seen::default();
        let webhook = |name| Webhook::validating(name, no_shells.with_state(seen.clone()));
        let fields = json!({"rules": [rule("UPDATE", "pods/ephemeralcontainers")]});
        let denied = register(scene, webhook, fields).await;

        scene.create("pods", &pod("web", json!(null))).await.stored();
        let debug = async |name: &str, image: &str| {
            let patch = json!({"spec": {"ephemeralContainers": [{"name": name, "image": image}]}});
            scene.merge("pods/web/ephemeralcontainers", &patch).await
        };
        debug("tracer", "strace").await.stored();
        let request = seen.take_one();
        assert_eq!(request.operation, Operation::Update);
        assert_eq!(request.sub_resource.as_deref(), Some("ephemeralcontainers"));
        assert_eq!(request.request_sub_resource.as_deref(), Some("ephemeralcontainers"));
        assert_eq!(request.kind, GroupVersionKind::gvk("", "v1", "Pod"));

        debug("debugger", "shell").await.refused(403, &format!("{denied}debugger is a shell"));
        let stored = scene.get("pods/web").await.stored();
        assert_eq!(stored["spec"]["ephemeralContainers"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn exec_is_denied_before_the_connection() {
    #[derive(Deserialize)]
    struct ExecOptions {
        command: Vec<String>,
    }
    async fn no_shells(
        operation: Operation,
        old: Option<OldObject<Value>>,
        Object(options): Object<ExecOptions>,
    ) -> AdmissionResponse {
        match &*options.command {
            [shell, ..] if shell == "sh" && old.is_none() => {
                refusal(format!("{} to a shell", operation.as_str()))
            }
            _ => AdmissionResponse::allow(),
        }
    }
    in_namespace("exec", async |scene| {
        let fields = json!({"rules": [rule("CONNECT", "pods/exec")]});
        let denied = register(scene, |name| Webhook::validating(name, no_shells), fields).await;

        scene.create("pods", &pod("web", json!(null))).await.stored();
        let exec = async |command: &str| {
            scene.create(&format!("pods/web/exec?command={command}&stdout=true"), &json!(null)).await
        };
        exec("sh").await.refused(403, &format!("{denied}CONNECT to a shell"));
        exec("ls").await.refused(400, "pod web does not have a host assigned");
    });
}

async fn note_containers(
    request: AdmissionRequest,
    object: RawObject,
    State(seen): State<Seen>,
) -> Result<JsonPatch, BoxError> {
    seen.add(request);
    let patch = [json!({"op": "add", "path": "/metadata/annotations", "value": {"seen": names(&object)}})];
    Ok(JsonPatch::from_operations(&patch)?)
}

async fn add_sidecar(object: RawObject) -> Result<AdmissionResponse, BoxError> {
    if names(&object).contains("sidecar") {
        return Ok(AdmissionResponse::allow());
    }
    let sidecar = json!({"name": "sidecar", "image": "example.com/sidecar:1"});
    let patch = [json!({"op": "add", "path": "/spec/containers/-", "value": sidecar})];
    Ok(AdmissionResponse::patch(JsonPatch::from_operations(&patch)?))
}

fn names(pod: &RawObject) -> String {
    let pod: Pod = pod.decode().unwrap();
    let containers = pod.spec.unwrap().containers;
    containers.into_iter().map(|container| container.name).collect::<Vec<_>>().join(",")
}

#[test]
fn webhooks_are_reinvoked_after_later_changes() {
    in_namespace("reinvoked", async |scene| {
        let [again, once] = [Seen::default(), Seen::default()];
        let router = Router::new()
            .webhook(
                "/again",
                Webhook::mutating("again.example.com", note_containers.with_state(again.clone())),
            )
            .webhook("/once", Webhook::mutating("once.example.com", allow.with_state(once.clone())))
            .webhook("/sidecar", Webhook::mutating("sidecar.example.com", add_sidecar));
        let server = serve(router).await;
        let entry = |path, name, policy| {
            registration(&server, path, json!({"name": name, "reinvocationPolicy": policy}))
        };
        let webhooks = [
            entry("/again", "again.example.com", "IfNeeded"),
            entry("/once", "once.example.com", "Never"),
            entry("/sidecar", "sidecar.example.com", "IfNeeded"),
        ];
        scene.register(WebhookKind::Mutating, webhooks).await;

        let stored = scene.create("pods", &pod("web", json!(null))).await.stored();
        assert_eq!(stored["metadata"]["annotations"], json!({"seen": "app,sidecar"}));
        let containers = stored["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 2, "added once: {containers:?}");
        let seen = |seen: &Seen| -> Vec<_> {
            seen.lock().iter().map(|request| names(request.object.as_ref().unwrap())).collect()
        };
        assert_eq!(seen(&again), ["app", "app,sidecar"]);
        assert_eq!(seen(&once), ["app"]);
    });
}
