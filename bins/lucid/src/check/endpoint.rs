//! Checks the endpoints of a webhook.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;

use super::report::{Check, Unread};

const CHECK: &str = "endpoints";
const TIMEOUT: Duration = Duration::from_secs(10);
const RESPONSE_BYTES: u64 = 1024;

pub(super) struct Endpoint {
    /// Server name that the certificate must match.
    pub(super) name: String,
    /// Resolved addresses, as `host:port`.
    pub(super) addresses: Vec<String>,
    pub(super) path: String,
    /// Result for a Service; `None` for a URL.
    pub(super) check: Option<Check>,
}

impl Endpoint {
    pub(super) async fn of(client: &Client, client_config: &Value) -> Self {
        let service = &client_config["service"];
        match (service["namespace"].as_str(), service["name"].as_str()) {
            (Some(namespace), Some(name)) => {
                let port = service["port"].as_i64().unwrap_or(443);
                let (addresses, check) = of_service(client, namespace, name, port).await;
                let check = Some(check.of(format!("Service {namespace}/{name}")));
                let path = service["path"].as_str().unwrap_or("/").to_owned();
                Self { name: format!("{name}.{namespace}.svc"), addresses, path, check }
            }
            _ => {
                let url = client_config["url"].as_str().unwrap_or_default();
                let (name, address, path) = of_url(url).unwrap_or_default();
                Self { name, addresses: vec![address], path, check: None }
            }
        }
    }

    /// Sends an HTTP request without a client certificate and without a body to each address. Returns the beginnings of
    /// the responses.
    pub(super) async fn ask_each(&self, method: &str, path: &str) -> Vec<(&str, Response)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\
             connection: close\r\n\r\n",
            self.name
        );
        let ask = async |address| (address, anonymous_request(address, &self.name, &request).await);
        join_all(self.addresses.iter().map(|address| ask(address.as_str()))).await
    }
}

fn of_url(url: &str) -> Option<(String, String, String)> {
    let url: Url = url.parse().ok()?;
    let host = url.host_str()?;
    let name = host.trim_start_matches('[').trim_end_matches(']');
    Some((name.to_owned(), format!("{host}:{}", url.port_or_known_default()?), url.path().to_owned()))
}

async fn of_service(client: &Client, namespace: &str, name: &str, port: i64) -> (Vec<String>, Check) {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = match services.get_opt(name).await {
        Ok(Some(service)) => service,
        Ok(None) => {
            let check = Check::failed(CHECK, "not found, but the webhook is registered for it");
            return (Vec::new(), check.action("lucid manifests | kubectl apply -f -"));
        }
        Err(error) => {
            let permission = format!("get services in namespace {namespace}");
            return (Vec::new(), Check::unread(CHECK, &Unread::of(&error, permission)));
        }
    };
    let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
    let Some(found) = ports.into_iter().find(|it| i64::from(it.port) == port) else {
        let check = Check::failed(CHECK, format!("no port {port}, for which the webhook is registered"));
        return (Vec::new(), check.action("lucid manifests | kubectl apply -f -"));
    };
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    let slices = match slices.list(&of_service).await {
        Ok(slices) => slices,
        Err(error) => {
            let permission = format!("list endpointslices in namespace {namespace}");
            return (Vec::new(), Check::unread(CHECK, &Unread::of(&error, permission)));
        }
    };
    let (mut addresses, mut waiting) = (Vec::new(), 0);
    for slice in slices {
        let by_name = |it: &&k8s_openapi::api::discovery::v1::EndpointPort| {
            it.name.as_deref().unwrap_or_default() == found.name.as_deref().unwrap_or_default()
        };
        let number = slice.ports.iter().flatten().find(by_name).and_then(|it| it.port);
        let number = number.or(match &found.target_port {
            Some(IntOrString::Int(number)) => Some(*number),
            _ => None,
        });
        for endpoint in slice.endpoints.into_iter().flatten() {
            // A missing `ready` means ready.
            let is_ready = endpoint.conditions.and_then(|it| it.ready).unwrap_or(true);
            match (is_ready, number) {
                (true, Some(number)) => {
                    addresses.extend(endpoint.addresses.iter().map(|it| match it.parse() {
                        Ok(ip) => SocketAddr::new(ip, u16::try_from(number).unwrap_or_default()).to_string(),
                        Err(_) => format!("{it}:{number}"),
                    }))
                }
                _ => waiting += 1,
            }
        }
    }
    addresses.sort();
    addresses.dedup();
    let check = match (addresses.len(), waiting) {
        (0, 0) => Check::failed(CHECK, "no endpoints").action(format!(
            "kubectl -n {namespace} get pods: check that one matches the Service's selector"
        )),
        (0, waiting) => Check::failed(CHECK, format!("0 of {waiting} endpoints ready"))
            .action(format!("kubectl -n {namespace} describe pods, and read their logs")),
        (ready, 0) => Check::ok(CHECK, format!("{ready} of {ready} endpoints ready")),
        (ready, waiting) => Check::warning(CHECK, format!("{ready} of {} endpoints ready", ready + waiting)),
    };
    (addresses, check)
}

