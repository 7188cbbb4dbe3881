//! Registration of the webhooks of a router, kept as it should be.

use std::fmt;

use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use lucid_certs::ServingNames;
use lucid_certs::target::{ObjectTarget, Target, TargetError, Webhooks};
use tokio::sync::watch;

use super::configuration::Configuration;
use super::conversion::Conversion;
use super::presence::Presence;
use crate::Router;
use crate::registration::{Configurations, RegistrationError};

/// Label of the configurations whose value is their name. Only objects with it are removed.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";

/// Registration of the webhooks and conversions of a [`Router`], kept in the cluster by
/// [`Certificates`](lucid_certs::Certificates): whoever deletes or changes it, it comes back.
///
/// The MutatingWebhookConfiguration, the ValidatingWebhookConfiguration and `spec.conversion` of the
/// CustomResourceDefinitions are [targets](Self::targets) of the certificates. Each is written as a whole, rules and
/// trust bundle together, once the certificate is available, so the API server never calls a server that it does not
/// trust. If somebody else manages the bundle, such as cert-manager, only the rest is kept. CustomResourceDefinitions
/// are not created: whoever applies them may omit `spec.conversion`.
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
/// let readiness = Readiness::default();
/// tokio::spawn(readiness.condition("registered").follow(registration.present()));
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

/// Service that is registered while the certificate is valid for it only.
#[derive(Clone, Debug)]
pub(super) struct AlternativeService {
    name: String,
    names: watch::Receiver<Option<ServingNames>>,
}

impl AlternativeService {
    /// Returns the Service if it is the one to call instead of `wanted`: if the certificate is not valid for that, or
    /// before the first certificate if it is the `found` one.
    pub(super) fn instead_of(&self, wanted: &str, found: Option<&str>) -> Option<&str> {
        let is_called = match &*self.names.borrow() {
            Some(names) => !names.dns_names().any(|name| name == wanted),
            None => found == Some(&self.name),
        };
        is_called.then_some(&self.name)
    }
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
        let mutating = configurations.mutating(router.registrations())?.map(|wanted| {
            let bundles = ObjectTarget::mutating_webhooks(client.clone(), &name, &name, Webhooks::All);
            Configuration::new(&client, &wanted, bundles, presence.part())
        });
        let validating = configurations.validating(router.registrations())?.map(|wanted| {
            let bundles = ObjectTarget::validating_webhooks(client.clone(), &name, &name, Webhooks::All);
            Configuration::new(&client, &wanted, bundles, presence.part())
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
    /// and until a deleted or changed object is restored.
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
        for configuration in self.mutating.iter().chain(&self.validating) {
            configuration.remove().await?;
        }
        Ok(())
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("targets", &self.targets()).finish_non_exhaustive()
    }
}
