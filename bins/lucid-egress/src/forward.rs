//! Forwarding of requests.

use std::{error::Error, time::Duration};

use hyper::{
    Request, Response, StatusCode,
    body::{Body as _, Incoming},
    header::{self, HOST},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

use crate::{
    outside::{InPod, Outside},
    target::{Refusal, Target},
};

/// Maximum size of each buffer of a connection, and of the headers in it.
pub(crate) const BUFFER: usize = 64 * 1024;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Idle timeout of connections. A request sent while the peer closes is lost, so this side closes first: model servers
/// wait for 2 s (gunicorn), 5 s (uvicorn, Node.js) or longer.
const IDLE_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Forward {
    inside: Client<HttpConnector, Incoming>,
    outside: Client<HttpsConnector<Outside>, Incoming>,
}

impl Forward {
    /// Verifies TLS servers with the certificates in `ca`, or with those of the system.
    pub(crate) fn new(ca: Option<&str>) -> Result<Self, Box<dyn Error>> {
        let mut roots = RootCertStore::empty();
        match ca {
            Some(pem) => {
                let unusable = |error: lucid_certs::Error| format!("LUCID_UPSTREAM_CA: {error}");
                for certificate in lucid_certs::certificates_from_pem(pem.as_bytes()).map_err(unusable)? {
                    roots.add(certificate).map_err(|error| format!("LUCID_UPSTREAM_CA: {error}"))?;
                }
            }
            // Without any, only calls by TLS fail.
            None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        }
        let tls = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        // Do not delay pieces of a request.
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_LIMIT));
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let mut client = Client::builder(TokioExecutor::new());
        // Idle connections are closed only with a timer.
        client.pool_idle_timeout(IDLE_LIMIT).pool_timer(TokioTimer::new()).http1_max_buf_size(BUFFER);
        let outside = client.build(tls.wrap_connector(Outside(connector.clone())));
        Ok(Self { inside: client.build(connector), outside })
    }

    /// Sends a request to `target`, with its method, path, query and headers.
    pub(crate) async fn send(
        &self,
        target: &Target,
        request: Request<Incoming>,
    ) -> Result<Response<Incoming>, Refusal> {
        let (mut parts, body) = request.into_parts();
        lucid_proxy::remove_hop_by_hop(&mut parts.headers);
        // The listener has already responded to it.
        parts.headers.remove(header::EXPECT);
        let is_streamed = body.size_hint().exact().is_none();
        lucid_proxy::direct(&mut parts, target.scheme.clone(), target.authority.clone(), is_streamed);
        if let Some(host) = &target.host {
            parts.headers.insert(HOST, host.clone());
        }
        let request = Request::from_parts(parts, body);
        let sent = match target.is_inside {
            true => self.inside.request(request),
            false => self.outside.request(request),
        };
        let mut response = sent.await.map_err(|error| {
            let is_loop = lucid_proxy::causes(&error).any(|cause| cause.is::<InPod>());
            let status = if is_loop { StatusCode::LOOP_DETECTED } else { StatusCode::BAD_GATEWAY };
            let (Target { scheme, authority, .. }, error) = (target, lucid_text::with_causes(&error));
            (status, format!("failed to forward to {scheme}://{authority}: {error}"))
        })?;
        lucid_proxy::remove_hop_by_hop(response.headers_mut());
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn joined_certificates_of_the_upstream_are_an_error() {
        let key = KeyPair::generate().unwrap();
        let pem = CertificateParams::default().self_signed(&key).unwrap().pem();
        Forward::new(Some(&(pem.clone() + &pem))).unwrap();
        let error = Forward::new(Some(&(pem.trim_end().to_owned() + &pem))).unwrap_err().to_string();
        assert!(error.starts_with("LUCID_UPSTREAM_CA: failed to read PEM: line"), "{error}");
    }
}
