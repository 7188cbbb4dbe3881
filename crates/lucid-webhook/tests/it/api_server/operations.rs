//! Requests of the API server: operations, dry run, subresources.

use k8s_openapi::api::core::v1::Pod;
use kube::core::GroupVersionKind;
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, Object, OldObject, Operation, State, Webhook, WebhookKind, WithState,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Scene, Seen, in_namespace, pod, rule};

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
fn a_create_request_describes_what_the_client_sent() {
    in_namespace("creation", async |scene| {
        let seen = Seen::default();
        let webhook = |name| Webhook::validating(name, allow.with_state(seen.clone()));
        register(scene, webhook, json!({})).await;

        scene.create("pods?dryRun=All", &pod("web", json!(null))).await.stored();
        let request = seen.take_one();
        assert!(request.dry_run);
        let options: Value = request.options.unwrap().decode().unwrap();
        assert_eq!(options["dryRun"], json!(["All"]));

        // The dry run has stored nothing.
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
