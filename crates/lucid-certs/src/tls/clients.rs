//! Client certificate authentication.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, TrustAnchor, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use tokio::sync::watch;

use crate::{
    anchor::{Anchor, Purpose},
    bundle::TrustBundle,
    error::Error,
    fingerprint::Fingerprint,
    validity::Validity,
    x509::Certificate,
};

/// Client certificate verification with CAs that can be replaced at runtime.
///
/// An API server presents a client certificate only if its AdmissionConfiguration names a kubeconfig for the
/// webhook, which most managed clusters do not support. Require one if the webhook would otherwise disclose
/// secrets to any client that can reach it.
///
/// Validity periods of the CAs are checked at each handshake: clients of an expired CA are rejected.
///
/// Clones share their CAs. Keep one to [`replace`](Self::replace) them.
///
/// ```no_run
/// # use std::sync::Arc;
/// use lucid_certs::{ClientCertificates, ServerTls};
///
/// # fn example(resolver: Arc<lucid_certs::ServingCertificateResolver>) -> Result<(), Box<dyn std::error::Error>> {
/// let clients = ClientCertificates::required(&std::fs::read("client-ca.crt")?)?
///     .with_allowed_names(["kube-apiserver"]);
/// let tls = ServerTls::new(resolver).with_clients(&clients).watch()?;
/// // Later, when the file has changed:
/// clients.replace(&std::fs::read("client-ca.crt")?)?;
/// # drop(tls);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ClientCertificates {
    verifier: Verifier,
    /// Not part of the verifier, because the configurations hold the verifier.
    configs: Arc<Mutex<Vec<watch::Sender<Arc<ServerConfig>>>>>,
}

impl ClientCertificates {
    /// Rejects clients without a certificate issued by a CA in the PEM `bundle`.
    ///
    /// # Errors
    ///
    /// Returns an error if the bundle holds no certificate, one that does not parse, or one that is not a CA
    /// for clients. Expired CAs are accepted.
    pub fn required(bundle: &[u8]) -> Result<Self, Error> {
        Self::new(bundle, true)
    }

    /// Accepts clients without a certificate, but rejects certificates not issued by a CA in the PEM
    /// `bundle`. The server can distinguish clients by the peer certificates of the connection.
    ///
    /// # Errors
    ///
    /// See [`required`](Self::required).
    pub fn optional(bundle: &[u8]) -> Result<Self, Error> {
        Self::new(bundle, false)
    }

    fn new(bundle: &[u8], required: bool) -> Result<Self, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let trusted = Arc::new(ArcSwap::from_pointee(read(bundle)?));
        let verifier = Verifier { trusted, provider, allowed_names: Arc::default(), required };
        Ok(Self { verifier, configs: Arc::default() })
    }

    /// Accepts only certificates with one of these names as common name or DNS name, compared exactly.
    /// Without names, all certificates of the CAs are accepted.
    #[must_use]
    pub fn with_allowed_names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.verifier.allowed_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Replaces the trusted CAs for new handshakes, and sends the configurations of
    /// [`ServerTls::watch`](crate::ServerTls::watch) again.
    ///
    /// # Errors
    ///
    /// See [`required`](Self::required). On error the current CAs stay in use.
    pub fn replace(&self, bundle: &[u8]) -> Result<(), Error> {
        self.verifier.trusted.store(Arc::new(read(bundle)?));
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        configs.retain(|config| !config.is_closed());
        configs.iter().for_each(|config| config.send_modify(|_| {}));
        Ok(())
    }

    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(self.verifier.clone())
    }

    pub(super) fn resend_when_replaced(&self, config: watch::Sender<Arc<ServerConfig>>) {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner).push(config);
    }
}

impl fmt::Debug for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.verifier.fmt(f)
    }
}

type Cas = Vec<(Validity, TrustAnchor<'static>)>;

fn read(bundle: &[u8]) -> Result<Cas, Error> {
    let bundle = TrustBundle::from_pem(bundle).map_err(|error| {
        Error::new(format!("failed to read the bundle of client CAs: {}", lucid_text::with_causes(&error)))
    })?;
    let mut cas = Vec::new();
    for (index, certificate) in bundle.certificates().enumerate() {
        let anchor = Anchor::of(certificate, Purpose::Clients).map_err(|why| {
            Error::new(format!(
                "failed to trust certificate {} of the bundle of client CAs: {} {why}",
                index + 1,
                Fingerprint::of(certificate)
            ))
        })?;
        cas.push((anchor.validity, anchor.trusted.to_owned()));
    }
    Ok(cas)
}

/// Private: a configuration built elsewhere would resume sessions.
#[derive(Clone)]
struct Verifier {
    trusted: Arc<ArcSwap<Cas>>,
    provider: Arc<CryptoProvider>,
    allowed_names: Arc<[String]>,
    required: bool,
}

impl Verifier {
    /// Returns the verifier for `now`, which trusts the CAs that are valid then.
    fn at(&self, now: UnixTime) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        let now = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(now.as_secs()));
        let now = now.ok_or(rustls::Error::FailedToGetCurrentTime)?;
        let cas = self.trusted.load();
        let valid = cas.iter().filter(|(validity, _)| validity.contains(now));
        let roots = RootCertStore { roots: valid.map(|(_, ca)| ca.clone()).collect() };
        if roots.is_empty() {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.map_err(|error| rustls::Error::General(error.to_string()))
    }

    fn allows(&self, certificate: &CertificateDer<'_>) -> bool {
        self.allowed_names.is_empty()
            || names(certificate).iter().any(|name| self.allowed_names.contains(name))
    }
}

/// Returns the common name and DNS names; empty if the certificate does not parse.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = Certificate::parse(certificate) else { return Vec::new() };
    let dns_names = &certificate.extensions.alternative_names.dns_names;
    certificate.common_name().into_iter().chain(dns_names.iter().cloned()).collect()
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificates")
            .field("required", &self.required)
            .field("allowed_names", &self.allowed_names)
            .finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    /// No hints: the CAs change, and a client without hints presents its certificate anyway.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.at(now)?.verify_client_cert(end_entity, intermediates, now)?;
        if self.allows(end_entity) {
            Ok(verified)
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
