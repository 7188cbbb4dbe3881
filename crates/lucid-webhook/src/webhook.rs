//! A webhook: its handler, guard, limits and failure handling.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube_core::Resource;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, watch};
use tower::BoxError;

use crate::budget::LARGE;
#[cfg(feature = "client")]
use crate::client::Clients;
#[cfg(feature = "client")]
use crate::client::access_review::{CachedAccessReview, SubjectAccessReviews};
use crate::failure::{Failure, FailureAction, ResponseFunction};
use crate::guard::{Guard, Permissions, Selector};
use crate::handler::{Handler, ObjectHandler, Validator, check_kind, validate};
use crate::kind::WebhookKind;
use crate::patch::AllowedPaths;
use crate::registration::WebhookRegistration;
use crate::response::AdmissionResponse;
use crate::review::{AdmissionRequest, Operation};

type BoxHandler = Box<
    dyn Fn(Arc<AdmissionRequest>) -> BoxFuture<'static, Result<AdmissionResponse, BoxError>> + Send + Sync,
>;

/// A [`Handler`] with its guard, limits, failure handling and registration.
///
/// ```
/// use lucid_webhook::{AdmissionResponse, FailureAction, Operation, Router, Webhook};
///
/// async fn everything_is_fine(operation: Operation) -> AdmissionResponse {
///     AdmissionResponse::allow().with_warning(format!("{} is fine", operation.as_str()))
/// }
///
/// let webhook = Webhook::validating("fine.example.com", everything_is_fine)
///     .with_failure_action(FailureAction::Warn);
/// let router = Router::new().webhook("/fine", webhook);
/// ```
///
/// `Args` only lets [`defaulting`](Self::defaulting) infer the arguments of its handler.
pub struct Webhook<Args = ()> {
    pub(crate) kind: WebhookKind,
    pub(crate) name: Arc<str>,
    pub(crate) handler: BoxHandler,
    pub(crate) failure_action: FailureAction,
    pub(crate) on_response: Option<ResponseFunction>,
    pub(crate) allowed_paths: Vec<AllowedPaths>,
    pub(crate) guard: Guard,
    has_permissions: bool,
    pub(crate) max_in_flight: Option<Arc<Semaphore>>,
    pub(crate) denies_overload: bool,
    pub(crate) registration: WebhookRegistration,
    #[cfg(feature = "client")]
    pub(crate) clients: Option<Clients>,
    args: PhantomData<fn() -> Args>,
}

impl Webhook {
    /// Creates a webhook that may change objects. `name` is its name in the configuration, such as `label.example.com`,
    /// and the label of its metrics.
    #[must_use]
    pub fn mutating<H, Args>(name: impl Into<Arc<str>>, handler: H) -> Self
    where
        H: Handler<Args, Future: Send>,
        Args: 'static,
    {
        Self::new(WebhookKind::Mutating, name.into(), handler)
    }

    /// Creates a webhook that only allows or denies; a patch from it counts as a failure.
    #[must_use]
    pub fn validating<H, Args>(name: impl Into<Arc<str>>, handler: H) -> Self
    where
        H: Handler<Args, Future: Send>,
        Args: 'static,
    {
        Self::new(WebhookKind::Validating, name.into(), handler)
    }

