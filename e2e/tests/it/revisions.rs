//! Catalogue revisions: a label moves a namespace to ConfigMap `lucid-auditors-canary`.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::DeleteParams;
use lucid_e2e::{Answer, ClusterExt as _};
use lucid_testbed::Cluster;
use serde_json::json;

use crate::check::check;
use crate::common::{
    ENABLED, cluster, config_map, create, label_namespace, operator, patch_pod, until, with_chain,
};

const OLD: &str = "r.test/topics:1";
const NEW: &str = "r.test/topics:2";

fn image_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.containers.iter().find(|it| it.name == "topics")?.image.as_deref()
}

/// Creates pods in `namespace` until one is admitted with this image.
async fn until_image(cluster: &Cluster, namespace: &str, prefix: &str, image: &str) -> Answer {
    let manifest = |name: &str| with_chain(&format!("{prefix}-{name}"), "topics");
    let has_image = |it: &Answer| it.result.as_ref().is_ok_and(|pod| image_of(pod) == Some(image));
    until(cluster, namespace, manifest, has_image).await
}

#[tokio::test]
async fn a_label_moves_a_namespace_to_the_canary() {
    let cluster = cluster().await;
    cluster.create_namespace("bank", &[ENABLED]).await.unwrap();
    for (name, image) in [("lucid-auditors", OLD), ("lucid-auditors-canary", NEW)] {
        let yaml = format!("chain: [{{name: topics, image: \"{image}\"}}]");
        config_map(&cluster, "lucid-system", name, "auditors.yaml", &yaml).await;
    }
    let _operator = operator(&cluster, |operator| {
        operator.env("LUCID_ADMISSION_MODE", "enforce").env("LUCID_TIER_LABEL", "")
    })
    .await;
    let before = until_image(&cluster, "shop", "before", OLD).await.stored().unwrap().metadata.name.unwrap();

    label_namespace(&cluster, "shop", json!({"lucid.computing/revision": "canary"})).await;
    until_image(&cluster, "shop", "moved", NEW).await;
    let stays = create(&cluster, "bank", &with_chain("stays", "topics")).await.stored().unwrap();
    assert_eq!(image_of(&stays), Some(OLD));
    let checked = check(&cluster).await;
    let on = ["lucid-auditors-canary applies in shop", "lucid-auditors applies in bank"];
    checked.assert("revisions", "", "ok", &on);
    checked.assert(
        "stale-chains",
        "",
        "failed",
        &["image of topics is r.test/topics:1, now r.test/topics:2"],
    );

    // Pods from before the move stay valid, and can follow without a restart.
    let noted = json!({"metadata": {"labels": {"noted": "true"}}});
    assert_eq!(patch_pod(&cluster, &before, &noted).await.status, 200);
    let image = |image: &str| json!({"spec": {"containers": [{"name": "topics", "image": image}]}});
    assert_eq!(patch_pod(&cluster, &before, &image("r.test/topics:3")).await.status, 403);
    assert_eq!(patch_pod(&cluster, &before, &image(NEW)).await.status, 200);

    // A revision that does not exist takes no chain away.
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "lucid-system");
    maps.delete("lucid-auditors-canary", &DeleteParams::default()).await.unwrap();
    let back = until_image(&cluster, "shop", "back", OLD).await;
    let problem = "namespace shop, lucid.computing/revision: ConfigMap lucid-auditors-canary does not exist";
    assert!(back.warnings.iter().any(|it| it.contains(problem)), "{back:?}");
    check(&cluster).await.assert("configuration", "", "failed", &[problem, "lucid-auditors applies"]);
}
