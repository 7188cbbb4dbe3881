//! Trust bundles for whoever asks by annotation, in clusters without a certificate manager
//!
//! Many operators ship their webhook configurations without a `caBundle` and with an annotation that asks
//! cert-manager's cainjector, or OpenShift's service CA, to put one there. An [`Injector`] does the same where
//! neither runs. It is for the objects of others: what a server of this crate needs for itself, it
//! [brings there itself](crate::target).
//!
//! # What is asked for
//!
//! | Annotation | The CA comes from |
//! | --- | --- |
//! | `cert-manager.io/inject-ca-from-secret: NAMESPACE/NAME` | key `ca.crt` of that Secret, if it has the annotation `cert-manager.io/allow-direct-injection: "true"` |
//! | `cert-manager.io/inject-ca-from: NAMESPACE/NAME` | key `ca.crt` of the Secret of that Certificate |
//! | `cert-manager.io/inject-apiserver-ca: "true"` | what verifies the API server: [`ApiServerCa`] |
//! | `service.beta.openshift.io/inject-cabundle: "true"` | a Secret that is [chosen here](Injector::with_openshift_ca) |
//!
//! They are looked at in this order, and the first that is there counts, also when it is malformed.
//!
//! The kinds are MutatingWebhookConfiguration and ValidatingWebhookConfiguration (each of their webhooks),
//! CustomResourceDefinition (with a conversion webhook) and APIService (of a Service). On a ConfigMap only OpenShift's
//! annotation counts, and the bundle goes into its key `service-ca.crt`. OpenShift's older name,
//! `service.alpha.openshift.io/inject-cabundle`, counts on ConfigMaps and APIServices, as it does there.
//!
//! A Certificate's Secret is the one that its `spec.secretName` names, and must have the annotation
//! `cert-manager.io/certificate-name` with the Certificate's name. In a cluster without the kind Certificate, the only
//! Secret of the namespace with that annotation is taken: so one that was copied from another cluster, or made by
//! hand, works with manifests that were written for cert-manager. Whoever may create Secrets in the namespace decides
//! there what is trusted.
//!
//! # What is written
//!
//! What stands there already and is not expired, together with the CA, newest first: a CA that is replaced stays
//! trusted until it expires, and calls go on while servers change. What does not parse is replaced. Each webhook keeps
//! what it alone trusts. Nothing but these fields is applied (server-side, as [`FIELD_MANAGER`]), and only if the object
//! is still as it was read; what is right is not written.
//!
//! When the CA that is asked for does not exist, may not be used or is none, the object is left alone, and one log
//! line and one event on the object say why, until something else is wrong with it. When the annotation is removed, the
//! bundle stays.
//!
//! Differences: cert-manager puts what is new behind what stands there, and injects what `ca.crt` holds also if it is no
//! certificate, in place of what stands there; OpenShift replaces what it finds, and removes the other keys of a ConfigMap.
//!
//! # Who else does this
//!
//! Beside a [running cainjector of cert-manager](Rival) an injector does not start, and one that runs stops writing
//! within half a minute when one appears, and goes on when it is gone. The same holds for OpenShift's service CA, for
//! whoever honours its annotation. It is looked for them in [their own
//! namespaces](Injector::with_cert_manager_namespaces) only, so that nobody else ends the injection by a Lease or a
//! Deployment that looks like theirs.
//!
//! Several injectors may run at once, without a leader: all compute the same bytes from what they read, and a write
//! after somebody else's is refused and begins anew.
//!
//! # Rights
//!
//! - `get`, `list`, `watch` and `patch` on the kinds above; on ConfigMaps only with a CA in place of OpenShift's
//! - `get`, `list` and `watch` on the Secrets that are asked for, by name, by namespace or all. Only the metadata is
//!   watched, and of each Secret by itself. For `inject-ca-from` without the kind Certificate: on all Secrets of the
//!   namespace
//! - `get`, `list` and `watch` on Certificates
//! - `list` on Deployments, and `get` on cert-manager's two Leases by name, in these namespaces
//! - `create` and `patch` on events of `events.k8s.io`

mod authority;
mod look;
mod metrics;
mod object;
mod problem;
mod queue;
mod rival;
mod run;
mod watch;
mod wish;

use std::{collections::BTreeSet, fmt, future::Future};

use kube::{Client, runtime::events::Reporter};
use snafu::Snafu;
use tokio::sync::watch as channel;

