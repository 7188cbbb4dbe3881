//! Which clients are let in, by their certificates.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use snafu::{IntoError, ResultExt, Snafu, ensure};
use tokio::sync::watch;

use super::peer::Names;
use super::tls::Tls;

/// Why a bundle of client CAs is not taken.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum ClientCertificatesError {
    /// It is not PEM.
    #[snafu(display("failed to read the bundle of client CAs as PEM: {source}"))]
    Pem {
        /// What is wrong with it.
        source: pem::Error,
    },
    /// There is no certificate in it.
    #[snafu(display("the bundle of client CAs holds no certificate"))]
    Empty,
    /// One of its certificates cannot be read.
    #[snafu(display("certificate {number} of the bundle of client CAs is no certificate: {source}"))]
    Certificate {
        /// Counted from 1.
        number: usize,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// The TLS library takes none of it.
    #[snafu(display("failed to verify client certificates with the bundle of client CAs: {source}"))]
    Verifier {
        /// What the library said.
        source: VerifierBuilderError,
    },
    /// The crypto provider lacks what TLS 1.2 and 1.3 need.
    #[snafu(display("failed to configure TLS: {source}"))]
    Tls {
        /// What the library said.
        source: rustls::Error,
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
/// # fn server_certificate() -> Arc<dyn rustls::server::ResolvesServerCert> { unimplemented!() }
/// use lucid_webhook::ClientCertificates;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clients = ClientCertificates::required(&std::fs::read("client-ca.crt")?)?
///     .with_allowed_names(["kube-apiserver"]);
/// let tls = clients.tls(server_certificate())?;
/// // Later, when the file has changed:
/// clients.replace(&std::fs::read("client-ca.crt")?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    trusted: watch::Sender<Trusted>,
    provider: Arc<CryptoProvider>,
    allowed_names: Arc<[String]>,
    required: bool,
}

#[derive(Debug)]
pub(super) struct Trusted(Arc<dyn ClientCertVerifier>);

impl ClientCertificates {
    /// Refuses clients without a certificate of the CAs in `bundle`, which is PEM.
    ///
    /// # Errors
    ///
    /// When the bundle holds no certificate, or anything but certificates that can be read.
    pub fn required(bundle: &[u8]) -> Result<Self, ClientCertificatesError> {
        Self::new(bundle, true)
    }

    /// Takes clients without a certificate as well, and refuses a certificate that is not of the CAs in `bundle`.
    /// The service tells them apart by [`PeerCertificate`](crate::PeerCertificate).
    ///
    /// # Errors
    ///
    /// As [`Self::required`].
    pub fn optional(bundle: &[u8]) -> Result<Self, ClientCertificatesError> {
        Self::new(bundle, false)
    }

    fn new(bundle: &[u8], required: bool) -> Result<Self, ClientCertificatesError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let trusted = watch::Sender::new(Trusted::read(bundle, &provider)?);
        Ok(Self { trusted, provider, allowed_names: Arc::default(), required })
    }

    /// Takes only certificates with one of these as the subject's common name or among its DNS names, compared
    /// exactly. Without names, any certificate of the CA is taken.
    #[must_use]
    pub fn with_allowed_names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.allowed_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Trusts the CAs in `bundle` instead, from the next handshake on. Connections that stand are asked to end where the
    /// server has its [`Tls`] from [`Self::tls`], and are not touched otherwise.
    ///
    /// # Errors
    ///
    /// As [`Self::required`]; the CAs in use stay.
    pub fn replace(&self, bundle: &[u8]) -> Result<(), ClientCertificatesError> {
        self.trusted.send_replace(Trusted::read(bundle, &self.provider)?);
        Ok(())
    }

    /// For [`Server::serve`](crate::Server::serve): [`Self::server_config`], and standing connections end gracefully
    /// when the CAs are replaced. Each HTTP/1.1 connection may carry one more request.
    ///
    /// # Errors
    ///
    /// As [`Self::server_config`].
    pub fn tls(&self, certificate: Arc<dyn ResolvesServerCert>) -> Result<Tls, ClientCertificatesError> {
        Ok(Tls::of_clients(self.server_config(certificate)?, self.trusted.subscribe()))
    }

    /// A configuration for TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, that shows `certificate` and asks for theirs.
    ///
    /// Sessions are never resumed: a resumed one would not show its certificate again, and so outlive its CA.
    ///
    /// # Errors
    ///
    /// When the crypto provider was built without one of the TLS versions.
    pub fn server_config(
        &self,
        certificate: Arc<dyn ResolvesServerCert>,
    ) -> Result<ServerConfig, ClientCertificatesError> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .context(TlsSnafu)?
            .with_client_cert_verifier(Arc::new(Verifier(self.clone())))
            .with_cert_resolver(certificate);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl Trusted {
    fn read(bundle: &[u8], provider: &Arc<CryptoProvider>) -> Result<Self, ClientCertificatesError> {
        let mut roots = RootCertStore::empty();
        for (index, certificate) in CertificateDer::pem_slice_iter(bundle).enumerate() {
            let certificate = certificate.context(PemSnafu)?;
            roots.add(certificate).context(CertificateSnafu { number: index + 1 })?;
        }
        ensure!(!roots.is_empty(), EmptySnafu);
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map(Self)
            .map_err(|error| VerifierSnafu.into_error(error))
    }
}

/// Not public: with a configuration of somebody else's making, sessions would be resumed.
#[derive(Debug)]
struct Verifier(ClientCertificates);

impl Verifier {
    fn now(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0.trusted.borrow().0)
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.0.required
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
        let allowed = &self.0.allowed_names;
        if allowed.is_empty() || Names::read(end_entity).any_of(allowed) {
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
