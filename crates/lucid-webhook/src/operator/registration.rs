//! Registration of the webhooks of a router, kept as it should be.

use std::fmt;

use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use lucid_certs::ServingNames;
use lucid_certs::target::{ObjectTarget, Target, TargetError};
use tokio::sync::watch;

use super::configuration::Configuration;
use super::conversion::Conversion;
use super::object::{AlternativeService, NAME_LABEL};
use super::presence::Presence;
use crate::Router;
use crate::kind::WebhookKind;
use crate::registration::{Configurations, RegistrationError};

/// Registration of the webhooks and conversions of a [`Router`], kept in the cluster by
/// [`Certificates`](lucid_certs::Certificates), which restore the objects when they are deleted or changed.
///
/// The MutatingWebhookConfiguration, the ValidatingWebhookConfiguration and `spec.conversion` of the
/// CustomResourceDefinitions are [targets](Self::targets) of the certificates. Each is written as a whole, rules and
/// trust bundle together, once the certificate is available, so the API server never calls a server that it does not
/// trust. If the bundle is managed externally, by cert-manager for example, everything else is kept, also before the
/// first certificate. CustomResourceDefinitions are not created; their manifests may omit `spec.conversion`.
///
/// Replicas of versions with different rules overwrite each other's registration during a rollout, up to a dozen times
/// at once and then once a minute. Serve a new path one version before it is registered.
///
/// ```no_run
/// # async fn run(client: kube::Client, router: lucid_webhook::Router) -> Result<(), lucid_webhook::BoxError> {
/// use lucid_certs::{Certificates, ServingNames};
/// use lucid_webhook::Readiness;
/// use lucid_webhook::operator::Registration;
/// use lucid_webhook::registration::{Configurations, Endpoint};
///
/// let configurations = Configurations::new("widgets", Endpoint::service("widgets-system", "widgets"));
/// let registration = Registration::new(client, configurations, &router)?;
/// let names = ServingNames::for_services("widgets-system", &["widgets"])?;
/// let certificates = Certificates::new(names).with_targets(registration.targets());
/// let mut present = registration.present();
/// let registered = Readiness::default().condition("registered");
/// tokio::spawn(async move { registered.set(present.wait_for(|present| *present).await.is_ok()) });
/// # drop(certificates);
/// # Ok(())
/// # }
/// ```
///
/// # Permissions
///
/// - `get`, `list`, `watch`, `create`, `patch` and `update` on `mutatingwebhookconfigurations` and
///   `validatingwebhookconfigurations` of `admissionregistration.k8s.io`, as far as the router has such webhooks;
///   `resourceNames` is sufficient, also for `create`, because objects are created by server-side apply
/// - `get`, `list`, `watch` and `patch` on the `customresourcedefinitions` of `apiextensions.k8s.io` that it converts
/// - `delete` for [`remove`](Self::remove) and [`without_validating`](Self::without_validating)
/// - `create` and `patch` on `events` of `events.k8s.io` in `default`, to report contention
#[derive(Clone)]
#[must_use]
pub struct Registration {
    client: Client,
    mutating: Option<Configuration>,
    validating: Option<Configuration>,
    conversions: Vec<Conversion>,
    presence: Presence,
}

impl Registration {
    /// Creates the registration of the webhooks and conversions of `router`. Writes nothing yet.
    ///
    /// # Errors
    ///
    /// A [`RegistrationError`] if the API server would reject a configuration, or never call one of the webhooks.
    pub fn new(
        client: Client,
        configurations: Configurations,
        router: &Router,
    ) -> Result<Self, RegistrationError> {
        let name = configurations.name().to_owned();
        let configurations = configurations.with_label(NAME_LABEL, &name);
        let presence = Presence::new();
        let of_kind = |kind| router.registrations().filter(|it| it.kind() == kind).cloned().collect();
        let mutating = configurations.mutating(router.registrations())?.map(|wanted| {
            let bundles = ObjectTarget::mutating_webhooks(client.clone(), &name, &name);
            Configuration::new(&client, &wanted, of_kind(WebhookKind::Mutating), bundles, presence.part())
        });
        let validating = configurations.validating(router.registrations())?.map(|wanted| {
            let bundles = ObjectTarget::validating_webhooks(client.clone(), &name, &name);
            Configuration::new(&client, &wanted, of_kind(WebhookKind::Validating), bundles, presence.part())
        });
        let conversions = router.conversions().map(|(path, converter)| {
            let wanted = configurations.client_config(path);
            Conversion::new(&client, &name, converter.definition(), wanted, presence.part())
        });
        let conversions = conversions.collect();
        let mutating = mutating.transpose().map_err(RegistrationError::unexpected)?;
        let validating = validating.transpose().map_err(RegistrationError::unexpected)?;
        let reporter = Reporter::from(name);
        Ok(Self { client, mutating, validating, conversions, presence }.with_reporter(&reporter))
    }

    /// Sets the reporting controller of events, by default the name of the configurations.
    pub fn with_reporter(mut self, reporter: &Reporter) -> Self {
        let recorder = Recorder::new(self.client.clone(), reporter.clone());
        for bundles in self.bundles() {
            *bundles = bundles.clone().with_recorder(recorder.clone());
        }
        self
    }

    fn bundles(&mut self) -> impl Iterator<Item = &mut ObjectTarget> {
        let configurations = self.mutating.iter_mut().chain(&mut self.validating).map(|it| &mut it.bundles);
        configurations.chain(self.conversions.iter_mut().map(|it| &mut it.bundle))
    }

    /// Registers the Service `name` instead while the certificate is valid for it only, as `names` tells
    /// ([`Certificates::certified_names`](lucid_certs::Certificates::certified_names)).
    pub fn with_alternative_service(
        mut self,
        name: impl Into<String>,
        names: watch::Receiver<Option<ServingNames>>,
    ) -> Self {
        let alternative = AlternativeService { name: name.into(), names };
        let configurations =
            self.mutating.iter_mut().chain(&mut self.validating).map(|it| &mut it.alternative);
        for slot in configurations.chain(self.conversions.iter_mut().map(|it| &mut it.alternative)) {
            *slot = Some(alternative.clone());
        }
        self
    }

    /// Removes the ValidatingWebhookConfiguration, because another process serves these webhooks.
    pub fn without_validating(mut self) -> Self {
        if let Some(validating) = &mut self.validating {
            validating.withdraw();
        }
        self
    }

    /// Returns the objects to keep, for [`Certificates::with_targets`](lucid_certs::Certificates::with_targets).
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let configurations = self.mutating.iter().chain(&self.validating).cloned().map(Target::from);
        configurations.chain(self.conversions.iter().cloned().map(Target::from)).collect()
    }

    /// Returns a receiver that is `true` while every object was last seen as wanted: `false` before the first write,
    /// and until a deleted or changed object is restored. A definition that does not exist counts as present.
    ///
    /// Use it for alerts. Readiness should only wait for the first `true`: replicas that become unready together,
    /// because one object was changed, cannot answer the calls for the others.
    #[must_use]
    pub fn present(&self) -> watch::Receiver<bool> {
        self.presence.subscribe()
    }

    /// Deletes both configurations, for an uninstallation. [`Certificates`](lucid_certs::Certificates) that still run
    /// write them again. `spec.conversion` stays, because objects may be stored in an old version.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses or is unreachable.
    pub async fn remove(&self) -> Result<(), TargetError> {
        let configurations = self.mutating.iter().chain(&self.validating);
        let removed = futures::future::join_all(configurations.map(Configuration::remove)).await;
        removed.into_iter().collect()
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("targets", &self.targets()).finish_non_exhaustive()
    }
}
