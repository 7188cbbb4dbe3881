//! Injects CA bundles into annotated objects, in clusters without cert-manager.
//!
//! Many operators ship webhook configurations without a `caBundle`, annotated for cert-manager's cainjector
//! or OpenShift's service CA. An [`CaInjector`] implements these annotations in clusters where neither runs. It
//! is intended for third-party objects: servers that use this crate [publish their own
//! bundles](crate::target).
//!
//! # Annotations
//!
//! | Annotation | CA |
//! | --- | --- |
//! | `cert-manager.io/inject-ca-from-secret: NAMESPACE/NAME` | key `ca.crt` of the Secret, which must have the annotation `cert-manager.io/allow-direct-injection: "true"` |
//! | `cert-manager.io/inject-ca-from: NAMESPACE/NAME` | key `ca.crt` of the Certificate's Secret |
//! | `cert-manager.io/inject-apiserver-ca: "true"` | the CA of the API server, [if configured](CaInjector::with_api_server_ca) |
//! | `service.beta.openshift.io/inject-cabundle: "true"` | a [configured Secret](CaInjector::with_openshift_ca) |
//!
//! They are evaluated in this order, and the first one that applies is used. A malformed `NAMESPACE/NAME` is an
//! error and does not fall through to the next one.
//!
//! Supported kinds are MutatingWebhookConfiguration and ValidatingWebhookConfiguration (all webhooks),
//! CustomResourceDefinition (with a conversion webhook), APIService (with a Service), and ConfigMap.
//! ConfigMaps support only OpenShift's annotation, and the bundle is written to the key `service-ca.crt`.
//! OpenShift's older annotation `service.alpha.openshift.io/inject-cabundle` is supported on ConfigMaps and
//! APIServices, as in OpenShift.
//!
//! The Secret of a Certificate is named by its `spec.secretName` and must have the annotation
//! `cert-manager.io/certificate-name` with the name of the Certificate. In a cluster without the Certificate
//! CRD, the injector uses the only Secret of the namespace with that annotation. Manifests written for
//! cert-manager then work with a Secret that was created manually or copied from another cluster. In such a
//! cluster, permission to create Secrets in the namespace includes the choice of the CA.
//!
//! # Writes
//!
//! The CA is merged with the unexpired certificates of the existing bundle, newest first. A replaced CA
//! therefore stays trusted until it expires, and calls succeed while servers switch. Certificates that do not
//! parse are dropped. Each webhook keeps its own additional certificates. Only bundle fields are written, by
//! server-side apply as `lucid-cainjector`, and only if the object has not changed since it was read.
//! Up-to-date objects are not written.
//!
//! If the CA does not exist, may not be used or is invalid, the object is not changed. The reason is reported
//! once, by a log message and an event on the object. If the annotation is removed, the bundle stays.
//!
//! Differences to other implementations: cert-manager appends the new CA and replaces the bundle by the
//! content of `ca.crt` even if it is not a certificate. OpenShift replaces the bundle and removes other keys
//! of a ConfigMap.
//!
//! # Conflicting injectors
//!
//! An injector does not start while cert-manager's cainjector runs. If one appears later, the
//! injector stops writing within half a minute, until it is gone. The same applies to OpenShift's service CA,
//! if OpenShift's annotation is enabled. Conflicting injectors are detected in [their own
//! namespaces](CaInjector::with_cert_manager_namespaces) only, so that users of other namespaces cannot stop
//! the injection by a similar Lease or Deployment.
//!
//! Several injectors may run at the same time without a leader: they compute the same bytes from the same
//! input, and a conflicting write is rejected and retried.
//!
//! # Permissions
//!
//! - `get`, `list`, `watch` and `patch` on the kinds above; ConfigMaps only with a CA for OpenShift's
//!   annotation
//! - `get`, `list` and `watch` on the referenced Secrets, by name, by namespace or cluster-wide. Watches are
//!   per Secret and metadata only. Without the Certificate CRD, `inject-ca-from` requires access to all
//!   Secrets of the namespace
//! - `get`, `list` and `watch` on Certificates
//! - `list` on Deployments, and `get` on cert-manager's two Leases by name, in the namespaces where
//!   conflicting injectors are detected
//! - `create` and `patch` on events of `events.k8s.io`

mod annotation;
mod authority;
mod conflict;
mod metrics;
mod object;
mod pace;
mod problem;
mod run;
mod watch;

use std::{collections::BTreeSet, fmt, future::Future};

