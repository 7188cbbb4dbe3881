//! Renewal of a certificate while connections are open.

use std::future::pending;
use std::path::Path;
use std::time::Duration;

use lucid_certs::source::FileSource;
use lucid_certs::{Certificates, ServerTls, ServingNames};
use lucid_e2e::eventually;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;
use tokio::time::timeout;
use tower::service_fn;

use crate::server_under_test::{TestServer, echo};
use crate::wire::{self, Authority};

/// Much longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn renew(authority: &Authority, folder: &Path) -> CertificateDer<'static> {
    let identity = authority.issue(ExtendedKeyUsagePurpose::ServerAuth, "server", &["localhost"]);
    identity.write(folder);
    identity.chain[0].clone()
}

async fn shown(server: &TestServer) -> CertificateDer<'static> {
    let stream = wire::connect(server.address, server.authority.client_config("")).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn renewed_certificates_apply_to_new_connections() {
    let (authority, folder) = (Authority::new(), TempDir::new().unwrap());
    let mut certificate = renew(&authority, folder.path());
    let certificates = Certificates::new(ServingNames::for_hosts(&["localhost"]).unwrap());
    let tls = ServerTls::new(certificates.resolver()).build().unwrap();
    let mut ready = certificates.ready();
    tokio::spawn(certificates.run(FileSource::in_directory(folder.path()), pending()));
    timeout(PATIENCE, ready.wait_for(|ready| *ready)).await.expect("it has no certificate").unwrap();

    let server = TestServer::with_tls(authority, Some(tls.into()), service_fn(echo), |it| it).await;
    let (mut http1, mut http2) = (server.http1().await, server.http2().await);
    for _ in 0..2 {
        assert_eq!(shown(&server).await, certificate);
        certificate = renew(&server.authority, folder.path());
        let is_shown = async || shown(&server).await == certificate;
        eventually("the new certificate is shown", is_shown).await;
        let answer = http1.post("/", "1").await.unwrap();
        assert!(answer.status == 200 && !answer.closes(), "{answer:?}");
        assert_eq!(http2.post("/", "2").await.unwrap().0, 200);
    }
}
