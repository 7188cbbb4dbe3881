//! A handler that is a `tower::Service` of its own, with a layer of tower around it: Deployments may have only so many
//! replicas.

use std::env;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use k8s_openapi::api::apps::v1::Deployment;
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, BoxError, DecodeError, PemFiles, Router, Server, Webhook,
};
use tower::{Service, ServiceBuilder};

#[derive(Clone)]
struct LimitReplicas {
    most: i32,
}

impl Service<AdmissionRequest> for LimitReplicas {
    type Response = AdmissionResponse;
    type Error = DecodeError;
    type Future = Ready<Result<AdmissionResponse, DecodeError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DecodeError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: AdmissionRequest) -> Self::Future {
        ready(self.answer(&request))
    }
}

impl LimitReplicas {
    fn answer(&self, request: &AdmissionRequest) -> Result<AdmissionResponse, DecodeError> {
        // Nothing is there to be looked at when a Deployment is deleted.
        let Some(object) = &request.object else { return Ok(AdmissionResponse::allow()) };
        let replicas = object.decode::<Deployment>()?.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        if replicas <= self.most {
            return Ok(AdmissionResponse::allow());
        }
        let message = format!("{replicas} replicas are asked for, at most {} are given", self.most);
        Ok(AdmissionResponse::deny(403, "Forbidden", message))
    }
}

/// What users see below a refusal.
fn comfort(answer: AdmissionResponse) -> AdmissionResponse {
    if answer.is_allowed() { answer } else { answer.with_warning("exceptions are made on Mondays") }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [listen, certificate, key] = arguments.as_slice() else {
        return Err("usage: tower_service <listen> <cert.pem> <key.pem>".into());
    };
    let tls = PemFiles::load(certificate, key).await?;
    let service = ServiceBuilder::new().map_response(comfort).service(LimitReplicas { most: 3 });
    let router = Router::new().webhook("/", Webhook::validating("limit-replicas.example.com", service));
    let server = Server::bind(listen.parse()?).await?;
    println!("listening on {}", server.local_addr());
    let shutdown = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    server.serve(tls, router, shutdown).await;
    Ok(())
}
