//! Arguments of handlers.

use std::sync::Arc;

use kube_core::response::StatusDetails;
use serde::de::DeserializeOwned;
use snafu::Snafu;

use crate::field_errors::details;
use crate::raw_object::{DecodeError, RawObject};
use crate::review::{AdmissionRequest, Operation, UserInfo};

/// An argument of a handler. `S` is the state given by [`WithState::with_state`](crate::WithState::with_state).
///
/// ```
/// use std::sync::Arc;
///
/// use lucid_webhook::{AdmissionRequest, FromRequest, Rejection};
///
/// /// The namespace of the object, or nothing for a cluster-scoped one.
/// struct Namespace(Option<String>);
///
/// impl<S> FromRequest<S> for Namespace {
///     fn from_request(request: &Arc<AdmissionRequest>, _: &S) -> Result<Self, Rejection> {
///         Ok(Self(request.namespace.clone()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken out of an admission request",
    label = "not an argument for a handler",
    note = "arguments are `AdmissionRequest` (or an `Arc` of it), `Object<T>` and `OldObject<T>` (where `T` can be \
            deserialised), an `Option` of these two, `RawObject`, `UserInfo`, `Operation`, `State<S>`, kube's `AdmissionRequest<T>`, and \
            types that implement `FromRequest`"
)]
pub trait FromRequest<S>: Sized {
    /// Extracts the argument from `request`.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if the argument is absent or does not decode. The handler is then not called, and the webhook
    /// has failed.
    fn from_request(request: &Arc<AdmissionRequest>, state: &S) -> Result<Self, Rejection>;
}

/// An argument could not be extracted from the request.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum Rejection {
    /// The object does not match the type of the argument.
    #[snafu(display("the {what}, {object}: {source}"))]
    Decode {
        /// Name of the argument, such as `object`.
        what: &'static str,
        /// Kind, namespace and name of the object, such as `core/v1 Pod shop/web`.
        object: String,
        /// The object and the cause, for the response.
        details: Box<StatusDetails>,
        /// The decoding error, with the path of the field.
        source: DecodeError,
    },
    /// The request or the webhook lacks the argument, or an error of another implementation of [`FromRequest`].
    #[snafu(display("{message}"))]
    Other {
        /// The error message.
        message: String,
    },
}

impl Rejection {
    pub(crate) fn decode(what: &'static str, request: &AdmissionRequest, source: DecodeError) -> Self {
        let (kind, name) = (request.describe_kind(), &request.name);
        let object = match &request.namespace {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None if name.is_empty() => kind,
            None => format!("{kind} {name}"),
        };
        let details = Box::new(details(&request.kind, name, vec![source.cause()]));
        Self::Decode { what, object, details, source }
    }

    fn missing(what: &'static str, request: &AdmissionRequest) -> Self {
        // CREATE has no old object, DELETE no object.
        OtherSnafu {
            message: format!("the request carries no {what}: operation {}", request.operation.as_str()),
        }
        .build()
    }
}

/// The object as it would be stored. It is absent on DELETE: a webhook that is registered for deletions and takes it
/// would deny them all. Handlers of several operations take an [`Option<Object<T>>`].
///
/// `T` is a full type (`Pod` of k8s-openapi, `DynamicObject` of kube) or a struct with the relevant fields; other
/// fields are not decoded. For types that borrow, take the [`RawObject`] and its [`decode`](RawObject::decode).
#[derive(Clone, Copy, Debug, Default)]
pub struct Object<T>(pub T);

/// The stored object; absent on CREATE and CONNECT.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldObject<T>(pub T);

/// The state given with [`WithState::with_state`](crate::WithState::with_state).
#[derive(Clone, Copy, Debug, Default)]
pub struct State<S>(pub S);

impl<S> FromRequest<S> for AdmissionRequest {
    fn from_request(request: &Arc<AdmissionRequest>, _: &S) -> Result<Self, Rejection> {
        Ok(Self::clone(request))
    }
}

impl<S> FromRequest<S> for Arc<AdmissionRequest> {
    fn from_request(request: &Self, _: &S) -> Result<Self, Rejection> {
        Ok(Self::clone(request))
    }
}

impl<S> FromRequest<S> for RawObject {
    fn from_request(request: &Arc<AdmissionRequest>, _: &S) -> Result<Self, Rejection> {
        request.object.clone().ok_or_else(|| Rejection::missing("object", request))
    }
}

impl<S> FromRequest<S> for Option<RawObject> {
    fn from_request(request: &Arc<AdmissionRequest>, _: &S) -> Result<Self, Rejection> {
        Ok(request.object.clone())
    }
}

impl<S> FromRequest<S> for UserInfo {
    fn from_request(request: &Arc<AdmissionRequest>, _: &S) -> Result<Self, Rejection> {
        Ok(request.user_info.clone())
    }
}

impl<S> FromRequest<S> for Operation {
    fn from_request(request: &Arc<AdmissionRequest>, _: &S) -> Result<Self, Rejection> {
        Ok(request.operation)
    }
}

impl<S: Clone> FromRequest<S> for State<S> {
    fn from_request(_: &Arc<AdmissionRequest>, state: &S) -> Result<Self, Rejection> {
        Ok(Self(state.clone()))
    }
}

macro_rules! decoded {
    ($extractor:ident, $field:ident, $what:literal) => {
        impl<S, T: DeserializeOwned> FromRequest<S> for Option<$extractor<T>> {
            fn from_request(request: &Arc<AdmissionRequest>, _: &S) -> Result<Self, Rejection> {
                let Some(object) = &request.$field else { return Ok(None) };
                let object = object.decode().map_err(|source| Rejection::decode($what, request, source))?;
                Ok(Some($extractor(object)))
            }
        }

        impl<S, T: DeserializeOwned> FromRequest<S> for $extractor<T> {
            fn from_request(request: &Arc<AdmissionRequest>, state: &S) -> Result<Self, Rejection> {
                Option::from_request(request, state)?.ok_or_else(|| Rejection::missing($what, request))
            }
        }
    };
}

decoded!(Object, object, "object");
decoded!(OldObject, old_object, "old object");