    /// Creates a validating webhook for objects of type `T`. It is registered for [`Validator::OPERATIONS`] in the
    /// version of `T`. Rules of other resources are rejected, as with [`defaulting`](Webhook::defaulting).
    #[must_use]
    pub fn validator<T: Resource<DynamicType = ()> + DeserializeOwned + 'static>(
        name: impl Into<Arc<str>>,
        validator: impl Validator<T>,
    ) -> Self {
        fn operations<T, V: Validator<T>>(_: &V) -> &'static [Operation] {
            V::OPERATIONS
        }
        let operations = operations(&validator).iter().copied();
        let validator = Arc::new(validator);
        let handler = move |request: Arc<AdmissionRequest>| {
            let validator = Arc::clone(&validator);
            async move { validate::<T, _>(&*validator, &request).await }
        };
        Self::typed::<T, _, _>(WebhookKind::Validating, name.into(), operations, handler)
    }

    /// A webhook that is registered for, and called with, objects of type `T` only.
    fn typed<T, H, Args>(
        kind: WebhookKind,
        name: Arc<str>,
        operations: impl IntoIterator<Item = Operation>,
        handler: H,
    ) -> Self
    where
        T: Resource<DynamicType = ()> + 'static,
        H: Handler<Args, Future: Send>,
        Args: 'static,
    {
        let handler = move |request: Arc<AdmissionRequest>| {
            let handling = check_kind::<T>(&request).map(|()| handler.handle(request, &()));
            async move { handling?.await }
        };
        Self::new(kind, name, handler).with_registration(|it| it.of_type::<T>(operations))
    }

    fn new<H, Args>(kind: WebhookKind, name: Arc<str>, handler: H) -> Self
    where
        H: Handler<Args, Future: Send>,
        Args: 'static,
    {
        Self {
            max_in_flight: None,
            denies_overload: false,
            registration: WebhookRegistration::new(kind, &*name, "/"),
            #[cfg(feature = "client")]
            clients: None,
            guard: Guard::new(Arc::clone(&name), kind, fixed(Permissions::default())),
            has_permissions: false,
            kind,
            name,
            handler: Box::new(move |request| handler.handle(request, &()).boxed()),
            failure_action: FailureAction::default(),
            on_response: None,
            allowed_paths: Vec::new(),
            args: PhantomData,
        }
    }

    /// Sets the action for a handler that returns an error, panics or times out; [`FailureAction::Abort`] by default.
    /// It applies to calls that reached the webhook. The `failurePolicy` of the registration covers calls that did not.
    #[must_use]
    pub fn with_failure_action(mut self, action: FailureAction) -> Self {
        self.failure_action = action;
        self
    }

    /// Calls an async `function` with each response before it is sent, for example to record it, and with the
    /// [`Failure`] if the handler failed or its patch was refused. The handler passes values to it in
    /// [`AdmissionResponse::extensions`]; responses of the guard have none. Requests denied for overload are not
    /// passed.
    ///
    /// The function is also called if an administrator's permissions replace the failure action. It may add warnings
    /// and audit annotations, or deny the request. It can neither allow a denied request nor change the patch. If it
    /// panics, the request is denied. The deadline may have passed.
    ///
    /// ```
    /// use lucid_webhook::{AdmissionRequest, AdmissionResponse, Failure, Webhook};
    ///
    /// # async fn handler() -> AdmissionResponse { AdmissionResponse::allow() }
    /// let webhook = Webhook::validating("fine.example.com", handler).with_on_response(
    ///     |request: &AdmissionRequest, response: AdmissionResponse, failure: Option<&Failure>| {
    ///         println!("{}: {response} {}", request.uid, failure.map_or(String::new(), Failure::to_string));
    ///         async move { response }
    ///     },
    /// );
    /// ```
    #[must_use]
    pub fn with_on_response<F: Future<Output = AdmissionResponse> + Send + 'static>(
        mut self,
        function: impl Fn(&AdmissionRequest, AdmissionResponse, Option<&Failure>) -> F + Send + Sync + 'static,
    ) -> Self {
        self.on_response =
            Some(Arc::new(move |request, response, failure| function(request, response, failure).boxed()));
        self
    }

    /// Restricts the fields that the webhook may change; all of them by default. A patch of any other field is not
    /// applied and counts as a failure. After several calls, a change has to be allowed by all of them.
    #[must_use]
    pub fn with_allowed_paths(mut self, paths: AllowedPaths) -> Self {
        self.allowed_paths.push(paths);
        self
    }

    /// Limits the number of concurrent requests. Requests above the limit are answered with 429 and `Retry-After: 1`.
    /// Unlimited by default.
    ///
    /// The API server retries such a call up to 10 times within the webhook's timeout, possibly on another replica,
    /// whereas a queued request would only miss its deadline. The body of a rejected request is read first, so that its
    /// connection can be reused.
    #[must_use]
    pub fn with_max_in_flight(mut self, requests: usize) -> Self {
        self.max_in_flight = Some(Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS))));
        self
    }

    /// Size in bytes (64 KiB) above which a review is large: it is evaluated on a blocking thread, within limits on the
    /// number and memory of such reviews.
    pub const LARGE_REVIEW: usize = LARGE;

    /// Denies objects whose review is [large](Self::LARGE_REVIEW) if no memory or thread is available for it.
    ///
    /// By default such a call gets 429, 413 or 408, and the `failurePolicy` of the registration decides. Under
    /// `Ignore`, the author of an object could bypass the webhook by making the object large. A review that is still
    /// being evaluated at its deadline is subject to the [failure action](Self::with_failure_action).
    #[must_use]
    pub const fn with_overload_denied(mut self) -> Self {
        self.denies_overload = true;
        self
    }

    /// Changes the [`WebhookRegistration`], which initially has the API server's defaults and no rules; see
    /// [`Router::registrations`](crate::Router::registrations).
    #[must_use]
    pub fn with_registration(
        mut self,
        change: impl FnOnce(WebhookRegistration) -> WebhookRegistration,
    ) -> Self {
        self.registration = change(self.registration);
        self
    }

    /// Gives the handler a client of the cluster, as the argument [`ClusterClient`](crate::client::ClusterClient). Its
    /// writes follow [`WebhookRegistration::with_side_effects`]: a handler without side effects, the default, gets a
    /// client that only writes as a dry run (`dryRun=All`): the API server validates, admits and responds as usual, but
    /// stores nothing. With that client, requests whose effects a dry run does not prevent fail with
    /// `kube::Error::Service` and are not sent. Aggregated API servers have to support `dryRun` themselves.
    #[cfg(feature = "client")]
    #[must_use]
    pub fn with_client(mut self, client: kube::Client) -> Self {
        let review = SubjectAccessReviews::new(client.clone());
        self.guard.review = Some(Arc::new(CachedAccessReview::new(Arc::new(review))));
        self.clients = Some(Clients::new(client));
        self
    }

    /// Sets the administrator's permissions, replacing earlier ones. They may change while the webhook is served, as
    /// the content of a file does, and apply from the next request.
    ///
    /// The RBAC permissions of the service account, if one is named, are checked with the client of `with_client`,
    /// which has to be allowed to `create` `subjectaccessreviews.authorization.k8s.io` (ClusterRole
    /// `system:auth-delegator`). Allowed access is remembered for 60 s, denied access for 10 s. Without a client,
    /// requests fail while one is named.
    ///
    /// They restrict the settings in code and never widen them: the allowed paths of both have to agree. A failure
    /// action in `permissions` overrides the one in code, and so does a recovery policy after a panic. Without
    /// permissions, only `kube-system` is excluded, unless the registration requests it.
    ///
    /// ```
    /// use lucid_webhook::guard::Permissions;
    /// use lucid_webhook::{AdmissionResponse, Webhook};
    /// use tokio::sync::watch;
    ///
    /// # async fn handler() -> AdmissionResponse { AdmissionResponse::allow() }
    /// fn webhook(permissions: watch::Receiver<Permissions>) -> Webhook {
    ///     Webhook::mutating("label.example.com", handler).with_permissions(permissions)
    /// }
    /// ```
    #[must_use]
    pub fn with_permissions(mut self, permissions: watch::Receiver<Permissions>) -> Self {
        self.guard.permissions = permissions;
        self.has_permissions = true;
        self
    }

    pub(crate) fn into_shared(mut self) -> Arc<Self> {
        if !self.has_permissions && self.registration.includes_kube_system() {
            let selector = Selector::default().with_kube_system();
            self.guard.permissions = fixed(Permissions { selector, ..Permissions::default() });
        }
        Arc::new(self)
    }
}

