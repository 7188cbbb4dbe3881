//! Conversion from and to the admission types of kube, and handlers written with them.

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube_core::admission::{self, AdmissionReview};
use kube_core::response::StatusSummary;
use kube_core::{Resource, Status, TypeMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tower::BoxError;

use crate::deadline::deadline;
use crate::handler::{FromRequest, IntoResponse, Rejection};
use crate::patch::{JsonPatch, PatchError};
use crate::raw_object::{DecodeError, RawObject};
use crate::response::AdmissionResponse;
use crate::review::{API_VERSION, AdmissionRequest, KIND, Operation, ReviewError, ReviewSnafu};

fn review_type() -> TypeMeta {
    TypeMeta { api_version: API_VERSION.to_owned(), kind: KIND.to_owned() }
}

/// An error, and the object that did not decode.
type Undecoded = (&'static str, DecodeError);

impl<T: Resource + DeserializeOwned> TryFrom<&AdmissionRequest> for admission::AdmissionRequest<T> {
    type Error = DecodeError;

    fn try_from(request: &AdmissionRequest) -> Result<Self, DecodeError> {
        decoded(request).map_err(|(_, error)| error)
    }
}

fn decoded<T: Resource + DeserializeOwned>(
    request: &AdmissionRequest,
) -> Result<admission::AdmissionRequest<T>, Undecoded> {
    fn decode<T: DeserializeOwned>(
        what: &'static str,
        object: Option<&RawObject>,
    ) -> Result<Option<T>, Undecoded> {
        object.map(RawObject::decode).transpose().map_err(|error| (what, error))
    }
    let user = &request.user_info;
    let user_info = UserInfo {
        username: Some(user.username.clone()),
        uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
        groups: Some(user.groups.clone()),
        extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
    };
    Ok(admission::AdmissionRequest {
        types: review_type(),
        uid: request.uid.clone(),
        kind: request.kind.clone(),
        resource: request.resource.clone(),
        sub_resource: request.sub_resource.clone(),
        request_kind: Some(request.request_kind.clone()),
        request_resource: Some(request.request_resource.clone()),
        request_sub_resource: request.request_sub_resource.clone(),
        name: request.name.clone(),
        namespace: request.namespace.clone(),
        operation: match request.operation {
            Operation::Create => admission::Operation::Create,
            Operation::Update => admission::Operation::Update,
            Operation::Delete => admission::Operation::Delete,
            Operation::Connect => admission::Operation::Connect,
        },
        user_info,
        object: decode("object", request.object.as_ref())?,
        old_object: decode("old object", request.old_object.as_ref())?,
        dry_run: request.dry_run,
        options: decode("options", request.options.as_ref())?.map(RawExtension),
    })
}

impl<T: Resource + DeserializeOwned> TryFrom<&AdmissionRequest> for AdmissionReview<T> {
    type Error = DecodeError;

    fn try_from(request: &AdmissionRequest) -> Result<Self, DecodeError> {
        Ok(Self { types: review_type(), request: Some(request.try_into()?), response: None })
    }
}

/// The deadline is that of the API server's default timeout.
impl<T: Resource + Serialize> TryFrom<AdmissionReview<T>> for AdmissionRequest {
    type Error = ReviewError;

    fn try_from(review: AdmissionReview<T>) -> Result<Self, ReviewError> {
        let body = serde_json::to_vec(&review).map_err(|error| {
            let problem = format!("failed to serialize the AdmissionReview: {error}");
            ReviewSnafu { problem, uid: None }.build()
        })?;
        Self::from_json(&body.into(), deadline(Instant::now(), None))
    }
}

/// The deadline is that of the API server's default timeout.
impl<T: Resource + Serialize> TryFrom<admission::AdmissionRequest<T>> for AdmissionRequest {
    type Error = ReviewError;

    fn try_from(request: admission::AdmissionRequest<T>) -> Result<Self, ReviewError> {
        AdmissionReview { types: review_type(), request: Some(request), response: None }.try_into()
    }
}

impl TryFrom<admission::AdmissionResponse> for AdmissionResponse {
    type Error = PatchError;

    fn try_from(response: admission::AdmissionResponse) -> Result<Self, PatchError> {
        // The API server also sets code 400 for a denial without a code.
        let denial = (!response.allowed).then(|| Status {
            status: Some(StatusSummary::Failure),
            code: response.result.code.clamp(400, 599),
            ..response.result
        });
        Ok(Self {
            denial: denial.map(Status::boxed),
            patch: response.patch.as_deref().map(JsonPatch::from_slice).transpose()?,
            warnings: response.warnings.unwrap_or_default(),
            audit_annotations: response.audit_annotations.into_iter().collect(),
            ..Self::allow()
        })
    }
}

impl<S, T: Resource + DeserializeOwned> FromRequest<S> for admission::AdmissionRequest<T> {
    fn from_request(request: &Arc<AdmissionRequest>, _: &S) -> Result<Self, Rejection> {
        decoded(request).map_err(|(what, source)| Rejection::decode(what, request, source))
    }
}

impl IntoResponse for admission::AdmissionResponse {
    fn into_response(self, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        Ok(self.try_into()?)
    }
}
