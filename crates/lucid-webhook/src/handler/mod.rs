//! Handlers: async functions whose arguments are extracted from the request, and tower services.

mod extract;
mod future;
mod respond;
mod typed;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::TryFutureExt;
use futures::future::MapErr;
use tower::util::Oneshot;
use tower::{BoxError, Service, ServiceExt};

pub use extract::{FromRequest, Object, OldObject, Rejection, State};
pub use respond::{Changed, IntoResponse};
pub use typed::{ObjectHandler, Validator};
pub(crate) use typed::{check_kind, validate};

use self::future::ResponseFuture;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;

/// Handles admission requests.
///
/// Implemented for
/// - async functions and closures of up to eight arguments, each a [`FromRequest`], that return an [`IntoResponse`]: an
///   [`AdmissionResponse`], a [`JsonPatch`](crate::JsonPatch), a [`Changed`] object,
///   [`FieldErrors`](crate::FieldErrors), or a `Result` of one of these. The `AdmissionRequest<T>` and
///   `AdmissionResponse` of kube are such types, too;
/// - every `tower::Service<AdmissionRequest, Response = AdmissionResponse>` that is `Clone`.
///
/// ```
/// use lucid_webhook::{AdmissionResponse, Object, State, UserInfo, Webhook, WithState};
/// use k8s_openapi::api::core::v1::Pod;
///
/// async fn guests_pay(Object(pod): Object<Pod>, user: UserInfo, State(owner): State<&'static str>) -> AdmissionResponse {
///     let paid = pod.metadata.labels.is_some_and(|labels| labels.contains_key("invoice"));
///     if paid || user.username == owner {
///         AdmissionResponse::allow()
///     } else {
///         AdmissionResponse::deny(403, "Forbidden", "label invoice is missing")
///     }
/// }
///
/// let webhook = Webhook::validating("guests-pay.example.com", guests_pay.with_state("jane"));
/// ```
///
/// # Early refusal
///
/// `?` on an [`AdmissionResponse`] or [`FieldErrors`](crate::FieldErrors) as the error ends the handler with that
/// response, which is not a failure of the webhook. All other errors are.
///
/// ```
/// use lucid_webhook::{AdmissionResponse, BoxError, UserInfo};
///
/// async fn handle(user: UserInfo) -> Result<AdmissionResponse, BoxError> {
///     let Some(team) = user.groups.iter().find_map(|group| group.strip_prefix("team:")) else {
///         return Err(AdmissionResponse::deny(403, "Forbidden", "you belong to no team").into());
///     };
///     let quota = tokio::fs::read_to_string(format!("/quotas/{team}")).await?;
///     Ok(AdmissionResponse::allow().with_warning(format!("quota: {quota}")))
/// }
/// ```
///
/// # Send
///
/// Handlers run on any thread of the runtime, so their futures have to be `Send`. The compiler rejects a handler that
/// keeps a `MutexGuard` of `std` or an `Rc` across an `.await`: "future cannot be sent between threads safely". Drop
/// the guard in a block that ends before the `.await`, or use `tokio::sync::Mutex`:
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use lucid_webhook::{AdmissionResponse, State};
///
/// async fn count(State(calls): State<Arc<Mutex<u64>>>) -> AdmissionResponse {
///     let calls = {
///         let mut calls = calls.lock().unwrap();
///         *calls += 1;
///         *calls
///     };
///     tokio::task::yield_now().await;
///     AdmissionResponse::allow().with_warning(format!("call {calls}"))
/// }
/// ```
///
/// `Args` only distinguishes the implementations; it is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle admission requests",
    label = "not a handler",
    note = "a handler is an `async fn` (or a closure that returns a future) with up to 8 arguments",
    note = "each argument has to be an extractor: `AdmissionRequest` (or an `Arc` of it), `Object<T>` and \
            `OldObject<T>` (with a `T` that is `DeserializeOwned`), an `Option` of these two, `RawObject`, `UserInfo`, `Operation`, `State<S>`, \
            `ClusterClient`, or a type that implements `FromRequest`",
    note = "it has to return `AdmissionResponse`, `JsonPatch`, `Changed<T>` (with a `T` that is `Serialize` and \
            `DeserializeOwned`), `FieldErrors`, or a `Result` of one of these",
    note = "or a handler is a `tower::Service<AdmissionRequest, Response = AdmissionResponse> + Clone + Send + Sync`",
    note = "`State<S>` needs the handler to be given its state: `handler.with_state(state)`"
)]
pub trait Handler<Args, S = ()>: Clone + Send + Sync + Sized + 'static {
    /// Future of the response. [`Webhook`](crate::Webhook) requires it to be `Send`.
    type Future: Future<Output = Result<AdmissionResponse, BoxError>> + 'static;

    /// Handles `request`, which the webhook shares.
    fn handle(&self, request: Arc<AdmissionRequest>, state: &S) -> Self::Future;
}