fn fixed(permissions: Permissions) -> watch::Receiver<Permissions> {
    watch::channel(permissions).1
}

impl<Args: 'static> Webhook<Args> {
    /// Creates a mutating webhook for objects of type `T`, such as `Deployment` or a type with
    /// `#[derive(CustomResource)]`. The handler's first argument is [`Object<T>`](crate::Object). The webhook is
    /// registered for `operations` (`Create` and `Update`; deletions have no object) in the version of `T`.
    ///
    /// ```
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use lucid_webhook::Operation::{Create, Update};
    /// use lucid_webhook::{Changed, Object, UserInfo, Webhook};
    ///
    /// async fn two_replicas(Object(mut deployment): Object<Deployment>, user: UserInfo) -> Changed<Deployment> {
    ///     deployment.spec.get_or_insert_default().replicas.get_or_insert(2);
    ///     Changed::new(deployment).with_audit_annotation("defaulted-for", user.username)
    /// }
    ///
    /// let webhook = Webhook::defaulting::<Deployment>("replicas.example.com", [Create, Update], two_replicas);
    /// ```
    ///
    /// A handler of another type does not compile:
    ///
    /// ```compile_fail,E0631
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use lucid_webhook::Operation::Create;
    /// # use lucid_webhook::{Changed, Object, Webhook};
    /// async fn label(Object(pod): Object<Pod>) -> Changed<Pod> {
    ///     Changed::new(pod)
    /// }
    ///
    /// let webhook = Webhook::defaulting::<Deployment>("label.example.com", [Create], label);
    /// ```
    ///
    /// Rules of other resources, added to the [registration](Webhook::with_registration), are rejected when the webhook
    /// is registered.
    #[must_use]
    pub fn defaulting<T: Resource<DynamicType = ()> + 'static>(
        name: impl Into<Arc<str>>,
        operations: impl IntoIterator<Item = Operation>,
        handler: impl ObjectHandler<T, Args, Future: Send>,
    ) -> Webhook {
        Webhook::typed::<T, _, _>(WebhookKind::Mutating, name.into(), operations, handler)
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("kind", &self.kind)
            .field("name", &self.name)
            .field("failure_action", &self.failure_action)
            .field("permissions", &self.guard.permissions)
            .finish_non_exhaustive()
    }
}
