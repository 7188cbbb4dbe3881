//! Calls of an admission webhook, as kube-apiserver makes them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lucid_certs::TrustBundle;
use lucid_e2e::Error;
use reqwest::{Client, ClientBuilder, Url};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;

/// Default timeout of a webhook call (`timeoutSeconds`).
const TIMEOUT: Duration = Duration::from_secs(10);

/// Trusts only `bundle`, and verifies the certificate in each handshake, as kube-apiserver does.
pub(super) fn trusting(bundle: &TrustBundle) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in bundle.certificates() {
        roots.add(certificate.clone())?;
    }
    let mut tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.resumption = rustls::client::Resumption::disabled();
    Ok(tls)
}

/// Configures a client that keeps up to `idle` connections to a server open.
pub(super) fn client(tls: Option<ClientConfig>, idle: usize) -> ClientBuilder {
    let client = Client::builder().no_proxy().pool_max_idle_per_host(idle).timeout(TIMEOUT);
    match tls {
        Some(tls) => client.tls_backend_preconfigured(tls),
        None => client,
    }
}

pub(super) fn review() -> String {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "soak",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "soak"},
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
            },
        },
    });
    review.to_string()
}

pub(super) fn address(url: &str) -> Result<SocketAddr, Error> {
    let address = Url::parse(url)?.socket_addrs(|| None)?.first().copied();
    Ok(address.ok_or_else(|| format!("{url} has no address"))?)
}

/// Posts the review and expects it to be allowed; without a review, gets the URL.
pub(super) async fn call(client: &Client, url: Url, review: Option<&str>) -> Result<(), Error> {
    let request = match review {
        Some(review) => client.post(url).header("content-type", "application/json").body(review.to_owned()),
        None => client.get(url),
    };
    let response = request.send().await?.error_for_status()?.text().await?;
    let is_good = review.is_none() || response.contains("\"allowed\":true");
    if is_good { Ok(()) } else { Err(format!("an unexpected response: {response}").into()) }
}
