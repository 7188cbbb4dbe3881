//! A handler implemented as a `tower::Service` and wrapped in a tower layer: limits the replicas of Deployments.

use std::env;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use lucid_certs::source::Files;
use lucid_certs::{Certificates, ServerTls, ServingNames};
use lucid_webhook::{AdmissionRequest, AdmissionResponse, BoxError, DecodeError, Router, Server, Webhook};
use tokio::signal::unix::{SignalKind, signal};
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
        // A deletion has no object to check.
        let Some(object) = &request.object else { return Ok(AdmissionResponse::allow()) };
        let replicas = object.decode::<Deployment>()?.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        if replicas <= self.most {
            return Ok(AdmissionResponse::allow());
        }
        let message = format!("{replicas} replicas are asked for, at most {} are given", self.most);
        Ok(AdmissionResponse::deny(403, "Forbidden", message))
    }
}

/// Adds a warning to denials.
fn comfort(answer: AdmissionResponse) -> AdmissionResponse {
    if answer.is_allowed() { answer } else { answer.with_warning("exceptions are made on Mondays") }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [listen, certificate, key, host @ ..] = arguments.as_slice() else {
        return Err("usage: tower_service <listen> <cert.pem> <key.pem> [<host>]".into());
    };
    let listen: SocketAddr = listen.parse()?;
    // Host in the URL that the API server calls, for which the certificate has to be valid.
    let host = host.first().cloned().unwrap_or_else(|| listen.ip().to_string());
    let certificates = Certificates::new(ServingNames::for_hosts(&[&host])?);
    let tls = ServerTls::new(certificates.resolver()).build()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
    .shared();
    let mut ready = certificates.ready();
    tokio::spawn(certificates.run(Files::new(certificate, key), shutdown.clone()));
    // While the files are invalid, the log states the reason.
    ready.wait_for(|ready| *ready).await?;
    let service = ServiceBuilder::new().map_response(comfort).service(LimitReplicas { most: 3 });
    let router = Router::new().webhook("/", Webhook::validating("limit-replicas.example.com", service));
    let server = Server::bind(listen).await?;
    println!("listening on {}", server.local_addr());
    server.serve(tls, router, shutdown).await;
    Ok(())
}
