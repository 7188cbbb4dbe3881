//! Return types of handlers.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::BoxError;

use crate::field_errors::FieldErrors;
use crate::patch::JsonPatch;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;

/// A return type of handlers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a response to an admission request",
    label = "not an answer",
    note = "answers are `AdmissionResponse`, `JsonPatch`, `Changed<T>`, `FieldErrors`, kube's `AdmissionResponse`, and a \
            `Result` of one of these with any error"
)]
pub trait IntoResponse {
    /// Converts into the response to `request`.
    ///
    /// # Errors
    ///
    /// Any error counts as a failure of the webhook.
    fn into_response(self, request: &AdmissionRequest) -> Result<AdmissionResponse, BoxError>;
}

impl IntoResponse for AdmissionResponse {
    fn into_response(self, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        Ok(self)
    }
}

impl IntoResponse for JsonPatch {
    fn into_response(self, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        Ok(AdmissionResponse::patch(self))
    }
}

impl<R: IntoResponse, E: Into<BoxError>> IntoResponse for Result<R, E> {
    fn into_response(self, request: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        match self {
            Ok(response) => response.into_response(request),
            // Responses returned through `?`.
            Err(error) => match error.into().downcast::<FieldErrors>() {
                Ok(errors) => errors.into_response(request),
                Err(error) => error.downcast::<AdmissionResponse>().map(|response| *response),
            },
        }
    }
}

/// Allows the request with a patch from the original object to this one. Fields unknown to `T` are kept.
///
/// ```
/// use lucid_webhook::{Changed, Object, Webhook};
/// use k8s_openapi::api::core::v1::Pod;
///
/// async fn label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
///     pod.metadata.labels.get_or_insert_default().insert("seen".into(), "true".into());
///     Changed::new(pod).with_warning("label seen was added")
/// }
///
/// let webhook = Webhook::mutating("label.example.com", label);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Changed<T> {
    /// The changed object.
    pub object: T,
    response: AdmissionResponse,
}

impl<T> Changed<T> {
    /// Changes the object of the request to `object`.
    pub fn new(object: T) -> Self {
        Self { object, response: AdmissionResponse::allow() }
    }

    /// Adds a warning; see [`AdmissionResponse::with_warning`].
    pub fn with_warning(mut self, warning: impl Into<String>) -> Self {
        self.response = self.response.with_warning(warning);
        self
    }

    /// Adds an annotation for the audit log; see [`AdmissionResponse::with_audit_annotation`].
    pub fn with_audit_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.response = self.response.with_audit_annotation(key, value);
        self
    }
}

impl<T: Serialize + DeserializeOwned> IntoResponse for Changed<T> {
    fn into_response(self, request: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        let original =
            request.object.as_ref().ok_or("the request carries no object that could be changed")?;
        let patch = JsonPatch::of_change(original, &self.object)?;
        Ok(AdmissionResponse { patch: Some(patch), ..self.response })
    }
}