/// Returns the certificates that the server at `address` presents, leaf first.
pub(super) async fn presented_chain(
    address: &str,
    name: &str,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let connect = async {
        let (connected, seen) = connect(address, name).await?;
        // A server that requires a client certificate may close the connection after it has presented its own.
        match (connected, seen.is_empty()) {
            (Err(error), true) => Err(error),
            _ => Ok(seen),
        }
    };
    with_timeout(connect).await
}

/// Status and body of a server's response.
pub(super) type Response = Result<(u16, String), String>;

async fn anonymous_request(address: &str, name: &str, request: &str) -> Response {
    let call = async {
        let mut stream = connect(address, name).await?.0?;
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut response = Vec::new();
        let read = stream.take(RESPONSE_BYTES).read_to_end(&mut response).await;
        // Servers may close the connection without a TLS alert.
        read.or_else(|error| if response.is_empty() { Err(error.to_string()) } else { Ok(0) })?;
        let response = String::from_utf8_lossy(&response);
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| "the response is not HTTP".to_owned())?;
        Ok((status, body.to_owned()))
    };
    with_timeout(call).await
}

async fn with_timeout<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    timeout(TIMEOUT, work).await.unwrap_or_else(|_| Err(format!("timed out after {} s", TIMEOUT.as_secs())))
}

/// Connects without a client certificate, and returns the certificates that the server presents.
async fn connect(
    address: &str,
    name: &str,
) -> Result<(Result<TlsStream<TcpStream>, String>, Vec<CertificateDer<'static>>), String> {
    let provider = aws_lc_rs::default_provider();
    let algorithms = provider.signature_verification_algorithms;
    let recorder = Arc::new(Recorder { seen: Mutex::default(), algorithms });
    let config = ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.dangerous();
    let verifier: Arc<dyn ServerCertVerifier> = Arc::clone(&recorder) as _;
    let config = config.with_custom_certificate_verifier(verifier).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let seen = recorder.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((connected.map_err(|error| error.to_string()), seen))
}

/// Accepts any certificate and records it. The connection carries no data worth protecting.
#[derive(Debug)]
struct Recorder {
    seen: Mutex<Vec<CertificateDer<'static>>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let all = std::iter::once(end_entity).chain(intermediates);
        let all = all.map(|it| it.clone().into_owned()).collect();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = all;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn certificate_name_and_address_come_from_the_url() {
        for (url, name, address, path) in [
            ("https://127.0.0.1:8443/mutate", "127.0.0.1", "127.0.0.1:8443", "/mutate"),
            ("https://hooks.example/mutate", "hooks.example", "hooks.example:443", "/mutate"),
            ("https://[::1]:8443/", "::1", "[::1]:8443", "/"),
        ] {
            assert_eq!(super::of_url(url), Some((name.to_owned(), address.to_owned(), path.to_owned())));
        }
    }
}
