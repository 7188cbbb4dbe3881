//! HTTP/1.1 over TLS to a webhook.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem};
use rustls::{ClientConfig, RootCertStore};
use snafu::{OptionExt, Snafu, ensure};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt, service_fn};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_CONNECTIONS: usize = 25;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) type Transport = BoxCloneSyncService<Request<Full<Bytes>>, Response<Bytes>, BoxError>;

/// A webhook cannot be called over TLS: the URL, the name, a certificate or the key is invalid.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub struct SetupError {
    problem: String,
}

fn invalid(problem: impl Into<String>) -> SetupSnafu<String> {
    SetupSnafu { problem: problem.into() }
}

fn invalid_pem(what: &str, error: &pem::Error) -> SetupError {
    invalid(format!("failed to read the {what} (PEM): {error}")).build()
}

fn invalid_tls(error: &rustls::Error) -> SetupError {
    invalid(format!("failed to set TLS up: {error}")).build()
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

#[derive(Clone, Debug)]
pub(super) struct Https {
    origin: String,
    address: String,
    server_name: ServerName<'static>,
    roots: RootCertStore,
    config: Arc<ClientConfig>,
}

impl Https {
    pub(super) fn url(url: &str, ca_pem: &[u8]) -> Result<Self, SetupError> {
        let refused = || {
            invalid(format!("failed to use the URL {url:?}: expected https://<host>[:<port>] without a path"))
        };
        let uri: Uri = url.parse().ok().with_context(refused)?;
        let authority = uri.authority().with_context(refused)?;
        let fits = uri.scheme_str() == Some("https")
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && !authority.as_str().contains('@');
        ensure!(fits, refused());
        let (host, port) = (authority.host(), authority.port_u16().unwrap_or(443));
        let name = host.trim_start_matches('[').trim_end_matches(']');
        Self::new(format!("https://{authority}"), format!("{host}:{port}"), name, ca_pem)
    }

    pub(super) fn service(
        name: &str,
        namespace: &str,
        address: SocketAddr,
        ca_pem: &[u8],
    ) -> Result<Self, SetupError> {
        let host = format!("{name}.{namespace}.svc");
        Self::new(format!("https://{host}:443"), address.to_string(), &host, ca_pem)
    }

    fn new(origin: String, address: String, server_name: &str, ca_pem: &[u8]) -> Result<Self, SetupError> {
        let server_name = to_server_name(server_name)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem) {
            let certificate = certificate.map_err(|error| invalid_pem("CA bundle", &error))?;
            roots.add(certificate).map_err(|error| invalid_tls(&error))?;
        }
        ensure!(!roots.is_empty(), invalid("the CA bundle has no certificate (PEM)"));
        let config = config(&roots, None)?;
        Ok(Self { origin, address, server_name, roots, config })
    }

    pub(super) fn with_server_name(mut self, name: &str) -> Result<Self, SetupError> {
        self.server_name = to_server_name(name)?;
        Ok(self)
    }

    pub(super) fn with_identity(mut self, chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, SetupError> {
        let chain = CertificateDer::pem_slice_iter(chain_pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| invalid_pem("client certificate", &error))?;
        let key =
            PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| invalid_pem("client key", &error))?;
        self.config = config(&self.roots, Some((chain, key)))?;
        Ok(self)
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Creates a client with its own pool. TLS sessions are not resumed across pools.
    pub(super) fn client(&self) -> Transport {
        let address = self.address.clone();
        let tcp = service_fn(move |_: Uri| {
            let address = address.clone();
            async move {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        });
        let server_name = Arc::new(FixedServerNameResolver::new(self.server_name.clone()));
        let tls = HttpsConnector::new(tcp, Arc::clone(&self.config), true, server_name);
        let connect = service_fn(move |uri: Uri| {
            let stream = timeout(CONNECT_TIMEOUT, tls.clone().oneshot(uri));
            async move { stream.await.unwrap_or_else(|_elapsed| Err("TLS handshake timeout".into())) }.boxed()
        });
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            // As in Go, a request is retried on another connection only if none of it was written.
            .retry_canceled_requests(true)
            .build(connect);
        Transport::new(service_fn(move |request: Request<Full<_>>| {
            let response = client.request(request);
            async move {
                let (head, body) = response.await?.into_parts();
                Ok::<_, BoxError>(Response::from_parts(head, body.collect().await?.to_bytes()))
            }
        }))
    }
}

fn to_server_name(name: &str) -> Result<ServerName<'static>, SetupError> {
    ServerName::try_from(name.to_owned())
        .map_err(|error| invalid(format!("failed to use {name:?} as the server's name: {error}")).build())
}

/// Trusts the bundle only, and requires a subjectAltName: rustls does not support the common name.
fn config(roots: &RootCertStore, identity: Option<Identity>) -> Result<Arc<ClientConfig>, SetupError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid_tls(&error))?
        .with_root_certificates(roots.clone());
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(|error| invalid_tls(&error))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
