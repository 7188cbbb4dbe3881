//! Where a webhook is called, and what is served there.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use super::report::{Check, Status, Unread};

const CHECK: &str = "endpoints";
/// How long a connection and its handshake may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where the API server calls a webhook.
pub(super) struct Endpoint {
    /// What it calls the server, which the certificate is to be for.
    pub(super) name: String,
    /// Where that leads: `host:port`.
    pub(super) addresses: Vec<String>,
    /// What was found of a Service; nothing is of a URL.
    pub(super) check: Option<Check>,
}

impl Endpoint {
    /// Of a `clientConfig`.
    pub(super) async fn of(client: &Client, client_config: &Value) -> Self {
        let service = &client_config["service"];
        match (service["namespace"].as_str(), service["name"].as_str()) {
            (Some(namespace), Some(name)) => {
                let port = service["port"].as_i64().unwrap_or(443);
                let (addresses, check) = of_service(client, namespace, name, port).await;
                let check = Some(check.of(format!("Service {namespace}/{name}")));
                Self { name: format!("{name}.{namespace}.svc"), addresses, check }
            }
            _ => {
                let url = client_config["url"].as_str().unwrap_or_default();
                let (name, address) = of_url(url).unwrap_or_default();
                Self { name, addresses: vec![address], check: None }
            }
        }
    }
}

fn of_url(url: &str) -> Option<(String, String)> {
    let url: Url = url.parse().ok()?;
    let host = url.host_str()?;
    let name = host.trim_start_matches('[').trim_end_matches(']');
    Some((name.to_owned(), format!("{host}:{}", url.port_or_known_default()?)))
}

async fn of_service(client: &Client, namespace: &str, name: &str, port: i64) -> (Vec<String>, Check) {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = match services.get_opt(name).await {
        Ok(Some(service)) => service,
        Ok(None) => {
            let check =
                Check::new(CHECK, Status::Failed, "the webhook is registered for it, and it is not there");
            return (Vec::new(), check.action("lucid-operator manifests | kubectl apply -f -"));
        }
        Err(error) => {
            let right = format!("get services in namespace {namespace}");
            return (Vec::new(), Check::unread(CHECK, &Unread::of(&error, right)));
        }
    };
    let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
    let Some(found) = ports.into_iter().find(|it| i64::from(it.port) == port) else {
        let check = Check::new(
            CHECK,
            Status::Failed,
            format!("it has no port {port}, which the webhook is registered for"),
        );
        return (Vec::new(), check.action("lucid-operator manifests | kubectl apply -f -"));
    };
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    let slices = match slices.list(&of_service).await {
        Ok(slices) => slices,
        Err(error) => {
            let right = format!("list endpointslices in namespace {namespace}");
            return (Vec::new(), Check::unread(CHECK, &Unread::of(&error, right)));
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
            // Whether it is ready may be left out, which means yes.
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
        (0, 0) => Check::new(CHECK, Status::Failed, "it has no endpoints: nobody answers").action(format!(
            "kubectl -n {namespace} get pods: does one carry the labels of the Service's selector?"
        )),
        (0, waiting) => {
            Check::new(CHECK, Status::Failed, format!("no endpoint is ready of {waiting}: nobody answers"))
                .action(format!("kubectl -n {namespace} describe pods, and their logs"))
        }
        (ready, 0) => Check::new(CHECK, Status::Ok, format!("ready endpoints: {ready}")),
        (ready, waiting) => {
            Check::new(CHECK, Status::Warning, format!("ready endpoints: {ready}, not ready: {waiting}"))
        }
    };
    (addresses, check)
}

/// The certificates that are shown at `address`, the server's own first.
pub(super) async fn shown(address: &str, name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let look = Arc::new(Look { seen: Mutex::default(), provider: aws_lc_rs::default_provider() });
    let provider = Arc::new(look.provider.clone());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.dangerous();
    let verifier: Arc<dyn ServerCertVerifier> = Arc::clone(&look) as _;
    let config = config.with_custom_certificate_verifier(verifier).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let connect = async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        // Who asks for a certificate of ours may refuse us afterwards: its own was seen.
        let seen = look.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (connected, seen.is_empty()) {
            (Err(error), true) => Err(error.to_string()),
            _ => Ok(seen),
        }
    };
    timeout(PATIENCE, connect)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

/// Accepts whatever is shown, for it is looked at and nothing is sent.
#[derive(Debug)]
struct Look {
    seen: Mutex<Vec<CertificateDer<'static>>>,
    provider: CryptoProvider,
}

impl ServerCertVerifier for Look {
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
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_url_gives_the_name_of_the_certificate_and_the_address() {
        for (url, name, address) in [
            ("https://127.0.0.1:8443/mutate", "127.0.0.1", "127.0.0.1:8443"),
            ("https://hooks.example/mutate", "hooks.example", "hooks.example:443"),
            ("https://[::1]:8443/", "::1", "[::1]:8443"),
        ] {
            assert_eq!(super::of_url(url), Some((name.to_owned(), address.to_owned())));
        }
    }
}
