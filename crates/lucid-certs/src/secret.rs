//! The certificate authority that all replicas share, in a Secret

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ObjectReference, Secret},
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams},
};
use snafu::{OptionExt, ResultExt, Snafu, ensure};

use crate::{
    bundle::TrustBundle,
    ca::{CaError, CertificateAuthority},
    names::ServingNames,
    serving::VerifyError,
    validity::Validity,
};

/// Keys of a Secret of type `kubernetes.io/tls`; the third is the convention of cert-manager.
const CERTIFICATE: &str = "tls.crt";
const PRIVATE_KEY: &str = "tls.key";
const TRUST_BUNDLE: &str = "ca.crt";

const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "lucid-certs");

/// How often a lost race is tried again. The winner's authority is usable, so one is the rule.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Why the authority could neither be loaded nor created
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum SecretError {
    /// The API server did not let us read, create or replace the Secret
    #[snafu(display("failed to {action} Secret {namespace}/{name}"))]
    Api {
        /// `get`, `create` or `replace`
        action: &'static str,
        /// Namespace of the Secret
        namespace: String,
        /// Name of the Secret
        name: String,
        /// What the API server or the connection to it says
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// A new authority could not be made
    #[snafu(display("failed to make a certificate authority for Secret {namespace}/{name}"))]
    Generate {
        /// Namespace of the Secret
        namespace: String,
        /// Name of the Secret
        name: String,
        /// What went wrong
        source: CaError,
    },
    /// Somebody else changed the Secret each time, and never to something usable
    #[snafu(display(
        "failed to settle on a certificate authority in Secret {namespace}/{name}: it was changed or deleted by \
         others {attempts} times in a row"
    ))]
    Contended {
        /// Namespace of the Secret
        namespace: String,
        /// Name of the Secret
        name: String,
        /// How often it was tried
        attempts: u32,
    },
}

/// Why what a Secret holds is not used, and is replaced
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum Unusable {
    /// One of the keys is missing
    #[snafu(display("key {key} is missing"))]
    MissingKey {
        /// `tls.crt` or `tls.key`
        key: &'static str,
    },
    /// The keys hold no authority that can sign now
    #[snafu(display("{key} holds no usable certificate authority"))]
    Content {
        /// `tls.crt`, `tls.key`, or both when they do not match
        key: &'static str,
        /// What was found
        source: CaError,
    },
    /// The authority signs, but clients refuse what it signs for our names
    #[snafu(display("tls.crt holds a certificate authority that may not serve our names"))]
    Names {
        /// What a client would say
        source: VerifyError,
    },
    /// The authority works, and ends soon
    #[snafu(display("tls.crt holds a certificate authority that is due for renewal, valid from {validity}"))]
    RenewalDue {
        /// From when to when it is valid
        validity: Validity,
    },
}

/// Where an authority came from
#[derive(Debug)]
#[non_exhaustive]
pub enum CaOrigin {
    /// It was in the Secret
    Loaded,
    /// There was no Secret; it is new, and now stored
    Created,
    /// The Secret was not usable; it is new, and now stored in its place
    #[non_exhaustive]
    Replaced {
        /// What was wrong
        reason: Unusable,
        /// The Secret, as an event refers to it
        secret: Box<ObjectReference>,
    },
}

/// What a Secret holds
#[derive(Debug)]
#[non_exhaustive]
pub struct SharedCa {
    /// The authority in force
    pub ca: CertificateAuthority,
    /// Authorities before it that other replicas may still serve under, newest first. Keep them in the
    /// trust bundle until they are gone from here, [`CA_OVERLAP`](crate::CA_OVERLAP) after they were
    /// replaced.
    pub previous: Option<TrustBundle>,
    /// Where the authority came from
    pub origin: CaOrigin,
}

