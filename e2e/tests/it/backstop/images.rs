//! Images of auditors: digests, and changes of running pods.

use lucid_chain::{Catalogue, Configuration};
use lucid_e2e::eventually;
use serde_json::{Value, json};

use super::{builtin, containers, injected, install, refused};
use crate::common::{cluster, create, dry_run, patch_pod, pod, secured_with, with_chain};

#[tokio::test]
async fn strict_notarization_needs_digests_of_known_images() {
    let cluster = cluster().await;
    let digest = format!("sha256:{}", "1".repeat(64));
    let catalogue = format!(
        "chain:\n  - {{name: good, image: \"example.com/good:1@{digest}\"}}\n  - {{name: tagged, image: \"example.com/tagged:1\"}}\n"
    );
    let file = cluster.folder().join("auditors.yaml");
    std::fs::write(&file, &catalogue).unwrap();
    let catalogue = Catalogue::builtin().overlay(&Catalogue::parse("auditors.yaml", &catalogue).unwrap());
    let configuration = Configuration::new(catalogue, None).unwrap();
    install(&cluster, &["--catalogue", &file.display().to_string(), "--strict-notarization"]).await;
    let asking = |name: &str, chain: &str| injected(&with_chain(name, chain), &configuration);
    let unpinned = "auditor containers without digest: ";
    let response = create(&cluster, "shop", &asking("tagged", "tagged")).await;
    refused(&response, &[unpinned, "tagged"]);
    for image in
        ["example.com/good:1", "EXAMPLE.com:443/good", "example.com/other:1", "example.com/good@sha256:1"]
    {
        let mut pod = asking("web", "good");
        let more =
            json!({"name": "more", "image": image, "env": [{"name": "LUCID_AUDITOR_ID", "value": "x"}]});
        containers(&mut pod).push(more);
        refused(&create(&cluster, "shop", &pod).await, &[unpinned, "more"]);
    }
    create(&cluster, "shop", &asking("web", "good")).await.stored().unwrap();

    let change = async |path: &str, patch: Value| patch_pod(&cluster, path, &patch).await;
    let image = |name: &str, image: &str| json!({"spec": {"containers": [{"name": name, "image": image}]}});
    let ephemeral =
        |name: &str, image: &str| json!({"spec": {"ephemeralContainers": [{"name": name, "image": image}]}});
    let other = format!("example.com/good@sha256:{}", "2".repeat(64));
    let foreign = format!("example.com/model@sha256:{}", "2".repeat(64));
    let other_repository = "auditor containers with an image of another repository: good";
    for secured in ["true", "false"] {
        // Removing the label first does not help.
        let label = json!({"metadata": {"labels": {"lucid.io/secured": secured}}});
        assert_eq!(change("web", label).await.status, 200);
        refused(&change("web", image("good", "example.com/good:2")).await, &[unpinned, "good"]);
        refused(&change("web", image("good", &foreign)).await, &[other_repository]);
        refused(
            &change("web/ephemeralcontainers", ephemeral("e", "example.com/good:2")).await,
            &[unpinned, "e"],
        );
        refused(
            &change("web/ephemeralcontainers", ephemeral("lucid-toxicity-auditor-2", "a:2")).await,
            &[unpinned],
        );
        let response = change("web", image("model", "example.com/model:2")).await;
        assert_eq!(response.status, 200, "{response:?}");
        let response = change("web", image("model", "example.com/model:1")).await;
        assert_eq!(response.status, 200, "{response:?}");
    }
    let response = change("web", image("good", &other)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let response = change("web/ephemeralcontainers", ephemeral("shell", "example.com/shell:1")).await;
    assert_eq!(response.status, 200, "{response:?}");

    // A pod that is not secured.
    create(&cluster, "shop", &pod("plain", json!({}), json!({}))).await.stored().unwrap();
    let response = change("plain", image("model", "example.com/good:2")).await;
    assert_eq!(response.status, 200, "{response:?}");
}

#[tokio::test]
async fn pods_with_a_former_image_of_lucid_egress_can_be_updated() {
    let cluster = cluster().await;
    install(&cluster, &[]).await;
    let asking = secured_with("web", json!({"lucid.computing/direction": "outbound"}));
    let former = injected(&asking, &builtin());
    create(&cluster, "shop", &former).await.stored().unwrap();

    let image = "example.com/lucid-egress:2";
    install(&cluster, &["--egress-image", image]).await;
    let catalogue = Catalogue::builtin().with_egress_image(&image.parse().unwrap());
    let current = injected(&asking, &Configuration::new(catalogue, None).unwrap());
    let named = |pod: &Value| {
        let mut pod = pod.clone();
        pod["metadata"]["name"] = json!("new");
        pod
    };
    eventually("the pod is accepted", async || {
        let response = dry_run(&cluster, "shop", &named(&current)).await;
        if response.status == 201 { Ok(()) } else { Err(response) }
    })
    .await;
    let outdated = "no auditors as they are known here: lucid-egress (a newer configuration needs";
    refused(&dry_run(&cluster, "shop", &named(&former)).await, &[outdated]);
    let change = json!({"spec": {"containers": [{"name": "model", "image": "example.com/model:2"}]}});
    let response = patch_pod(&cluster, "web", &change).await;
    assert_eq!(response.status, 200, "{response:?}");
    for (image, is_accepted) in [(image, true), ("example.com/other:1", false)] {
        let change = json!({"spec": {"containers": [{"name": "lucid-egress", "image": image}]}});
        let response = patch_pod(&cluster, "web", &change).await;
        assert_eq!(response.status == 200, is_accepted, "{response:?}");
    }
}