/// Attaches state to a [`Handler`].
pub trait WithState: Sized {
    /// Returns a tower service that passes `state` to the handler on each call. Use an `Arc` for state that is
    /// expensive to clone.
    ///
    /// Tests use it to call a handler without a server:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use lucid_webhook::{AdmissionResponse, UserInfo, WithState};
    /// use lucid_webhook_test::Review;
    /// use serde_json::json;
    /// use tower::ServiceExt;
    ///
    /// async fn only_jane(user: UserInfo) -> AdmissionResponse {
    ///     if user.username == "jane" { AdmissionResponse::allow() } else { AdmissionResponse::deny(403, "Forbidden", "no") }
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}});
    /// let request = Review::create(&pod).user("joe", ["dev"]).into_request(Duration::from_secs(10));
    /// let answer = only_jane.with_state(()).oneshot(request).await?;
    /// assert_eq!(answer.denial().map(|denial| denial.code), Some(403));
    /// # Ok::<(), lucid_webhook::BoxError>(())
    /// # })?;
    /// # Ok::<(), lucid_webhook::BoxError>(())
    /// ```
    fn with_state<Args, S>(self, state: S) -> HandlerService<Self, Args, S>
    where
        Self: Handler<Args, S>,
    {
        HandlerService { handler: self, state, args: PhantomData }
    }
}

// Implemented for every type, so that the compiler explains why a type is not a handler instead of reporting a missing
// method.
impl<T> WithState for T {}

/// A [`Handler`] and its state, as a [`tower::Service`].
pub struct HandlerService<H, Args, S> {
    handler: H,
    state: S,
    args: PhantomData<fn() -> Args>,
}

impl<H: Clone, Args, S: Clone> Clone for HandlerService<H, Args, S> {
    fn clone(&self) -> Self {
        Self { handler: self.handler.clone(), state: self.state.clone(), args: PhantomData }
    }
}

impl<H, Args, S> fmt::Debug for HandlerService<H, Args, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::any::type_name::<H>())
    }
}

impl<H: Handler<Args, S>, Args, S> Service<AdmissionRequest> for HandlerService<H, Args, S> {
    type Response = AdmissionResponse;
    type Error = BoxError;
    type Future = H::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: AdmissionRequest) -> Self::Future {
        self.handler.handle(Arc::new(request), &self.state)
    }
}

/// Marker for handlers that are tower services, in place of the arguments.
#[doc(hidden)]
#[derive(Debug)]
pub struct ServiceArgs(());

impl<T> Handler<ServiceArgs> for T
where
    T: Service<AdmissionRequest, Response = AdmissionResponse> + Clone + Send + Sync + 'static,
    T::Future: 'static,
    T::Error: Into<BoxError>,
{
    type Future = MapErr<Oneshot<T, AdmissionRequest>, fn(T::Error) -> BoxError>;

    fn handle(&self, request: Arc<AdmissionRequest>, (): &()) -> Self::Future {
        self.clone().oneshot(Arc::unwrap_or_clone(request)).map_err(Into::into)
    }
}

macro_rules! handler_of {
    ($($argument:ident),*) => {
        impl<F, Fut, R, S, $($argument),*> Handler<($($argument,)*), S> for F
        where
            F: Fn($($argument),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + 'static,
            R: IntoResponse,
            $($argument: FromRequest<S>,)*
        {
            type Future = ResponseFuture<Fut>;

            #[allow(non_snake_case, unused_variables, reason = "one name for the type and its value; none without arguments")]
            fn handle(&self, request: Arc<AdmissionRequest>, state: &S) -> Self::Future {
                $(
                    let $argument = match $argument::from_request(&request, state) {
                        Ok(argument) => argument,
                        Err(rejection) => return ResponseFuture::rejected(request, rejection),
                    };
                )*
                ResponseFuture::new(request, self($($argument),*))
            }
        }
    };
}

handler_of!();
handler_of!(A1);
handler_of!(A1, A2);
handler_of!(A1, A2, A3);
handler_of!(A1, A2, A3, A4);
handler_of!(A1, A2, A3, A4, A5);
handler_of!(A1, A2, A3, A4, A5, A6);
handler_of!(A1, A2, A3, A4, A5, A6, A7);
handler_of!(A1, A2, A3, A4, A5, A6, A7, A8);
