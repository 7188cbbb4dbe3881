//! Which clients are let in, by their certificates

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, UnixTime},
    server::{
        VerifierBuilderError, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use snafu::{ResultExt, Snafu};
use tokio::sync::watch;
use x509_parser::extensions::GeneralName;

use crate::{
    bundle::{BundleError, TrustBundle},
    validity,
};

/// Why a bundle of client CAs is not taken
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ClientCertificatesError {
    /// There is no certificate in it, or something else
    #[snafu(display("failed to read the bundle of client CAs"))]
    Bundle {
        /// What is wrong with it
        source: BundleError,
    },
    /// The TLS library does not take a certificate
    #[snafu(display("failed to trust certificate {position} of the bundle of client CAs"))]
    Certificate {
        /// Which one, counted from 1, the newest first
        position: usize,
        /// What is wrong with it
        source: rustls::Error,
    },
    /// The TLS library takes none of it
    #[snafu(display("failed to verify client certificates with the bundle of client CAs"))]
    Verifier {
        /// What the library said
        source: VerifierBuilderError,
    },
}

/// Asks clients for certificates of a CA that can be replaced while the server runs.
///
/// An API server shows a client certificate only where its AdmissionConfiguration names a kubeconfig for the webhook;
/// most managed clusters cannot. Ask for one where the webhook would otherwise tell secrets to whoever reaches it.
///
/// Clones are the same: keep one to [`replace`](Self::replace) the CA.
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
    provider: Arc<CryptoProvider>,
    /// Apart from the verifier, which the configurations hold
    configs: Arc<Mutex<Vec<watch::Sender<Arc<ServerConfig>>>>>,
}

impl ClientCertificates {
    /// Refuses clients without a certificate of the CAs in `bundle`, which is PEM.
    ///
    /// # Errors
    ///
    /// When the bundle holds no certificate, or one that cannot be read.
    pub fn required(bundle: &[u8]) -> Result<Self, ClientCertificatesError> {
        Self::new(bundle, true)
    }

    /// Takes clients without a certificate as well, and refuses a certificate that is not of the CAs in `bundle`.
    /// The server tells them apart by the certificates of the connection.
    ///
    /// # Errors
    ///
    /// As [`Self::required`].
    pub fn optional(bundle: &[u8]) -> Result<Self, ClientCertificatesError> {
        Self::new(bundle, false)
    }

    fn new(bundle: &[u8], required: bool) -> Result<Self, ClientCertificatesError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let trusted = Arc::new(ArcSwap::from_pointee(read(bundle, &provider)?));
        let verifier = Verifier { trusted, allowed_names: Arc::default(), required };
        Ok(Self { verifier, provider, configs: Arc::default() })
    }

    /// Takes only certificates with one of these as the subject's common name or among its DNS names, compared
    /// exactly. Without names, any certificate of the CA is taken.
    #[must_use]
    pub fn with_allowed_names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.verifier.allowed_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Trusts the CAs in `bundle` instead, from the next handshake on, and has the configurations of
    /// [`ServerTls::watch`](crate::ServerTls::watch) sent again.
    ///
    /// # Errors
    ///
    /// As [`Self::required`]; the CAs in use stay.
    pub fn replace(&self, bundle: &[u8]) -> Result<(), ClientCertificatesError> {
        self.verifier.trusted.store(Arc::new(read(bundle, &self.provider)?));
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

fn read(
    bundle: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, ClientCertificatesError> {
    let bundle = TrustBundle::from_pem(bundle).context(BundleSnafu)?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in bundle.certificates().enumerate() {
        roots.add(certificate.clone()).context(CertificateSnafu { position: index + 1 })?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .context(VerifierSnafu)
}

/// Not public: with a configuration of somebody else's making, sessions would be resumed.
#[derive(Clone)]
struct Verifier {
    trusted: Arc<ArcSwap<Arc<dyn ClientCertVerifier>>>,
    allowed_names: Arc<[String]>,
    required: bool,
}

impl Verifier {
    fn now(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.trusted.load())
    }

    fn allows(&self, certificate: &CertificateDer<'_>) -> bool {
        self.allowed_names.is_empty()
            || names(certificate).iter().any(|name| self.allowed_names.contains(name))
    }
}

/// The subject's common name and DNS names; a certificate that cannot be read has none.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = validity::parse(certificate) else { return Vec::new() };
    let common_name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let dns_names = alternative.iter().flat_map(|extension| &extension.value.general_names).filter_map(
        |name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        },
    );
    common_name.into_iter().chain(dns_names).map(str::to_owned).collect()
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

    /// None: they change, and a client without hints shows what it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.now().verify_client_cert(end_entity, intermediates, now)?;
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
        self.now().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.now().supported_verify_schemes()
    }
}
