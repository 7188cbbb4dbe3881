//! A handler implemented as a `tower::Service` and wrapped in a tower layer: limits the replicas of Deployments.

mod serve;

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use k8s_openapi::api::apps::v1::Deployment;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, BoxError, DecodeError, Router, Webhook};
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
    let service = ServiceBuilder::new().map_response(comfort).service(LimitReplicas { most: 3 });
    let router = Router::new().webhook("/", Webhook::validating("limit-replicas.example.com", service));
    serve::serve(router).await
}
