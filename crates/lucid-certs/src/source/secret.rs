//! A certificate in a Secret that is watched through the API server.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use aws_lc_rs::digest;
use futures::{FutureExt, StreamExt, stream::BoxStream};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        watcher::{self, watch_object},
    },
};
use tokio::time::timeout;
use tracing::warn;
use zeroize::Zeroize;

use super::{
    CertificateSource, ObservedTrust, Offer, Reason, SourceError,
    pair::{Found, Text},
};
use crate::last_problem::LastProblem;

/// Timeout of the first response of the API server.
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
///
/// # Logging
///
/// If a response does not deserialize, the `kube` client logs its whole body at WARN under the target
/// `kube_client::client`. API servers do not send such responses, but an intermediate proxy may, and the body
/// may contain the private key. Keep that log target at ERROR.
pub struct SecretSource {
    api: Api<Secret>,
    place: String,
    name: String,
    keys: Keys,
    publishes: bool,
    watch: Option<BoxStream<'static, watcher::Result<Option<Secret>>>>,
    known: Option<Known>,
    last_problem: LastProblem,
}

#[derive(Debug, Clone)]
struct Keys {
    certificate: String,
    key: String,
    ca: Option<String>,
}

/// Decoded Secret with a digest of its data; the digest is `None` if the Secret does not exist.
struct Known {
    digest: Option<[u8; 32]>,
    found: Result<Found, SourceError>,
}

impl SecretSource {
    /// Creates a source for the Secret `name` in `namespace`, of type `kubernetes.io/tls` or with the same
    /// keys `tls.crt` and `tls.key`. Reads nothing yet.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            place: format!("Secret {namespace}/{name}"),
            name: name.to_owned(),
            keys: Keys { certificate: "tls.crt".to_owned(), key: "tls.key".to_owned(), ca: None },
            publishes: false,
            watch: None,
            known: None,
            last_problem: LastProblem::default(),
        }
    }

    /// Sets the keys of the certificate chain and of the private key. Both may be the same key.
    #[must_use]
    pub fn with_keys(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.keys.certificate = certificate.into();
        self.keys.key = key.into();
        self
    }

    /// Sets the key of the bundle that accompanies the certificate, such as `ca.crt`. The certificate is
    /// offered only if the bundle verifies it. The key may be missing or empty unless the bundle is
    /// published.
    #[must_use]
    pub fn with_ca(mut self, ca: impl Into<String>) -> Self {
        self.keys.ca = Some(ca.into());
        self
    }

    /// Publishes the bundle set by [`with_ca`](Self::with_ca): targets hold at least its certificates.
    /// Otherwise the bundle is managed externally.
    #[must_use]
    pub fn with_publishing(mut self) -> Self {
        self.publishes = true;
        self
    }

    /// Processes the next watch event. Returns `true` if the content changed.
    async fn next(&mut self) -> watcher::Result<bool> {
        let Self { api, name, watch, .. } = self;
        let watch = watch
            .get_or_insert_with(|| watch_object(api.clone(), name).backoff(crate::watch::backoff()).boxed());
        // The stream does not end; if it does, the next call starts a new one.
        let Some(secret) = watch.next().await.transpose()? else {
            self.watch = None;
            return Ok(false);
        };
        self.last_problem.resolve();
        let data = secret.map(|secret| Data(secret.data.unwrap_or_default()));
        let digest = data.as_ref().map(Data::digest);
        if self.known.as_ref().is_some_and(|known| known.digest == digest) {
            return Ok(false);
        }
        let found = self.decode(data.as_ref());
        self.known = Some(Known { digest, found });
        Ok(true)
    }

    fn decode(&self, data: Option<&Data>) -> Result<Found, SourceError> {
        let Self { place, keys, publishes, .. } = self;
        let data = data.ok_or_else(|| {
            let problem = format!("failed to find {place}: it does not exist, or it was deleted");
            SourceError::new(Reason::Missing, problem)
        })?;
        let ca = match &keys.ca {
            // cert-manager leaves the key empty if the issuer does not know its CA.
            Some(ca) if !*publishes && data.0.get(ca).is_none_or(|ca| ca.0.is_empty()) => None,
            Some(ca) => Some(data.text(ca, place)),
            None => None,
        };
        Found::decode(data.text(&keys.certificate, place)?, data.text(&keys.key, place)?, ca, *publishes)
    }

    fn log_failure(&mut self, error: &watcher::Error) -> SourceError {
        let problem = format!(
            "failed to watch {}, for which get, list and watch are needed: {}",
            self.place,
            crate::chain(error)
        );
        if self.last_problem.is_new(&problem) {
            warn!("{problem}");
        }
        SourceError::new(Reason::Unreadable, problem)
    }
}

