//! The webhook for workloads can be disabled while pods are validated.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Api;
use lucid_e2e::{Operator, eventually};
use lucid_testbed::Cluster;

use crate::common::{cluster, create, secured, until_called, validating_webhooks};

async fn until_registered(cluster: &Cluster, configuration: &str, expected: &[&str]) {
    eventually("these webhooks are registered", async || {
        let found = validating_webhooks(cluster, configuration).await.into_iter();
        let found: Vec<_> = found.map(|webhook| webhook.name).collect();
        if found == expected { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test]
async fn the_webhook_for_workloads_can_be_disabled() {
    let cluster = cluster().await;
    let pods = "validate.lucid.computing";
    for (configuration, builder) in
        [("lucid-operator", Operator::builder(&cluster)), ("lucid-validator", Operator::validator(&cluster))]
    {
        let mut before = builder.clone().start().await.unwrap();
        until_registered(&cluster, configuration, &[pods, "workloads.lucid.computing"]).await;
        before.terminate();
        let off = builder.flag("--validate-workloads", "false").start().await.unwrap();
        until_registered(&cluster, configuration, &[pods]).await;
        until_called(&cluster).await;
        create(&cluster, "shop", &secured(configuration)).await.stored().unwrap();
        drop(off);
        // The previous program no longer responds there.
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
        validating.delete(configuration, &Default::default()).await.unwrap();
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        mutating.delete_collection(&Default::default(), &Default::default()).await.unwrap();
    }
}
