//! A mutating webhook that adds the label `example-mutated: "true"` to every pod.

mod serve;

use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::{BoxError, Changed, Object, Operation, Router, Webhook};

async fn add_label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
    pod.metadata.labels.get_or_insert_default().insert("example-mutated".into(), "true".into());
    Changed::new(pod)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let webhook = Webhook::defaulting::<Pod>("add-label.example.com", [Operation::Create], add_label);
    let router = Router::new().webhook("/mutate", webhook);
    serve::serve(router).await
}
