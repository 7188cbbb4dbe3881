//! Checks that the API server stores image volumes, if a catalogue has any, by creating a pod as a server-side dry run. Its
//! schema would not tell: it has the field even where the feature is disabled.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use lucid_admission::ClusterConfiguration;
use serde_json::json;

use super::reachable::{restricted_pod, unpermitted};
use super::report::Check;

const CHECK: &str = "image-volumes";

/// Returns `None` if no auditor mounts an image volume. The pod is created in Lucid's namespace, which has no injection.
pub(super) async fn check(
    client: &Client,
    cluster: &ClusterConfiguration,
    own: &str,
    namespaces: impl Iterator<Item = &str>,
) -> Option<Check> {
    let auditor = with_image_volume(cluster, namespaces).await?;
    let mut pod = restricted_pod();
    pod["spec"]["volumes"] = json!([{"name": "files", "image": {"reference": "registry.k8s.io/pause:3.10"}}]);
    let pod: Pod = serde_json::from_value(pod).unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), own);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let is_stored = match pods.create(&dry_run, &pod).await {
        Ok(created) => {
            let volumes = created.spec.and_then(|spec| spec.volumes).unwrap_or_default();
            volumes.iter().any(|volume| volume.image.is_some())
        }
        Err(kube::Error::Api(status)) => {
            let refused = || Check::unknown(CHECK, format!("a pod in {own} is rejected: {}", status.message));
            return Some(unpermitted(own, &status).map_or_else(refused, |it| Check::unread(CHECK, &it)));
        }
        Err(error) => {
            let why = lucid_shared::with_causes(&error);
            return Some(Check::unknown(CHECK, format!("failed to create a pod (dry run): {why}")));
        }
    };
    if is_stored {
        return Some(Check::ok(CHECK, "the API server stores image volumes"));
    }
    let found = format!("this Kubernetes has no image volumes, and auditor {auditor} mounts one");
    let action =
        "enable the feature gate ImageVolume, or take a ConfigMap or Secret as source of its `files`";
    Some(Check::failed(CHECK, found).action(action))
}

async fn with_image_volume(
    cluster: &ClusterConfiguration,
    namespaces: impl Iterator<Item = &str>,
) -> Option<String> {
    for namespace in namespaces {
        let Ok(view) = cluster.namespace(namespace).await else { continue };
        let catalogues = view.catalogues();
        let mut auditors = catalogues.iter().flat_map(|catalogue| catalogue.auditors());
        if let Some(auditor) = auditors.find(|it| it.volumes().any(|volume| volume["image"].is_object())) {
            return Some(auditor.name().to_owned());
        }
    }
    None
}