pub use self::{authority::ApiServerCa, metrics::InjectorMetrics, rival::Rival};
use self::{authority::Authorities, wish::ObjectName};

/// Who owns the fields that are written, by `metadata.managedFields`, and who reports events
pub const FIELD_MANAGER: &str = "lucid-cainjector";

/// Why an injector does not run
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(self)))]
#[non_exhaustive]
pub enum InjectorError {
    /// Somebody else does this already
    #[snafu(display("failed to start injecting CAs beside {}", rival::list(rivals)))]
    Rivals {
        /// Who
        rivals: Vec<Rival>,
    },
    /// The API server does not say whether somebody else does this already
    #[snafu(display("failed to find out whether a cainjector of cert-manager runs"))]
    Unknown {
        /// What it says
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Puts trust bundles into objects that ask for them by annotation; see the [module](self).
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use lucid_certs::injector::{ApiServerCa, Injector};
/// use tokio::signal::unix::{SignalKind, signal};
///
/// let config = kube::Config::infer().await?;
/// let api_server_ca = ApiServerCa::of(&config);
/// let injector = Injector::new(kube::Client::try_from(config)?)
///     .with_api_server_ca(api_server_ca)
///     .with_openshift_ca("my-system", "my-ca", "ca.crt");
/// let mut terminate = signal(SignalKind::terminate())?;
/// injector.run(async move { drop(terminate.recv().await) }).await?;
/// # Ok(())
/// # }
/// ```
pub struct Injector {
    client: Client,
    reporter: Reporter,
    authorities: Authorities,
    /// Where cert-manager may run
    cert_manager: BTreeSet<String>,
    beside_cert_manager: bool,
    metrics: InjectorMetrics,
    ready: channel::Sender<bool>,
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector")
            .field("cert_manager_namespaces", &self.cert_manager)
            .field("beside_cert_manager", &self.beside_cert_manager)
            .finish_non_exhaustive()
    }
}

impl Injector {
    /// One that takes CAs from Secrets of all namespaces, knows no CA of the API server and none in place of
    /// OpenShift's. Nothing is done yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let authorities =
            Authorities { client: client.clone(), namespaces: None, api_server: None, openshift: None };
        Self {
            client,
            reporter: FIELD_MANAGER.into(),
            authorities,
            cert_manager: rival::CERT_MANAGER.map(str::to_owned).into(),
            beside_cert_manager: false,
            metrics: InjectorMetrics::default(),
            ready: channel::Sender::new(false),
        }
    }

    /// Takes CAs only from Secrets of these namespaces. The one in place of OpenShift's may be elsewhere.
    #[must_use]
    pub fn with_secret_namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.authorities.namespaces = Some(namespaces.into_iter().map(Into::into).collect());
        self
    }

    /// What to inject for `cert-manager.io/inject-apiserver-ca`
    #[must_use]
    pub fn with_api_server_ca(mut self, ca: Option<ApiServerCa>) -> Self {
        self.authorities.api_server = ca;
        self
    }

    /// Honours OpenShift's annotations with what stands under `key` of this Secret. Without, they are not looked at,
    /// and neither are ConfigMaps.
    #[must_use]
    pub fn with_openshift_ca(mut self, namespace: &str, name: &str, key: &str) -> Self {
        self.authorities.openshift = Some((ObjectName::new(namespace, name), key.to_owned()));
        self
    }

    /// Looks in these namespaces for a cainjector of cert-manager: for the Lease of its leader and for its Deployment.
    /// The default is `kube-system` and `cert-manager`. Who may write there can end the injection.
    #[must_use]
    pub fn with_cert_manager_namespaces(
        mut self,
        namespaces: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.cert_manager = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Runs also beside a cainjector of cert-manager. Both then write the same fields, and come to the same bundles
    /// as long as they find the same Secrets.
    #[must_use]
    pub fn beside_cert_manager(mut self, allowed: bool) -> Self {
        self.beside_cert_manager = allowed;
        self
    }

    /// Counts what is done
    #[must_use]
    pub fn with_metrics(mut self, metrics: InjectorMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Whether all objects are known and nobody else injects
    #[must_use]
    pub fn ready(&self) -> channel::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Injects until `shutdown` completes, and writes nothing after that. An API server that is away is waited for.
    ///
    /// # Errors
    ///
    /// When somebody else injects already, or the API server refuses to say so.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), InjectorError> {
        tokio::select! {
            biased;
            () = shutdown => Ok(()),
            ended = run::run(self) => ended,
        }
    }
}