/// The Secret in which all replicas keep their certificate authority, of type `kubernetes.io/tls`
/// with `tls.crt`, `tls.key` and `ca.crt`.
///
/// `ca.crt` is the authority and those before it, newest first. One of them counts as long as its
/// successor is younger than [`CA_OVERLAP`](crate::CA_OVERLAP); it may stand there for longer.
///
/// There is no leader. Whoever finds no usable authority makes one and creates the Secret, or
/// replaces its content under the `resourceVersion` it read; of several, the API server lets one
/// win, and the others take over the winner's.
///
/// An authority is replaced when it is missing, does not parse, does not match its key, is no CA, may
/// not sign, is not valid now, may not serve the names that are asked for, or has less than
/// [`CA_RENEW_BEFORE`](crate::CA_RENEW_BEFORE) left. So all replicas that share a Secret must ask for
/// the same names. One that is none of these is used whoever made it. Other keys, labels and
/// annotations of the Secret are left alone.
///
/// Needs the verbs `get` and `update` on this Secret, and `create` on Secrets of its namespace.
#[derive(Debug, Clone)]
pub struct CaSecret {
    api: Api<Secret>,
    namespace: String,
    name: String,
}

impl CaSecret {
    /// The Secret `name` in `namespace`; nothing is read yet
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Reads the authority, and makes one for `names` where there is no usable one.
    ///
    /// `known` is what the caller trusts so far, because it or another replica may serve under it: it is
    /// handed on through `ca.crt` to whoever reads the Secret. Only a Secret that this crate wrote is
    /// changed for that.
    ///
    /// # Errors
    ///
    /// When the API server refuses (the Secret may be marked `immutable`), cannot be reached, or
    /// others keep changing the Secret to something unusable. What the Secret holds is no error.
    pub async fn load_or_create(
        &self,
        names: &ServingNames,
        known: Option<&TrustBundle>,
        now: SystemTime,
    ) -> Result<SharedCa, SecretError> {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(FIRST_PAUSE * 2u32.pow(attempt - 1)).await;
            }
            let found = self.api.get_opt(&self.name).await.with_context(|_| self.api_error("get"))?;
            let settled = match found {
                None => self.create(names, known, now).await?,
                Some(secret) => match read(&secret, names, now) {
                    Ok(ca) => self.hand_on(secret, ca, known, now).await?,
                    Err(reason) => self.replace(secret, reason, names, known, now).await?,
                },
            };
            if let Some(settled) = settled {
                return Ok(settled);
            }
        }
        ContendedSnafu { namespace: &self.namespace, name: &self.name, attempts: ATTEMPTS }.fail()
    }

    /// `None` when somebody else created it first
    async fn create(
        &self,
        names: &ServingNames,
        known: Option<&TrustBundle>,
        now: SystemTime,
    ) -> Result<Option<SharedCa>, SecretError> {
        let ca = self.generate(names, now)?;
        let previous = known.and_then(|known| known.superseded_by(&ca, now));
        let mut secret = Secret {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        };
        write(&mut secret, &ca, previous.as_ref());
        match self.api.create(&PostParams::default(), &secret).await {
            Ok(_) => Ok(Some(SharedCa { ca, previous, origin: CaOrigin::Created })),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
            Err(error) => Err(error).with_context(|_| self.api_error("create")),
        }
    }

    /// `None` when somebody else changed or deleted it since it was read
    async fn replace(
        &self,
        mut secret: Secret,
        reason: Unusable,
        names: &ServingNames,
        known: Option<&TrustBundle>,
        now: SystemTime,
    ) -> Result<Option<SharedCa>, SecretError> {
        let ca = self.generate(names, now)?;
        let stored = merge(certificates(&secret, CERTIFICATE), certificates(&secret, TRUST_BUNDLE).as_ref());
        let previous = merge(stored, known).and_then(|bundle| bundle.superseded_by(&ca, now));
        write(&mut secret, &ca, previous.as_ref());
        Ok(self.update(&secret).await?.map(|secret| {
            let secret = Box::new(secret.object_ref(&()));
            SharedCa { ca, previous, origin: CaOrigin::Replaced { reason, secret } }
        }))
    }

    /// Adds what is known to the Secret and what is in the Secret to the known. `None` when somebody else
    /// changed or deleted it since it was read
    async fn hand_on(
        &self,
        mut secret: Secret,
        ca: CertificateAuthority,
        known: Option<&TrustBundle>,
        now: SystemTime,
    ) -> Result<Option<SharedCa>, SecretError> {
        let stored = certificates(&secret, TRUST_BUNDLE).unwrap_or_else(|| ca.trust_bundle());
        let previous = stored.merge(known.unwrap_or(&stored)).superseded_by(&ca, now);
        let is_complete = previous.as_ref().is_none_or(|previous| stored.merge(previous) == stored);
        if !is_complete && is_ours(&secret) {
            write(&mut secret, &ca, previous.as_ref());
            if self.update(&secret).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(SharedCa { ca, previous, origin: CaOrigin::Loaded }))
    }

    async fn update(&self, secret: &Secret) -> Result<Option<Secret>, SecretError> {
        match self.api.replace(&self.name, &PostParams::default(), secret).await {
            Ok(secret) => Ok(Some(secret)),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(None),
            Err(error) => Err(error).with_context(|_| self.api_error("replace")),
        }
    }

    fn generate(&self, names: &ServingNames, now: SystemTime) -> Result<CertificateAuthority, SecretError> {
        CertificateAuthority::generate(names, now)
            .context(GenerateSnafu { namespace: &self.namespace, name: &self.name })
    }

    fn api_error(&self, action: &'static str) -> ApiSnafu<&'static str, &str, &str> {
        ApiSnafu { action, namespace: &self.namespace, name: &self.name }
    }
}