use kube::{Client, Config};
use prometheus_client::registry::Registry;
use tokio::sync::watch as channel;

use self::{
    annotation::ObjectName,
    authority::{ApiServerCa, Authorities},
    metrics::InjectorMetrics,
};
use crate::error::Error;

/// Field manager of injected bundles and reporting controller of events.
const FIELD_MANAGER: &str = "lucid-cainjector";

/// Injects CA bundles into annotated objects; see the [module documentation](self).
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use lucid_certs::injector::CaInjector;
/// use tokio::signal::unix::{SignalKind, signal};
///
/// let config = kube::Config::infer().await?;
/// let injector = CaInjector::new(kube::Client::try_from(config.clone())?)
///     .with_api_server_ca(&config)
///     .with_openshift_ca("my-system", "my-ca", "ca.crt");
/// let mut terminate = signal(SignalKind::terminate())?;
/// injector.run(async move { drop(terminate.recv().await) }).await?;
/// # Ok(())
/// # }
/// ```
pub struct CaInjector {
    client: Client,
    authorities: Authorities,
    cert_manager: BTreeSet<String>,
    metrics: InjectorMetrics,
    ready: channel::Sender<bool>,
}

impl fmt::Debug for CaInjector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaInjector")
            .field("cert_manager_namespaces", &self.cert_manager)
            .finish_non_exhaustive()
    }
}

impl CaInjector {
    /// Creates an injector that uses Secrets of all namespaces, without a CA of the API server and without
    /// OpenShift's annotations. Does nothing until [`run`](Self::run).
    #[must_use]
    pub fn new(client: Client) -> Self {
        let authorities =
            Authorities { client: client.clone(), namespaces: None, api_server: None, openshift: None };
        Self {
            client,
            authorities,
            cert_manager: conflict::CERT_MANAGER.map(str::to_owned).into(),
            metrics: InjectorMetrics::default(),
            ready: channel::Sender::new(false),
        }
    }

    /// Restricts the CAs to Secrets in these namespaces. Does not affect
    /// [`with_openshift_ca`](Self::with_openshift_ca).
    #[must_use]
    pub fn with_secret_namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.authorities.namespaces = Some(namespaces.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the CA for `cert-manager.io/inject-apiserver-ca` to the one by which `config` verifies the API server, if
    /// any. A file, such as the service account's `ca.crt`, is read on each use.
    #[must_use]
    pub fn with_api_server_ca(mut self, config: &Config) -> Self {
        self.authorities.api_server = ApiServerCa::of(config);
        self
    }

    /// Enables OpenShift's annotations, with the CA in `key` of this Secret. By default they are ignored, and
    /// ConfigMaps are not watched.
    #[must_use]
    pub fn with_openshift_ca(mut self, namespace: &str, name: &str, key: &str) -> Self {
        self.authorities.openshift = Some((ObjectName::new(namespace, name), key.to_owned()));
        self
    }

    /// Sets the namespaces in which cert-manager's cainjector is detected by its leader Lease and Deployment
    /// (default `kube-system` and `cert-manager`). Users who may write there can stop the injection. With none, the injector
    /// runs beside cert-manager's: both write the same fields, and their bundles are equal as long as they find the same
    /// Secrets.
    #[must_use]
    pub fn with_cert_manager_namespaces(
        mut self,
        namespaces: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.cert_manager = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Adds metrics to `registry`:
    ///
    /// - `cainjector_writes_total{kind,result}`: writes by result: `written`, `overtaken` (another client changed
    ///   the object at the same time) or `failed`
    /// - `cainjector_refused{kind}`: objects with an annotation that currently cannot be honored
    /// - `cainjector_paused`: 1 while writes are paused because of a conflicting injector
    #[must_use]
    pub fn with_metrics(mut self, registry: &mut Registry) -> Self {
        self.metrics = InjectorMetrics::new(registry);
        self
    }

    /// Returns a receiver that is `true` while all kinds are listed and no conflicting injector runs.
    #[must_use]
    pub fn ready(&self) -> channel::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Runs the injector until `shutdown` completes, after which it writes nothing. Waits for an unreachable
    /// API server.
    ///
    /// # Errors
    ///
    /// Returns an error if a conflicting injector is running, or if the API server rejects the requests to
    /// detect one.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        tokio::select! {
            biased;
            () = shutdown => Ok(()),
            ended = run::run(self) => ended,
        }
    }
}
