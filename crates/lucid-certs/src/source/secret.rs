//! A certificate that others keep in a Secret, without a volume

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
    CertificateSource, Live, Offer, Reason, SourceError,
    pair::{Found, Text},
};

/// How long the first answer of the API server may take
const PATIENCE: Duration = Duration::from_secs(10);

/// A certificate and its key in a Secret that is watched directly: a change arrives within moments, and not after
/// the minute or two that a mounted Secret takes.
///
/// A Secret that is deleted, or holds something that cannot be served, leaves what was offered before in
/// use. So does an API server that is not reached.
///
/// Needs the verbs `get`, `list` and `watch` on this Secret; a Role with its name in `resourceNames` is
/// enough, because nothing else is asked for.
///
/// The client of crate `kube` logs an answer that does not deserialize, as a whole and at WARN, under the target
/// `kube_client::client`. An API server does not answer so; a proxy before it may, and the key would be in it. So keep
/// that target at ERROR.
pub struct SecretSource {
    api: Api<Secret>,
    place: String,
    name: String,
    keys: Keys,
    publishes: bool,
    watch: Option<BoxStream<'static, watcher::Result<Option<Secret>>>>,
    known: Option<Known>,
    /// The last failure that was logged, until the watch works again
    complaint: Option<String>,
}

/// Under which keys of the Secret
#[derive(Debug, Clone)]
struct Keys {
    certificate: String,
    key: String,
    ca: Option<String>,
}

/// What the Secret holds, with a digest of it; `None` when it is not there
struct Known {
    digest: Option<[u8; 32]>,
    found: Result<Found, SourceError>,
}

impl SecretSource {
    /// The Secret `name` in `namespace`, of type `kubernetes.io/tls` or with the same keys `tls.crt` and
    /// `tls.key`; nothing is read yet
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
            complaint: None,
        }
    }

    /// Other keys for the certificate, with its chain behind it, and for its private key; it may be the same
    #[must_use]
    pub fn with_keys(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.keys.certificate = certificate.into();
        self.keys.key = key.into();
        self
    }

    /// The key of the bundle that came with the certificate, such as `ca.crt`. The certificate is offered only if
    /// the bundle vouches for it. The key may be missing or empty, unless it is to be published.
    #[must_use]
    pub fn with_ca(mut self, ca: impl Into<String>) -> Self {
        self.keys.ca = Some(ca.into());
        self
    }

    /// The targets are to hold at least what [`with_ca`](Self::with_ca) names. Without this, somebody else
    /// brings the bundle there.
    #[must_use]
    pub fn with_publishing(mut self) -> Self {
        self.publishes = true;
        self
    }

    /// Takes in what the watch brings next; whether it differs from what was known
    async fn next(&mut self) -> watcher::Result<bool> {
        let Self { api, name, watch, .. } = self;
        let watch = watch.get_or_insert_with(|| watch_object(api.clone(), name).default_backoff().boxed());
        // It never ends; should it, the next call begins another one.
        let Some(secret) = watch.next().await.transpose()? else {
            self.watch = None;
            return Ok(false);
        };
        self.complaint = None;
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
            // cert-manager leaves it empty where an issuer does not know its authority.
            Some(ca) if !*publishes && data.0.get(ca).is_none_or(|ca| ca.0.is_empty()) => None,
            Some(ca) => Some(data.text(ca, place)),
            None => None,
        };
        Found::decode(data.text(&keys.certificate, place)?, data.text(&keys.key, place)?, ca, *publishes)
    }

    fn complain(&mut self, error: &watcher::Error) -> SourceError {
        let problem = format!(
            "failed to watch {}, for which get, list and watch are needed: {}",
            self.place,
            crate::chain(error)
        );
        if self.complaint.as_ref() != Some(&problem) {
            warn!("{problem}");
            self.complaint = Some(problem.clone());
        }
        SourceError::new(Reason::Unreadable, problem)
    }
}

/// What a Secret holds. It is overwritten in memory when it is not needed any more.
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
        // SHA-256 has 32 bytes: both slices are of one length.
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

    async fn offer(&mut self, _live: &Live, now: SystemTime) -> Result<Offer, SourceError> {
        // Whatever arrived meanwhile counts, and the first answer is waited for.
        while let Some(next) = match self.known {
            Some(_) => self.next().now_or_never(),
            None => Some(timeout(PATIENCE, self.next()).await.unwrap_or_else(|_| Ok(false))),
        } {
            match next {
                Ok(_) if self.known.is_some() => {}
                Ok(_) => {
                    let problem = format!(
                        "failed to watch {}: the API server did not answer within {PATIENCE:?}",
                        self.place
                    );
                    return Err(SourceError::new(Reason::Unreadable, problem));
                }
                Err(error) => {
                    let error = self.complain(&error);
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
                Err(error) => drop(self.complain(&error)),
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
