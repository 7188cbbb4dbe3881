//! HTTP/1.1 over TLS to a webhook.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use http_body_util::Full;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem};
use rustls::{ClientConfig, RootCertStore};
use snafu::{OptionExt, Snafu, ensure};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_CONNECTIONS: usize = 25;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) type Client = hyper_util::client::legacy::Client<Connector, Full<Bytes>>;

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

/// Certificate chain and key of a client.
type Identity = Arc<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>;

/// A webhook server and the CAs trusted for it.
#[derive(Clone)]
pub(super) struct Https {
    origin: String,
    /// Address to connect to; by default the host is resolved.
    address: Option<SocketAddr>,
    host: String,
    port: u16,
    server_name: ServerName<'static>,
    roots: RootCertStore,
    identity: Option<Identity>,
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Https {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Https").field("origin", &self.origin).field("address", &self.address).finish()
    }
}

impl Https {
    pub(super) fn url(url: &str, ca_pem: &[u8]) -> Result<Self, SetupError> {
        let refused = || {
            invalid(format!(
                "failed to use the URL {url:?}: accepted is https://<host>[:<port>] without a path"
            ))
        };
        let uri: Uri = url.parse().ok().with_context(refused)?;
        let authority = uri.authority().with_context(refused)?;
        let fits = uri.scheme_str() == Some("https")
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && !authority.as_str().contains('@');
        ensure!(fits, refused());
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(443);
        Self::new(format!("https://{authority}"), None, host, port, ca_pem)
    }

    pub(super) fn service(
        name: &str,
        namespace: &str,
        address: SocketAddr,
        ca_pem: &[u8],
    ) -> Result<Self, SetupError> {
        let host = format!("{name}.{namespace}.svc");
        Self::new(format!("https://{host}:443"), Some(address), host, 443, ca_pem)
    }

    fn new(
        origin: String,
        address: Option<SocketAddr>,
        host: String,
        port: u16,
        ca_pem: &[u8],
    ) -> Result<Self, SetupError> {
        let server_name = to_server_name(&host)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem) {
            let certificate = certificate.map_err(|error| invalid_pem("CA bundle", &error))?;
            roots.add(certificate).map_err(|error| invalid_tls(&error))?;
        }
        ensure!(!roots.is_empty(), invalid("the CA bundle has no certificate (PEM)"));
        let config = config(&roots, None)?;
        Ok(Self { origin, address, host, port, server_name, roots, identity: None, config })
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
        let identity = Arc::new((chain, key));
        self.config = config(&self.roots, Some(&identity))?;
        self.identity = Some(identity);
        Ok(self)
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Creates a client with its own pool. TLS sessions are not resumed across pools.
    pub(super) fn client(&self) -> Client {
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            // As in Go, a request is retried on another connection only if none of it was written.
            .retry_canceled_requests(true)
            .build(Connector { to: self.clone() })
    }
}

fn to_server_name(name: &str) -> Result<ServerName<'static>, SetupError> {
    ServerName::try_from(name.to_owned())
        .map_err(|error| invalid(format!("failed to use {name:?} as the server's name: {error}")).build())
}

/// Trusts the bundle only, and requires a subjectAltName: rustls does not support the common name.
fn config(roots: &RootCertStore, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, SetupError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid_tls(&error))?
        .with_root_certificates(roots.clone());
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(identity.0.clone(), identity.1.clone_key())
            .map_err(|error| invalid_tls(&error))?,
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Connects to one server, regardless of the URI.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    to: Https,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Stream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let to = self.to.clone();
        async move {
            let stream = match to.address {
                Some(address) => TcpStream::connect(address).await?,
                None => TcpStream::connect((to.host.as_str(), to.port)).await?,
            };
            stream.set_nodelay(true)?;
            let handshake = TlsConnector::from(to.config).connect(to.server_name, stream);
            let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
                .await
                .map_err(|_elapsed| io::Error::new(io::ErrorKind::TimedOut, "TLS handshake timeout"))??;
            Ok(Stream(TokioIo::new(stream)))
        }
        .boxed()
    }
}

/// A connection that hyper can pool.
#[derive(Debug)]
pub(super) struct Stream(TokioIo<TlsStream<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
