//! kube-apiserver's client: kept-alive HTTP/1.1 connections, over TLS 1.3 if there is a CA.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout_at};
use tokio_rustls::TlsConnector;

use crate::review::{Review, UID_LENGTH, pod_of};
use crate::{Outcome, Target};

/// Default `timeoutSeconds` of kube-apiserver, which includes the time to connect.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections that its client keeps.
const KEPT: usize = 25;
/// Default maximum of concurrent mutating requests in kube-apiserver.
const CONCURRENCY: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Dial,
    /// The connection ended before the response; a POST is not sent twice.
    Broken,
    /// 429 or 5xx with `Retry-After` in seconds, after which kube-apiserver retries.
    Busy(u8),
    Status,
    WrongAnswer,
    /// No response within the time that the API server waits.
    Timeout,
}

impl Failure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dial => "dial failed",
            Self::Broken => "connection lost",
            Self::Busy(_) => "busy",
            Self::Status => "not HTTP 200",
            Self::WrongAnswer => "wrong response",
            Self::Timeout => "timeout",
        }
    }
}

pub(crate) struct Call {
    /// Time at which it was due; its latency counts from here.
    pub(crate) scheduled: Instant,
    pub(crate) ended: Instant,
    pub(crate) failure: Option<Failure>,
}

type Connection = SendRequest<Full<Bytes>>;

pub(crate) struct Caller {
    tls: Option<TlsConnector>,
    name: ServerName<'static>,
    uri: String,
    review: Review,
    expected: Expected,
    endpoints: RefCell<Vec<SocketAddr>>,
    dialled: Cell<usize>,
    /// The connection used last is used next, as in Go.
    idle: RefCell<Vec<Connection>>,
    kept: Cell<usize>,
    slots: Semaphore,
}

impl Caller {
    pub(crate) fn new(target: Target) -> Outcome<Self> {
        let pod = target.pod.map(std::fs::read_to_string).transpose()?;
        let pod = pod.map(|pod| serde_json::from_str(&pod)).transpose()?;
        let review = Review::new(pod.unwrap_or_else(|| pod_of(target.body)), target.body);
        let review = review.ok_or("the review has no uid")?;
        Ok(Self {
            tls: target.ca.map(|ca| tls(&ca)).transpose()?,
            name: ServerName::try_from(target.name)?,
            uri: format!("{}?timeout=10s", target.path),
            review,
            expected: Expected { allowed: target.allowed, uid: target.check_uid },
            endpoints: RefCell::new(target.endpoint),
            dialled: Cell::new(0),
            idle: RefCell::default(),
            kept: Cell::new(KEPT),
            slots: Semaphore::new(CONCURRENCY),
        })
    }

    /// Opens `count` connections, which are all kept.
    pub(crate) async fn connect(&self, count: usize) -> Outcome<()> {
        self.kept.set(self.kept.get().max(count));
        for _ in 0..count {
            let connection = self.dial().await?;
            self.idle.borrow_mut().push(connection);
        }
        Ok(())
    }

    /// Sets the endpoints of new connections. Existing connections stay.
    pub(crate) fn set_endpoints(&self, endpoints: Vec<SocketAddr>) {
        self.endpoints.replace(endpoints);
    }

    pub(crate) async fn call(&self, scheduled: Instant) -> Call {
        self.call_within(scheduled, TIMEOUT).await
    }

    pub(crate) async fn call_within(&self, scheduled: Instant, timeout: Duration) -> Call {
        let deadline = scheduled + timeout;
        let outcome = timeout_at(deadline.into(), async {
            let _slot = self.slots.acquire().await;
            loop {
                match self.exchange().await {
                    Err(Failure::Busy(seconds)) => {
                        let pause = Duration::from_secs(seconds.into());
                        if Instant::now() + pause >= deadline {
                            return Err(Failure::Busy(seconds));
                        }
                        sleep(pause).await;
                    }
                    outcome => return outcome,
                }
            }
        });
        let failure = outcome.await.unwrap_or(Err(Failure::Timeout)).err();
        Call { scheduled, ended: Instant::now(), failure }
    }

