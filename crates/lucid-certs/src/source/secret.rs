//! A certificate in a Secret that is watched through the API server.

use std::{
    collections::BTreeMap,
    fmt, future,
    time::{Duration, SystemTime},
};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, core::PartialObjectMeta};
use tokio::time::timeout;
use tracing::{info, warn};
use zeroize::Zeroize;

use super::{
    CertificateSource, ObservedTrust, Offer, Reason, SourceError,
    pair::{Found, Text, digest},
};
use crate::{last_problem::LastProblem, redacted, watch};

const TIMEOUT: Duration = Duration::from_secs(10);

/// A certificate and key in a Secret, watched through the API server. Changes arrive within moments; a
/// mounted Secret takes a minute or two.
///
/// If the Secret is deleted or becomes invalid, or the API server is unreachable, the previous certificate
/// stays in use.
///
/// # Permissions
///
/// `get`, `list` and `watch` on the Secret. A Role with `resourceNames` is sufficient.
pub struct SecretSource {
    api: Api<Secret>,
    place: String,
    name: String,
    publishes: bool,
    /// Changes of the Secret, which is then read.
    changes: BoxStream<'static, ()>,
    /// Digest of the data that was read last.
    digest: Option<[u8; 32]>,
    found: Result<Found, SourceError>,
    last_problem: LastProblem,
}

impl SecretSource {
    /// Creates a source for the Secret `name` in `namespace`, of type `kubernetes.io/tls` or with the same keys `tls.crt` and
    /// `tls.key`; `ca.crt`, the bundle that accompanies the certificate, may be missing. Reads nothing yet.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let place = format!("Secret {namespace}/{name}");
        let watched: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
        Self {
            api: Api::namespaced(client, namespace),
            changes: watch::changes(watched, watch::only(name), place.clone()),
            place,
            name: name.to_owned(),
            publishes: false,
            digest: None,
            found: Err(SourceError::new(Reason::Missing, "the Secret was not read yet")),
            last_problem: LastProblem::default(),
        }
    }

    /// Publishes the bundle of the Secret, or else the last certificate of the chain: targets
    /// hold at least these certificates. Otherwise the bundle is managed externally.
    #[must_use]
    pub fn with_publishing(mut self) -> Self {
        self.publishes = true;
        self
    }

    /// Reads the Secret. Returns `true` if its content changed. If it cannot be read, the last content counts.
    async fn refresh(&mut self) -> bool {
        let Self { api, place, name, .. } = self;
        let problem = match timeout(TIMEOUT, redacted::list_opt(api, name)).await {
            Ok(Ok(secret)) => {
                if self.last_problem.resolve() {
                    info!("reading {place} again");
                }
                let data = secret.map(|secret| Data(secret.data.unwrap_or_default()));
                let digest = Some(data.as_ref().map_or([0; 32], Data::digest));
                let differs = self.digest != digest;
                if differs {
                    self.found = self.decode(data.as_ref());
                    self.digest = digest;
                }
                return differs;
            }
            Ok(Err(error)) => {
                let error = lucid_text::with_causes(&error);
                format!("failed to read {place}, for which get, list and watch are needed: {error}")
            }
            Err(_) => format!("failed to read {place}: the API server did not respond within {TIMEOUT:?}"),
        };
        if self.digest.is_none() {
            self.found = Err(SourceError::new(Reason::Unreadable, problem));
        } else if self.last_problem.is_new(&problem) {
            warn!("{problem}; its last content counts");
        }
        false
    }

    fn decode(&self, data: Option<&Data>) -> Result<Found, SourceError> {
        let Self { place, publishes, .. } = self;
        let data = data.ok_or_else(|| {
            let problem = format!("failed to find {place}: it does not exist, or it was deleted");
            SourceError::new(Reason::Missing, problem)
        })?;
        // cert-manager leaves the key empty if the issuer does not know its CA; OpenShift omits it.
        let has_ca = data.0.get("ca.crt").is_some_and(|ca| !ca.0.is_empty());
        let ca = has_ca.then(|| data.text("ca.crt", place));
        Found::decode(data.text("tls.crt", place)?, data.text("tls.key", place)?, ca, *publishes)
    }
}

/// Data of a Secret, zeroed on drop.
struct Data(BTreeMap<String, ByteString>);

impl Data {
    fn text(&self, key: &str, place: &str) -> Result<Text<'_>, SourceError> {
        let bytes = self.0.get(key).ok_or_else(|| {
            let found = match self.0.keys().map(String::as_str).collect::<Vec<_>>() {
                keys if keys.is_empty() => "it has no keys".to_owned(),
                keys => format!("its keys are {}", keys.join(", ")),
            };
            SourceError::new(Reason::Missing, format!("failed to find {key} in {place}: {found}"))
        })?;
        Ok(Text { place: format!("{key} of {place}"), bytes: &bytes.0 })
    }

    fn digest(&self) -> [u8; 32] {
        digest(self.0.iter().flat_map(|(key, value)| [key.as_bytes(), &value.0]))
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        self.0.values_mut().for_each(|value| value.0.zeroize());
    }
}

impl CertificateSource for SecretSource {
    fn name(&self) -> &'static str {
        "secret"
    }

    async fn offer(&mut self, _observed: &ObservedTrust, now: SystemTime) -> Result<Offer, SourceError> {
        self.refresh().await;
        self.found.as_ref().map_err(Clone::clone)?.offer(now)
    }

    fn has_external_trust(&self) -> bool {
        !self.publishes
    }

    async fn changed(&mut self) {
        // A change that is lost by cancellation is read by the next call of `offer`.
        while self.changes.next().await.is_some() {
            if self.refresh().await {
                return;
            }
        }
        future::pending().await
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretSource")
            .field("place", &self.place)
            .field("publishes", &self.publishes)
            .finish_non_exhaustive()
    }
}
