//! Certificates, and clients that expose the wire format.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) der: CertificateDer<'static>,
    pub(crate) pem: String,
}

pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(crate) fn write(&self, folder: &Path) {
        for (name, label, der) in
            [("tls.crt", "CERTIFICATE", &*self.chain[0]), ("tls.key", "PRIVATE KEY", self.key.secret_der())]
        {
            let pem = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der));
            fs::write(folder.join(name), pem).unwrap();
        }
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "a CA of tests");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (der, pem) = (certificate.der().clone(), certificate.pem());
        Self { issuer: Issuer::new(params, key), der, pem }
    }

    pub(crate) fn issue(
        &self,
        usage: ExtendedKeyUsagePurpose,
        common_name: &str,
        dns_names: &[&str],
    ) -> Identity {
        let names: Vec<_> = dns_names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Identity { chain: vec![certificate.der().clone()], key }
    }

    pub(crate) fn client(&self, common_name: &str, dns_names: &[&str]) -> Identity {
        self.issue(ExtendedKeyUsagePurpose::ClientAuth, common_name, dns_names)
    }

    pub(crate) fn localhost(&self) -> Arc<dyn ResolvesServerCert> {
        self.resolver("localhost")
    }

    fn resolver(&self, host: &str) -> Arc<dyn ResolvesServerCert> {
        let Identity { chain, key } = self.issue(ExtendedKeyUsagePurpose::ServerAuth, "server", &[host]);
        let certified = CertifiedKey::from_der(chain, key, &provider()).unwrap();
        Arc::new(SingleCertAndKey::from(certified))
    }

    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        self.server_config_for("localhost")
    }

    /// Configuration of a server with h2 and HTTP/1.1, and without client certificates.
    pub(crate) fn server_config_for(&self, host: &str) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(self.resolver(host));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }

    pub(crate) fn client_config(&self, alpn: &str) -> ClientConfig {
        self.client_config_of(alpn, rustls::ALL_VERSIONS, None)
    }

    pub(crate) fn client_config_of(
        &self,
        alpn: &str,
        versions: &[&'static rustls::SupportedProtocolVersion],
        identity: Option<&Identity>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(identity) => {
                config.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key()).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        if !alpn.is_empty() {
            config.alpn_protocols = vec![alpn.into()];
        }
        config
    }
}

pub(crate) async fn connect(
    address: SocketAddr,
    config: impl Into<Arc<ClientConfig>>,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(config.into()).connect(name, stream).await
}

pub(crate) struct Http1 {
    pub(crate) stream: TlsStream<TcpStream>,
    received: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn closes(&self) -> bool {
        self.head.contains("\r\nconnection: close\r\n")
    }
}

impl Http1 {
    pub(crate) async fn connect(address: SocketAddr, authority: &Authority) -> io::Result<Self> {
        Self::connect_as(address, authority.client_config("http/1.1")).await
    }

    pub(crate) async fn connect_as(
        address: SocketAddr,
        config: impl Into<Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        Ok(Self { stream: connect(address, config).await?, received: Vec::new() })
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn head(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.received.drain(..end + 4).collect();
                return Ok(String::from_utf8(head).unwrap().to_lowercase());
            }
            self.more().await?;
        }
    }

    pub(crate) async fn answer(&mut self) -> io::Result<Answer> {
        self.answer_to("GET").await
    }

    pub(crate) async fn answer_to(&mut self, method: &str) -> io::Result<Answer> {
        let head = self.head().await?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = match method {
            "HEAD" => 0,
            _ => length.map_or(0, |length| length.parse().unwrap()),
        };
        while self.received.len() < length {
            self.more().await?;
        }
        Ok(Answer { status, head, body: self.received.drain(..length).collect() })
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> io::Result<Answer> {
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        self.send(head + body).await?;
        self.answer().await
    }

    /// Returns `true` if the server closes the connection within `time` without sending anything else.
    pub(crate) async fn ends_within(&mut self, time: Duration) -> bool {
        matches!(tokio::time::timeout(time, self.more()).await, Ok(Err(_)))
    }
}

#[derive(Clone)]
pub(crate) struct Http2 {
    sender: h2::client::SendRequest<Bytes>,
    ended: tokio::sync::watch::Receiver<bool>,
}

impl Http2 {
    pub(crate) async fn connect(address: SocketAddr, authority: &Authority) -> io::Result<Self> {
        Self::connect_as(address, authority, &h2::client::Builder::new()).await
    }

    pub(crate) async fn connect_as(
        address: SocketAddr,
        authority: &Authority,
        settings: &h2::client::Builder,
    ) -> io::Result<Self> {
        let stream = connect(address, authority.client_config("h2")).await?;
        let (sender, connection) = settings.handshake(stream).await.map_err(io::Error::other)?;
        let (end, ended) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            connection.await.ok();
            end.send_replace(true);
        });
        Ok(Self { sender, ended })
    }

    pub(crate) fn request(path: &str) -> http::request::Builder {
        http::Request::builder().method("POST").uri(format!("https://localhost{path}"))
    }

    pub(crate) async fn send(
        &mut self,
        request: http::Request<()>,
        body: &str,
    ) -> Result<(u16, Bytes), h2::Error> {
        let (head, body) = self.exchange(request, body).await?;
        Ok((head.status.as_u16(), body))
    }

    pub(crate) async fn exchange(
        &mut self,
        request: http::Request<()>,
        body: &str,
    ) -> Result<(http::response::Parts, Bytes), h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut stream) = sender.send_request(request, false)?;
        stream.send_data(Bytes::from(body.to_owned()), true)?;
        let (head, mut incoming) = response.await?.into_parts();
        let mut body = Vec::new();
        while let Some(data) = incoming.data().await {
            let data = data?;
            incoming.flow_control().release_capacity(data.len())?;
            body.extend_from_slice(&data);
        }
        Ok((head, body.into()))
    }

    /// Sends a request without a body and leaves it open. Returns the response and the stream of the body.
    pub(crate) async fn open(
        &self,
        path: &str,
    ) -> Result<(h2::client::ResponseFuture, h2::SendStream<Bytes>), h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        sender.send_request(Self::request(path).body(()).unwrap(), false)
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Result<(u16, Bytes), h2::Error> {
        self.send(Self::request(path).body(()).unwrap(), body).await
    }

    pub(crate) async fn ends_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.ended.wait_for(|ended| *ended)).await.is_ok()
    }
}