impl SecretSource {
    /// Reads the Secret of a [cert-manager Certificate][spec]. Its `ca.crt` is the issuing CA.
    ///
    /// The bundle is published either by [cainjector] (annotation `cert-manager.io/inject-ca-from`) or by
    /// this crate with [`with_publishing`](Self::with_publishing). Issuers that do not know their CA,
    /// such as ACME, leave `ca.crt` empty or omit it.
    ///
    /// [spec]: https://cert-manager.io/docs/usage/certificate/
    /// [cainjector]: https://cert-manager.io/docs/concepts/ca-injector/
    #[must_use]
    pub fn cert_manager(client: Client, namespace: &str, name: &str) -> Self {
        Self::new(client, namespace, name).with_ca("ca.crt")
    }

    /// Reads the Secret that [OpenShift's service CA][docs] creates for a Service with the annotation
    /// `service.beta.openshift.io/serving-cert-secret-name`.
    ///
    /// The Secret contains no bundle: OpenShift injects it into targets with the annotation
    /// `service.beta.openshift.io/inject-cabundle: "true"`. The certificate is valid for
    /// `<service>.<namespace>.svc` and `<service>.<namespace>.svc.cluster.local` of one Service.
    /// `tls.crt` also contains the issuing CA.
    ///
    /// [docs]: https://docs.openshift.com/container-platform/latest/security/certificates/service-serving-certificate.html
    #[must_use]
    pub fn openshift_service_ca(client: Client, namespace: &str, name: &str) -> Self {
        Self::new(client, namespace, name)
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
        let mut digest = digest::Context::new(&digest::SHA256);
        for text in self.0.iter().flat_map(|(key, value)| [key.as_bytes(), &value.0]) {
            digest.update(&text.len().to_be_bytes());
            digest.update(text);
        }
        let mut bytes = [0; 32];
        // SHA-256 digests are 32 bytes, so the lengths match.
        bytes.copy_from_slice(digest.finish().as_ref());
        bytes
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
        // Process all queued events; wait only for the first response.
        while let Some(next) = match self.known {
            Some(_) => self.next().now_or_never(),
            None => Some(timeout(TIMEOUT, self.next()).await.unwrap_or_else(|_| Ok(false))),
        } {
            match next {
                Ok(_) if self.known.is_some() => {}
                Ok(_) => {
                    let problem = format!(
                        "failed to watch {}: the API server did not answer within {TIMEOUT:?}",
                        self.place
                    );
                    return Err(SourceError::new(Reason::Unreadable, problem));
                }
                Err(error) => {
                    let error = self.log_failure(&error);
                    if self.known.is_none() {
                        return Err(error);
                    }
                }
            }
        }
        match &self.known {
            Some(known) => known.found.as_ref().map_err(Clone::clone)?.offer(now),
            None => Err(SourceError::new(Reason::Unreadable, format!("failed to watch {}", self.place))),
        }
    }

    async fn changed(&mut self) {
        loop {
            match self.next().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => drop(self.log_failure(&error)),
            }
        }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretSource")
            .field("place", &self.place)
            .field("keys", &self.keys)
            .field("publishes", &self.publishes)
            .finish_non_exhaustive()
    }
}
