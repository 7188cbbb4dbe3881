//! A validating webhook that admits only pods with the label `example-validation: "true"`.

mod serve;

use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::{AdmissionResponse, BoxError, Object, Router, Webhook};

async fn required_label(Object(pod): Object<Pod>) -> AdmissionResponse {
    match pod.metadata.labels.unwrap_or_default().get("example-validation").map(String::as_str) {
        Some("true") => AdmissionResponse::allow(),
        _ => AdmissionResponse::deny(403, "Forbidden", "Pod must have label 'example-validation=true'"),
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let router =
        Router::new().webhook("/validate", Webhook::validating("required-label.example.com", required_label));
    serve::serve(router).await
}
