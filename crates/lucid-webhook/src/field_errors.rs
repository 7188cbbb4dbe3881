//! Errors in fields of an object, in the form of `field.ErrorList` (`k8s.io/apimachinery/pkg/util/validation/field`).

use std::error::Error;
use std::fmt::{self, Display};

use kube_core::gvk::GroupVersionKind;
use kube_core::response::{StatusCause, StatusDetails};
use serde::Serialize;
use tower::BoxError;

use crate::handler::IntoResponse;
use crate::response::{AdmissionResponse, no_details};
use crate::review::AdmissionRequest;

/// Path of a field, such as `spec.containers[0].image`.
///
/// ```
/// use lucid_webhook::FieldPath;
///
/// let containers = FieldPath::new("spec").child("containers");
/// assert_eq!(containers.index(0).child("image").to_string(), "spec.containers[0].image");
/// assert_eq!(FieldPath::new("metadata").child("labels").key("team").to_string(), "metadata.labels[team]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    /// Path of a field of the object itself, such as `spec`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Path of a field of this object.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self(format!("{self}.{name}"))
    }

    /// Path of an element of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{self}[{index}]"))
    }

    /// Path of an entry of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{self}[{key}]"))
    }
}

impl Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Errors in fields of the object. They deny the request as the API server denies invalid objects of built-in types:
/// 422 `Invalid`, with the object and one cause per error, which kubectl prints.
///
/// A handler returns them as the error of a `Result`, or on their own; without any error, the request is allowed.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use lucid_webhook::{AdmissionResponse, FieldErrors, FieldPath, Object};
///
/// // The Deployment "web" is invalid: spec.replicas: Invalid value: 9: must be at most 3
/// async fn small(Object(deployment): Object<Deployment>) -> Result<AdmissionResponse, FieldErrors> {
///     let mut errors = FieldErrors::new();
///     let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
///     if replicas > 3 {
///         errors.invalid(FieldPath::new("spec").child("replicas"), replicas, "must be at most 3");
///     }
///     errors.into_result()?;
///     Ok(AdmissionResponse::allow())
/// }
/// ```
///
/// To add warnings, use the response: `errors.into_response(&request)?.with_warning("…")`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct FieldErrors(Vec<StatusCause>);

impl FieldErrors {
    /// Creates a list without errors.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// A value is missing.
    pub fn required(&mut self, field: FieldPath, detail: impl Display) {
        self.add("FieldValueRequired", field, "Required value", None, detail);
    }

    /// A value is malformed or out of range.
    pub fn invalid(&mut self, field: FieldPath, value: impl Serialize, detail: impl Display) {
        self.add("FieldValueInvalid", field, "Invalid value", json(value), detail);
    }

    /// A value is not among the `supported` ones.
    pub fn not_supported<V: Display>(
        &mut self,
        field: FieldPath,
        value: impl Serialize,
        supported: impl IntoIterator<Item = V>,
    ) {
        let supported: Vec<_> =
            supported.into_iter().map(|value| format!("{:?}", value.to_string())).collect();
        let detail = match supported.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", supported.join(", ")),
        };
        self.add("FieldValueNotSupported", field, "Unsupported value", json(value), detail);
    }

    /// A value has to be unique.
    pub fn duplicate(&mut self, field: FieldPath, value: impl Serialize) {
        self.add("FieldValueDuplicate", field, "Duplicate value", json(value), "");
    }

    /// A value is well-formed, but not permitted here.
    pub fn forbidden(&mut self, field: FieldPath, detail: impl Display) {
        self.add("FieldValueForbidden", field, "Forbidden", None, detail);
    }

    fn add(
        &mut self,
        reason: &str,
        field: FieldPath,
        kind: &str,
        value: Option<String>,
        detail: impl Display,
    ) {
        let detail = detail.to_string();
        let parts = [Some(kind), value.as_deref(), Some(&*detail).filter(|detail| !detail.is_empty())];
        let message = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
        self.0.push(StatusCause { reason: reason.to_owned(), message, field: field.0 });
    }

    /// Returns the errors, if there are any, as an error.
    ///
    /// # Errors
    ///
    /// These errors.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

/// Formats a value as JSON. The API server formats strings, numbers and booleans in the same way.
fn json(value: impl Serialize) -> Option<String> {
    serde_json::to_string(&value).ok()
}

pub(crate) fn details(kind: &GroupVersionKind, name: &str, causes: Vec<StatusCause>) -> StatusDetails {
    let (group, kind) = (kind.group.clone(), kind.kind.clone());
    StatusDetails { name: name.to_owned(), group, kind, causes, ..no_details() }
}

impl IntoResponse for FieldErrors {
    fn into_response(self, request: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        if self.0.is_empty() {
            return Ok(AdmissionResponse::allow());
        }
        let GroupVersionKind { group, kind, .. } = &request.kind;
        let qualified = if group.is_empty() { kind.clone() } else { format!("{kind}.{group}") };
        let message = format!("{qualified} {:?} is invalid: {self}", request.name);
        let details = details(&request.kind, &request.name, self.0);
        Ok(AdmissionResponse::deny(422, "Invalid", message).with_details(details))
    }
}

impl Error for FieldErrors {}

impl Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<_> =
            self.0.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        match errors.as_slice() {
            [error] => f.write_str(error),
            errors => write!(f, "[{}]", errors.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The messages are those of `field.ErrorList` of Kubernetes 1.36.
    #[test]
    fn messages_match_those_of_kubernetes() {
        let spec = FieldPath::new("spec");
        let mut errors = FieldErrors::new();
        let mut expected = Vec::new();
        let mut case = |add: &dyn Fn(&mut FieldErrors), reason: &str, text: &str| {
            add(&mut errors);
            let (field, message) = text.split_once(": ").unwrap();
            expected.push(StatusCause {
                reason: reason.into(),
                message: message.into(),
                field: field.into(),
            });
        };
        case(&|it| it.required(spec.child("team"), ""), "FieldValueRequired", "spec.team: Required value");
        case(
            &|it| it.invalid(spec.child("size"), 9, "must be at most 3"),
            "FieldValueInvalid",
            "spec.size: Invalid value: 9: must be at most 3",
        );
        case(
            &|it| it.not_supported(spec.child("color"), "red", ["green", "blue"]),
            "FieldValueNotSupported",
            r#"spec.color: Unsupported value: "red": supported values: "green", "blue""#,
        );
        case(
            &|it| it.duplicate(spec.child("ports").index(1), [80]),
            "FieldValueDuplicate",
            "spec.ports[1]: Duplicate value: [80]",
        );
        case(
            &|it| it.forbidden(spec.child("labels").key("x"), "no"),
            "FieldValueForbidden",
            "spec.labels[x]: Forbidden: no",
        );
        assert_eq!(errors.0, expected);
        FieldErrors::new().into_result().unwrap();
        errors.0.truncate(2);
        let text = "[spec.team: Required value, spec.size: Invalid value: 9: must be at most 3]";
        assert_eq!(errors.into_result().unwrap_err().to_string(), text);
    }
}
