//! Contents of reviews.

use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lucid_webhook::Operation;
use lucid_webhook_test::Review;
use serde_json::{Value, json};

fn request(review: &Review) -> Value {
    let review: Value = serde_json::from_slice(&review.to_bytes()).unwrap();
    assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(review["kind"], "AdmissionReview");
    assert!(review.get("response").is_none());
    review["request"].clone()
}

fn pod(image: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "app", "image": image}]}})
}

#[test]
fn a_create_has_an_object_and_no_old_one() {
    let pod = Pod {
        metadata: ObjectMeta { generate_name: Some("web-".into()), ..ObjectMeta::default() },
        ..Pod::default()
    };
    let request = request(&Review::create(&pod).namespace("shop").uid("u-1"));
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let expected = json!({
        "uid": "u-1",
        "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {
            "username": "kubernetes-admin", "groups": ["kubeadm:cluster-admins", "system:authenticated"],
        },
        "object": {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"generateName": "web-", "namespace": "shop"}},
        "oldObject": null,
        "dryRun": false,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    });
    assert_eq!(request, expected, "a name that is empty is left out");
}

#[test]
fn each_operation_has_its_objects_and_options() {
    let exec = json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]});
    let cases = [
        (Review::create(&pod("a")), "CREATE", pod("a"), Value::Null, "CreateOptions"),
        (Review::update(&pod("a"), &pod("b")), "UPDATE", pod("b"), pod("a"), "UpdateOptions"),
        (Review::delete(&pod("a")), "DELETE", Value::Null, pod("a"), "DeleteOptions"),
        (
            Review::connect(&exec).namespace("shop").name("web").dry_run(),
            "CONNECT",
            exec.clone(),
            Value::Null,
            "",
        ),
    ];
    for (review, operation, object, old_object, options) in cases {
        let request = request(&review.options(&json!({"fieldManager": "kubectl"})));
        assert_eq!(request["operation"], operation);
        assert_eq!(request["name"], "web", "{operation}");
        assert_eq!(request["namespace"], "shop", "{operation}");
        assert_eq!(request["object"], object, "{operation}");
        assert_eq!(request["oldObject"], old_object, "{operation}");
        assert_eq!(request["dryRun"], false, "{operation}");
        if options.is_empty() {
            assert_eq!(request.get("options"), Some(&Value::Null), "{operation}");
        } else {
            assert_eq!(request["options"]["kind"], options);
            assert_eq!(request["options"]["fieldManager"], "kubectl");
        }
    }
}

#[test]
fn subresources_belong_to_their_parent() {
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "web", "namespace": "shop"}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "web", "namespace": "shop"}});
    let attach = json!({"apiVersion": "v1", "kind": "PodAttachOptions"});
    let cases = [
        (
            Review::update(&scale, &scale)
                .group_version_resource("apps", "v1", "deployments")
                .subresource("scale"),
            "autoscaling",
            "apps/deployments/scale",
        ),
        (Review::create(&eviction), "policy", "/pods/eviction"),
        (Review::connect(&attach), "", "/pods/attach"),
        (
            Review::update(&pod("a"), &pod("a")).subresource("ephemeralcontainers"),
            "",
            "/pods/ephemeralcontainers",
        ),
    ];
    for (review, kind_group, place) in cases {
        let request = request(&review);
        assert_eq!(request["kind"]["group"], kind_group, "{place}");
        let found = ["/resource/group", "/resource/resource", "/subResource"]
            .map(|field| request.pointer(field).and_then(Value::as_str).unwrap());
        assert_eq!(found.join("/"), place);
        assert_eq!(request["requestSubResource"], request["subResource"]);
    }
}

#[test]
fn cluster_scoped_objects_and_namespaces_have_their_namespace() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    assert_eq!(request(&Review::create(&node)).get("namespace"), None);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    for review in [Review::create(&namespace), Review::delete(&namespace)] {
        let request = request(&review);
        assert_eq!(request["namespace"], "shop");
        assert_eq!(request["name"], "shop");
    }
    let in_itself = request(&Review::create(&namespace).namespace("shop"));
    assert_eq!(in_itself["object"], namespace, "the object has no namespace all the same");
}

#[test]
fn the_options_of_a_dry_run_have_dry_run_set() {
    let request = request(&Review::create(&pod("a")).dry_run());
    assert_eq!(request["dryRun"], true);
    assert_eq!(request["options"]["dryRun"], json!(["All"]));
}

#[test]
fn the_requested_version_may_differ() {
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}});
    let request = request(&Review::create(&cron).requested_as("batch", "v1beta1", "cronjobs"));
    assert_eq!(request["kind"]["version"], "v1");
    assert_eq!(request["requestKind"], json!({"group": "batch", "version": "v1beta1", "kind": "CronJob"}));
    assert_eq!(request["requestResource"]["resource"], "cronjobs");
}

#[test]
fn a_handler_gets_the_request() {
    let request = Review::update(&pod("a"), &pod("b"))
        .user("jane", ["dev"])
        .user_extra("scopes", ["a"])
        .name("other")
        .resource("podlets")
        .into_request(Duration::from_secs(5));
    assert_eq!(request.operation, Operation::Update);
    assert_eq!(request.user_info.username, "jane");
    assert_eq!(request.user_info.groups, ["dev", "system:authenticated"]);
    assert_eq!(request.user_info.extra["scopes"], ["a"]);
    assert_eq!((request.name.as_str(), request.resource.resource.as_str()), ("other", "podlets"));
    assert!(request.object.is_some() && request.old_object.is_some() && !request.uid.is_empty());
    let other = Review::delete(&pod("a")).user("system:anonymous", ["system:unauthenticated"]);
    let [first, second] = [&other; 2].map(self::request);
    assert_eq!(first["userInfo"]["groups"], json!(["system:unauthenticated"]));
    assert_ne!(first["uid"], second["uid"], "each call has a uid of its own");
}

#[test]
#[should_panic(expected = "the object has no kind")]
fn an_object_without_a_kind_is_rejected() {
    drop(Review::create(&json!({"apiVersion": "v1", "metadata": {}})));
}

#[test]
fn a_kind_maps_to_the_resource_that_serves_it() {
    use k8s_openapi::api::*;
    macro_rules! check {
        ($($module:ident::$version:ident {$($kind:ident),*})*) => {$($({
            type Kind = $module::$version::$kind;
            let object = json!({"apiVersion": Kind::API_VERSION, "kind": Kind::KIND});
            let request = request(&Review::create(&object));
            assert_eq!(request["resource"]["resource"], Kind::URL_PATH_SEGMENT, "{object}");
            assert_eq!(request["resource"]["group"], Kind::GROUP);
            assert_eq!(request["kind"]["version"], Kind::VERSION);
        })*)*};
    }
    check! {
        admissionregistration::v1 {
            MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
        }
        apps::v1 { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
        autoscaling::v2 { HorizontalPodAutoscaler }
        batch::v1 { CronJob, Job }
        certificates::v1 { CertificateSigningRequest }
        coordination::v1 { Lease }
        core::v1 {
            ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
            PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount
        }
        discovery::v1 { EndpointSlice }
        flowcontrol::v1 { FlowSchema, PriorityLevelConfiguration }
        networking::v1 { IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR }
        node::v1 { RuntimeClass }
        policy::v1 { PodDisruptionBudget }
        rbac::v1 { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
        scheduling::v1 { PriorityClass }
        storage::v1 { CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment }
    }
    let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway"});
    assert_eq!(request(&Review::create(&gateway))["resource"]["resource"], "gateways");
}
