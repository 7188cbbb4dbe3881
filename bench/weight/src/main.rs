//! A webhook beside a controller, as a program has them before it uses Lucid's crates.

use std::error::Error;
use std::net::SocketAddr;

use axum::routing::post;
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use futures::TryStreamExt;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionResponse, AdmissionReview};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Widget", namespaced)]
struct WidgetSpec {
    size: u32,
}

async fn validate(
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Json<AdmissionReview<DynamicObject>> {
    Json(match review.try_into() {
        Ok(request) => AdmissionResponse::from(&request).into_review(),
        Err(error) => AdmissionResponse::invalid(format!("{error}")).into_review(),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    tracing_subscriber::fmt().init();
    let client = Client::try_default().await?;
    let widgets = watcher(Api::<Widget>::all(client.clone()), watcher::Config::default()).applied_objects();
    tokio::spawn(widgets.try_for_each(|widget| async move {
        tracing::info!(name = widget.metadata.name, size = widget.spec.size, "changed");
        Ok(())
    }));
    #[cfg(feature = "lucid")]
    tokio::spawn(lucid::serve(client));
    let tls = RustlsConfig::from_pem_file("tls.crt", "tls.key").await?;
    let router = Router::new().route("/validate", post(validate));
    let address = SocketAddr::from(([0, 0, 0, 0], 8443));
    axum_server::bind_rustls(address, tls).serve(router.into_make_service()).await?;
    Ok(())
}

#[cfg(feature = "lucid")]
mod lucid {
    use k8s_openapi::api::core::v1::Pod;
    use lucid_certs::{Certificates, ServerTls, ServingNames};
    use lucid_webhook::{BoxError, Changed, Object, Router, Server, Webhook};

    async fn label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
        pod.metadata.labels.get_or_insert_default().insert("seen".into(), "true".into());
        Changed::new(pod)
    }

    pub(crate) async fn serve(client: kube::Client) -> Result<(), BoxError> {
        let names = ServingNames::for_services("example", &["webhook"])?;
        let certificates = Certificates::new(names);
        let tls = ServerTls::new(certificates.resolver()).build()?;
        let source = certificates.self_managed(client, "example", "webhook-ca")?;
        tokio::spawn(certificates.run(source, std::future::pending()));
        let router = Router::new().webhook("/label", Webhook::mutating("label.example.com", label));
        let server = Server::bind(([0, 0, 0, 0], 8444).into()).await?;
        server.serve(tls, router, std::future::pending()).await;
        Ok(())
    }
}
