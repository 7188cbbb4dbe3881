//! Handlers of objects of one type.

use std::future::ready;
use std::sync::Arc;

use kube_core::Resource;
use kube_core::gvk::GroupVersionKind;
use serde::de::DeserializeOwned;
use tower::BoxError;

use super::{FromRequest, Handler, HandlerService, IntoResponse, Object, OldObject, ServiceArgs};
use crate::response::AdmissionResponse;
use crate::review::{AdmissionRequest, Operation, describe};

/// A [`Handler`] whose first argument is [`Object<T>`](Object), with or without state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle objects of type `{T}`",
    label = "not a handler of `{T}`",
    note = "it is an `async fn` whose first argument is `Object<{T}>`"
)]
pub trait ObjectHandler<T, Args>: Handler<Args> {}

macro_rules! object_handler_of {
    ($($argument:ident),*) => {
        impl<T, F, Fut, $($argument),*> ObjectHandler<T, (Object<T>, $($argument),*)> for F where
            F: Fn(Object<T>, $($argument),*) -> Fut + Handler<(Object<T>, $($argument),*)>
        {
        }

        impl<T, H, S, $($argument),*> ObjectHandler<T, ServiceArgs>
            for HandlerService<H, (Object<T>, $($argument),*), S>
        where
            Self: Handler<ServiceArgs>,
        {
        }
    };
}

object_handler_of!();
object_handler_of!(A2);
object_handler_of!(A2, A3);
object_handler_of!(A2, A3, A4);
object_handler_of!(A2, A3, A4, A5);
object_handler_of!(A2, A3, A4, A5, A6);
object_handler_of!(A2, A3, A4, A5, A6, A7);
object_handler_of!(A2, A3, A4, A5, A6, A7, A8);

/// Validates objects of type `T`, see [`Webhook::validator`](crate::Webhook::validator). Methods that are not
/// implemented allow the request.
///
/// Objects of other versions arrive converted, and errors name the fields of `T`. `request.request_kind` is the version
/// of the caller; with `WebhookRegistration::with_exact_match`, other versions are not validated.
///
/// [`FieldErrors`](crate::FieldErrors) and [`AdmissionResponse`]s as errors are responses, other errors are failures of
/// the webhook.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use lucid_webhook::{AdmissionRequest, AdmissionResponse, BoxError, FieldErrors, FieldPath, Validator, Webhook};
///
/// struct Replicas {
///     most: i32,
/// }
///
/// impl Validator<Deployment> for Replicas {
///     async fn create(&self, new: Deployment, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
///         let mut errors = FieldErrors::new();
///         let replicas = new.spec.and_then(|spec| spec.replicas).unwrap_or(1);
///         if replicas > self.most {
///             let field = FieldPath::new("spec").child("replicas");
///             errors.invalid(field, replicas, format_args!("must be at most {}", self.most));
///         }
///         errors.into_result()?;
///         Ok(AdmissionResponse::allow())
///     }
///
///     async fn update(
///         &self,
///         _: Deployment,
///         new: Deployment,
///         request: &AdmissionRequest,
///     ) -> Result<AdmissionResponse, BoxError> {
///         self.create(new, request).await
///     }
/// }
///
/// let webhook = Webhook::validator::<Deployment>("replicas.example.com", Replicas { most: 3 });
/// ```
pub trait Validator<T>: Send + Sync + 'static {
    /// Operations that the webhook is registered for, all three by default. Leave out those that are always allowed:
    /// with the default `failurePolicy`, they depend on the webhook being available.
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update, Operation::Delete];

    /// Validates a new object.
    fn create(
        &self,
        new: T,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<AdmissionResponse, BoxError>> + Send {
        let _ = (new, request);
        ready(Ok(AdmissionResponse::allow()))
    }

    /// Validates a change from `old` to `new`.
    fn update(
        &self,
        old: T,
        new: T,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<AdmissionResponse, BoxError>> + Send {
        let _ = (old, new, request);
        ready(Ok(AdmissionResponse::allow()))
    }

    /// Validates the deletion of an object.
    fn delete(
        &self,
        old: T,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<AdmissionResponse, BoxError>> + Send {
        let _ = (old, request);
        ready(Ok(AdmissionResponse::allow()))
    }
}

pub(crate) async fn validate<T: DeserializeOwned, V: Validator<T>>(
    validator: &V,
    request: &Arc<AdmissionRequest>,
) -> Result<AdmissionResponse, BoxError> {
    let response = match request.operation {
        Operation::Create => {
            let Object(new) = Object::from_request(request, &())?;
            validator.create(new, request).await
        }
        Operation::Update => {
            let OldObject(old) = OldObject::from_request(request, &())?;
            let Object(new) = Object::from_request(request, &())?;
            validator.update(old, new, request).await
        }
        Operation::Delete => {
            let OldObject(old) = OldObject::from_request(request, &())?;
            validator.delete(old, request).await
        }
        Operation::Connect => Ok(AdmissionResponse::allow()),
    };
    response.into_response(request)
}

/// Fails unless `request` is about an object of type `T`. Otherwise a rule of the registration contradicts the type.
pub(crate) fn check_kind<T: Resource<DynamicType = ()>>(request: &AdmissionRequest) -> Result<(), BoxError> {
    let (group, version, kind) = (T::group(&()), T::version(&()), T::kind(&()));
    let expected = GroupVersionKind::gvk(&group, &version, &kind);
    if request.kind == expected {
        return Ok(());
    }
    let (expected, found) = (describe(&expected), describe(&request.kind));
    Err(format!("it handles {expected} and was called for {found}: correct the rules of its registration")
        .into())
}
