//! Images of auditors in every list of a pod, and every way to write them.

use http::Method;
use lucid_e2e::ask;
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{JSON, NOTARIZED, PODS, REVOKED, assert_passed, assert_refused, patch, plain, post, with};
use crate::common::{STRATEGIC_MERGE, secured};

pub(super) async fn images_are_verified_in_every_list_and_operation(cluster: &Cluster) {
    let revoked = format!("example.com/good@{REVOKED}");
    let container = json!([{"name": "x", "image": revoked}]);

    // CREATE; ephemeral containers cannot be created with a pod.
    let containers = json!([plain("x")["spec"]["containers"][0], container[0]]);
    let volume = json!([{"name": "x", "image": {"reference": revoked}}]);
    for (list, items, says) in [
        ("containers", containers, "auditor container x"),
        ("initContainers", container.clone(), "auditor init container x"),
        ("volumes", volume, "auditor image volume x"),
    ] {
        let bad = with(plain("bad"), &format!("/spec/{list}"), items.clone());
        assert_refused(list, &post(cluster, PODS, &bad).await, &[says, REVOKED, "not notarized"]);
        // Claims of the pod itself make no difference.
        let mut forged = bad.clone();
        forged["metadata"]["annotations"] = json!({
            "lucid.computing/status": r#"{"chain":["x"]}"#, "lucid.computing/break-glass": "INC-1",
            "kubernetes.io/config.source": "file",
        });
        forged["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": true}]);
        assert_refused(list, &post(cluster, PODS, &forged).await, &["not notarized"]);
        let controller = "system:serviceaccount:kube-system:replicaset-controller";
        let by_controller = ask(&cluster.client(), Some(controller), Method::POST, PODS, JSON, &forged).await;
        assert_refused(list, &by_controller.unwrap(), &["not notarized"]);
        let good = items.to_string().replace(REVOKED, NOTARIZED);
        let good =
            with(plain(&list.to_lowercase()), &format!("/spec/{list}"), serde_json::from_str(&good).unwrap());
        let reply = post(cluster, PODS, &good).await;
        assert_passed(list, &reply);
        // The API server keeps image volumes; otherwise this would test nothing.
        assert_eq!(
            reply.body["spec"]["volumes"][0]["image"]["reference"].is_string(),
            list == "volumes",
            "{reply:?}"
        );
    }

    // UPDATE: the image of a running container can be changed.
    assert_passed("web", &post(cluster, PODS, &secured("web")).await);
    let web = format!("{PODS}/web");
    let image = |name: &str, image: &str| json!({"spec": {"containers": [{"name": name, "image": image}]}});
    assert_refused(
        "update",
        &patch(cluster, &web, STRATEGIC_MERGE, &image("good", &revoked)).await,
        &["container good", "not notarized"],
    );
    assert_refused(
        "disguise",
        &patch(cluster, &web, STRATEGIC_MERGE, &image("model", &revoked)).await,
        &["container model", "not notarized"],
    );
    let other = format!("example.com/other@{NOTARIZED}");
    assert_refused(
        "other",
        &patch(cluster, &web, STRATEGIC_MERGE, &image("good", &other)).await,
        &["differs from the plan in image"],
    );
    assert_passed(
        "application",
        &patch(cluster, &web, STRATEGIC_MERGE, &image("model", "example.com/model:2")).await,
    );
    let init = json!({"spec": {"initContainers": [{"name": "lucid-init", "image": revoked}]}});
    assert_refused(
        "init",
        &patch(cluster, &web, STRATEGIC_MERGE, &init).await,
        &["init container lucid-init"],
    );

    // pods/resize
    let resize = |name: &str, resources: Value| json!({"spec": {"containers": [{"name": name, "resources": resources}]}});
    let path = format!("{web}/resize");
    for less in [
        json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "1m"}}),
        json!({"requests": {"cpu": "49m"}}),
        json!({"requests": {"memory": "1Mi"}, "limits": {"memory": "1Gi"}}),
    ] {
        assert_refused(
            "shrunk auditor",
            &patch(cluster, &path, STRATEGIC_MERGE, &resize("good", less)).await,
            &["differs from the plan in resources"],
        );
    }
    let more = json!({"requests": {"memory": "256Mi"}, "limits": {"memory": "512Mi", "cpu": "0.5"}});
    assert_passed("grown auditor", &patch(cluster, &path, STRATEGIC_MERGE, &resize("good", more)).await);
    let some = json!({"requests": {"cpu": "1m"}});
    assert_passed("application", &patch(cluster, &path, STRATEGIC_MERGE, &resize("model", some)).await);

    // pods/ephemeralcontainers
    let ephemeral = |container: Value| json!({"spec": {"ephemeralContainers": [container]}});
    let debug = format!("{web}/ephemeralcontainers");
    assert_refused(
        "ephemeral",
        &patch(cluster, &debug, STRATEGIC_MERGE, &ephemeral(container[0].clone())).await,
        &["auditor ephemeral container x"],
    );
    let as_auditor = json!({"name": "y", "image": "shell", "securityContext": {"runAsUser": 20001}});
    assert_refused(
        "uid",
        &patch(cluster, &debug, STRATEGIC_MERGE, &ephemeral(as_auditor)).await,
        &["ephemeral container y", "20001"],
    );
    let admin =
        json!({"name": "y", "image": "shell", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}});
    assert_refused(
        "admin",
        &patch(cluster, &debug, STRATEGIC_MERGE, &ephemeral(admin)).await,
        &["NET_ADMIN"],
    );
    for (what, container, says) in [
        (
            "target",
            json!({"name": "y", "image": "shell", "targetContainerName": "good"}),
            "targetContainerName",
        ),
        ("name", json!({"name": "lucid-toxicity-auditor", "image": "shell"}), "bears the name of an auditor"),
        (
            "no rules",
            json!({"name": "y", "image": "shell", "targetContainerName": "lucid-init"}),
            "auditor \"lucid-init\"",
        ),
    ] {
        assert_refused(what, &patch(cluster, &debug, STRATEGIC_MERGE, &ephemeral(container)).await, &[says]);
    }
    // Like `kubectl debug --target=model` with the profiles `general` and `restricted`.
    let mut shell = json!({"name": "z", "image": "shell", "targetContainerName": "model",
        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}});
    assert_refused(
        "ptrace",
        &patch(cluster, &debug, STRATEGIC_MERGE, &ephemeral(shell.clone())).await,
        &["SYS_PTRACE"],
    );
    shell["securityContext"] = json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false});
    assert_passed("debug", &patch(cluster, &debug, STRATEGIC_MERGE, &ephemeral(shell)).await);
}
