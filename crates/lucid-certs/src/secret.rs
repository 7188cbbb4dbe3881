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
        /// The certificates that the Secret held and that are not expired. Other replicas may still
        /// serve under them, so keep them in the trust bundle until they had time to follow.
        previous: Option<TrustBundle>,
        /// The Secret, as an event refers to it
        secret: Box<ObjectReference>,
    },
}

/// The Secret in which all replicas keep their certificate authority, of type `kubernetes.io/tls`
/// with `tls.crt`, `tls.key` and `ca.crt`.
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
    /// # Errors
    ///
    /// When the API server refuses (the Secret may be marked `immutable`), cannot be reached, or
    /// others keep changing the Secret to something unusable. What the Secret holds is no error.
    pub async fn load_or_create(
        &self,
        names: &ServingNames,
        now: SystemTime,
    ) -> Result<(CertificateAuthority, CaOrigin), SecretError> {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(FIRST_PAUSE * 2u32.pow(attempt - 1)).await;
            }
            let found = self.api.get_opt(&self.name).await.with_context(|_| self.api_error("get"))?;
            let settled = match found {
                None => self.create(names, now).await?,
                Some(secret) => match read(&secret, names, now) {
                    Ok(ca) => Some((ca, CaOrigin::Loaded)),
                    Err(reason) => self.replace(secret, reason, names, now).await?,
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
        now: SystemTime,
    ) -> Result<Option<(CertificateAuthority, CaOrigin)>, SecretError> {
        let ca = self.generate(names, now)?;
        let mut secret = Secret {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        };
        write(&mut secret, &ca);
        match self.api.create(&PostParams::default(), &secret).await {
            Ok(_) => Ok(Some((ca, CaOrigin::Created))),
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
        now: SystemTime,
    ) -> Result<Option<(CertificateAuthority, CaOrigin)>, SecretError> {
        let ca = self.generate(names, now)?;
        let previous = value(&secret, CERTIFICATE)
            .and_then(|pem| TrustBundle::from_pem(pem).ok())
            .and_then(|bundle| bundle.without_expired(now));
        write(&mut secret, &ca);
        match self.api.replace(&self.name, &PostParams::default(), &secret).await {
            Ok(secret) => {
                let secret = Box::new(secret.object_ref(&()));
                Ok(Some((ca, CaOrigin::Replaced { reason, previous, secret })))
            }
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

fn write(secret: &mut Secret, ca: &CertificateAuthority) {
    let (label, manager) = MANAGED_BY;
    secret.metadata.labels.get_or_insert_with(BTreeMap::new).insert(label.to_owned(), manager.to_owned());
    let data = secret.data.get_or_insert_with(BTreeMap::new);
    for (key, pem) in [
        (CERTIFICATE, ca.certificate_pem()),
        (PRIVATE_KEY, ca.private_key_pem()),
        (TRUST_BUNDLE, ca.certificate_pem()),
    ] {
        data.insert(key.to_owned(), ByteString(pem.into_bytes()));
    }
}