fn read(secret: &Secret, names: &ServingNames, now: SystemTime) -> Result<CertificateAuthority, Unusable> {
    let certificate = value(secret, CERTIFICATE).context(MissingKeySnafu { key: CERTIFICATE })?;
    let private_key = value(secret, PRIVATE_KEY).context(MissingKeySnafu { key: PRIVATE_KEY })?;
    let ca = CertificateAuthority::from_pem(certificate, private_key, now)
        .map_err(|source| Unusable::Content { key: at_fault(&source), source })?;
    ca.issue(names, now)
        .context(ContentSnafu { key: CERTIFICATE })?
        .verify_for(names, &ca.trust_bundle(), now)
        .context(NamesSnafu)?;
    ensure!(!ca.is_due_for_renewal(now), RenewalDueSnafu { validity: ca.validity() });
    Ok(ca)
}

fn at_fault(error: &CaError) -> &'static str {
    match error {
        CaError::PrivateKeyPem { .. } | CaError::PrivateKey { .. } => PRIVATE_KEY,
        CaError::KeyMismatch { .. } => "tls.crt with tls.key",
        _ => CERTIFICATE,
    }
}

fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    Some(&secret.data.as_ref()?.get(key)?.0)
}

/// The certificates under a key, if there is nothing but certificates
fn certificates(secret: &Secret, key: &str) -> Option<TrustBundle> {
    TrustBundle::from_pem(value(secret, key)?).ok()
}

fn merge(bundle: Option<TrustBundle>, other: Option<&TrustBundle>) -> Option<TrustBundle> {
    match (bundle, other) {
        (Some(bundle), Some(other)) => Some(bundle.merge(other)),
        (bundle, other) => bundle.or_else(|| other.cloned()),
    }
}

fn is_ours(secret: &Secret) -> bool {
    let (label, manager) = MANAGED_BY;
    secret.metadata.labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|value| value == manager)
}

fn write(secret: &mut Secret, ca: &CertificateAuthority, previous: Option<&TrustBundle>) {
    let (label, manager) = MANAGED_BY;
    secret.metadata.labels.get_or_insert_with(BTreeMap::new).insert(label.to_owned(), manager.to_owned());
    let bundle = previous.iter().fold(ca.trust_bundle(), |bundle, previous| bundle.merge(previous));
    let data = secret.data.get_or_insert_with(BTreeMap::new);
    for (key, pem) in [
        (CERTIFICATE, ca.certificate_pem()),
        (PRIVATE_KEY, ca.private_key_pem().to_string()),
        (TRUST_BUNDLE, bundle.to_pem()),
    ] {
        data.insert(key.to_owned(), ByteString(pem.into_bytes()));
    }
}