    async fn exchange(&self) -> Result<(), Failure> {
        let mut connection = match self.take_idle().await {
            Some(connection) => connection,
            None => self.dial().await.map_err(|_| Failure::Dial)?,
        };
        let (uid, body) = self.review.next();
        let request = Request::post(self.uri.as_str())
            .header(HOST, "webhook.shop.svc:443")
            .header(USER_AGENT, "kube-apiserver-admission")
            .header(ACCEPT, "application/json, */*")
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT_ENCODING, "gzip")
            .body(Full::new(body));
        let request = request.map_err(|_| Failure::Broken)?;
        let response = connection.send_request(request).await.map_err(|_| Failure::Broken)?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|_| Failure::Broken)?.to_bytes();
        if self.idle.borrow().len() < self.kept.get() {
            self.idle.borrow_mut().push(connection);
        }
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        self.expected.check(head.status, retry_after, &body, &uid)
    }

    async fn take_idle(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            // Fails if the server has closed the connection.
            if connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    async fn dial(&self) -> Outcome<Connection> {
        let endpoint = {
            let endpoints = self.endpoints.borrow();
            let number = self.dialled.replace(self.dialled.get() + 1);
            *endpoints.get(number % endpoints.len().max(1)).ok_or("there is no endpoint")?
        };
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            Some(tls) => connection(tls.connect(self.name.clone(), stream).await?).await,
            None => connection(stream).await,
        }
    }

    /// Opens a streamed chat completion on a connection of its own.
    pub(crate) async fn stream(&self) -> Outcome<Incoming> {
        const CHAT: &str =
            r#"{"model":"bench","stream":true,"messages":[{"role":"user","content":"Describe the river."}]}"#;
        let request = Request::post(self.uri.as_str())
            .header(HOST, "model.shop.svc")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(CHAT))?;
        let response = self.dial().await?.send_request(request).await?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(format!("the response to a stream has status {status}").into()),
        }
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Outcome<Connection> {
    let (connection, driver) = handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(driver);
    Ok(connection)
}

#[derive(Clone, Copy)]
struct Expected {
    allowed: bool,
    uid: bool,
}

impl Expected {
    fn check(
        self,
        status: StatusCode,
        retry_after: Option<&str>,
        body: &[u8],
        uid: &[u8; UID_LENGTH],
    ) -> Result<(), Failure> {
        let contains = |text: &[u8]| memchr::memmem::find(body, text).is_some();
        let verdict: &[u8] = if self.allowed { b"\"allowed\":true" } else { b"\"allowed\":false" };
        match status.as_u16() {
            200 if contains(verdict) && (!self.uid || contains(uid)) => Ok(()),
            200 => Err(Failure::WrongAnswer),
            429 | 500.. => {
                let seconds = retry_after.and_then(|text| text.parse().ok());
                Err(seconds.map_or(Failure::Status, Failure::Busy))
            }
            _ => Err(Failure::Status),
        }
    }
}

/// Mimics kube-apiserver (Go's crypto/tls): TLS 1.3, AES-128 first, hybrid key exchange, ALPN http/1.1, no session
/// resumption.
fn tls(ca: &Path) -> Outcome<TlsConnector> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider.kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1];
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca)? {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(tls).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_verdict_with_the_uid_counts() {
        let uid = [b'7'; UID_LENGTH];
        let right = format!(r#"{{"uid":"{}","allowed":true}}"#, "7".repeat(UID_LENGTH));
        let denied = right.replace("true", "false");
        for (allowed, status, retry_after, body, expected) in [
            (true, 200, None, right.as_str(), Ok(())),
            (true, 200, None, r#"{"uid":"8","allowed":true}"#, Err(Failure::WrongAnswer)),
            (true, 200, None, &denied, Err(Failure::WrongAnswer)),
            (true, 429, None, &right, Err(Failure::Status)),
            (true, 429, Some("1"), "", Err(Failure::Busy(1))),
            (true, 404, Some("1"), &right, Err(Failure::Status)),
            (true, 200, None, "", Err(Failure::WrongAnswer)),
            (false, 200, None, &denied, Ok(())),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let outcome = Expected { allowed, uid: true }.check(status, retry_after, body.as_bytes(), &uid);
            assert_eq!(outcome, expected, "{status} {body}");
        }
    }
}
