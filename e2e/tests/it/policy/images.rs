//! Images of auditors in every list of a pod, and every way to write them.

use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{NOTARIZED, PODS, REVOKED, assert_passed, assert_refused, patch, plain, post, with};
use crate::common::{STRATEGIC_MERGE, has_kubernetes, secured};

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
        if list == "volumes" && !has_kubernetes(cluster, 35, "an image volume").await {
            continue;
        }
        let bad = with(plain("bad"), &format!("/spec/{list}"), items.clone());
        assert_refused(list, &post(cluster, PODS, &bad).await, &[says, REVOKED, "not notarized"]);
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
    assert_passed(
        "application",
        &patch(cluster, &web, STRATEGIC_MERGE, &image("model", "example.com/model:2")).await,
    );
    // pods/resize
    let resize = |name: &str, resources: Value| json!({"spec": {"containers": [{"name": name, "resources": resources}]}});
    let path = format!("{web}/resize");
    if has_kubernetes(cluster, 33, "pods/resize").await {
        let less = json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "1m"}});
        let shrunk = patch(cluster, &path, STRATEGIC_MERGE, &resize("good", less)).await;
        assert_refused("shrunk auditor", &shrunk, &["differs from the plan in resources"]);
        let more = json!({"requests": {"memory": "256Mi"}, "limits": {"memory": "512Mi", "cpu": "0.5"}});
        assert_passed("grown auditor", &patch(cluster, &path, STRATEGIC_MERGE, &resize("good", more)).await);
        let some = json!({"requests": {"cpu": "1m"}});
        assert_passed("application", &patch(cluster, &path, STRATEGIC_MERGE, &resize("model", some)).await);
    }

    // pods/ephemeralcontainers
    let ephemeral = |container: Value| json!({"spec": {"ephemeralContainers": [container]}});
    let debug = format!("{web}/ephemeralcontainers");
    assert_refused(
        "ephemeral",
        &patch(cluster, &debug, STRATEGIC_MERGE, &ephemeral(container[0].clone())).await,
        &["auditor ephemeral container x"],
    );
    // Like `kubectl debug --target=model` with the profile `restricted`.
    let shell = json!({"name": "z", "image": "shell", "targetContainerName": "model",
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false}});
    assert_passed("debug", &patch(cluster, &debug, STRATEGIC_MERGE, &ephemeral(shell)).await);
}
