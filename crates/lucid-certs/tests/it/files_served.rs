//! Certificates in files: handshakes and log messages.

use std::{fs, future::pending, path::Path, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use lucid_certs::{Certificates, Fingerprint, ServerTls, ServingNames, source::FileSource};
use lucid_e2e::eventually;
use prometheus_client::registry::Registry;
use rustls::{AlertDescription, Error, ServerConfig, version::TLS13};
use tempfile::TempDir;
use tokio::{sync::watch, time::timeout};

use crate::common::{
    TIMEOUT,
    handshake::{client, connect, refusal},
    log::Log,
    metric,
    pairs::Pair,
};

const NAME: &str = "lucid-operator.lucid-system.svc";

/// Number of failed reads after which a repeated log message would have shown.
const READS: u64 = 3;

struct Scene {
    folder: TempDir,
    server: Arc<ServerConfig>,
    ready: watch::Receiver<bool>,
    first_certificate: BoxFuture<'static, ()>,
    registry: Registry,
    log: Log,
}

impl Scene {
    fn start(lay: impl FnOnce(&Path)) -> Self {
        let log = Log::begin();
        let folder = tempfile::tempdir().unwrap();
        lay(folder.path());
        let mut registry = Registry::default();
        let certificates =
            Certificates::new(ServingNames::for_hosts(&[NAME]).unwrap()).with_metrics(&mut registry);
        let server = Arc::new(ServerTls::new(certificates.resolver()).build().unwrap());
        let ready = certificates.ready();
        let first_certificate = certificates.first_certificate().boxed();
        tokio::spawn(certificates.run(FileSource::in_directory(folder.path()), pending()));
        Self { folder, server, ready, first_certificate, registry, log }
    }

    /// Replaces a file atomically, so that the source never reads a partial one.
    fn put(&self, name: &str, content: &str) {
        let path = |name| self.folder.path().join(name);
        fs::write(path("new"), content).unwrap();
        fs::rename(path("new"), path(name)).unwrap();
    }

    /// Returns the certificate of a new connection; `pairs` are the candidates.
    fn shown(&self, pairs: &[Pair]) -> Fingerprint {
        let bundle = pairs.iter().map(Pair::bundle).reduce(|all, bundle| all.merge(&bundle)).unwrap();
        let (client, _) = connect(&client(&bundle, &TLS13), &self.server, NAME).unwrap();
        Fingerprint::of(&client.peer_certificates().unwrap()[0])
    }

    fn refusals(&self) -> u64 {
        metric(&self.registry, "certificate_reloads_total{source=\"files\",result=\"refused\"")
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        eventually(what, async || if holds() { Ok(()) } else { Err(self.log.text()) }).await;
    }

    async fn is_logged_once(&self, says: &str) {
        self.until(says, || self.log.lines(says) > 0).await;
        let before = self.refusals();
        self.until("further reads", || self.refusals() >= before + READS).await;
        assert_eq!(self.log.lines(says), 1, "{}", self.log.text());
    }
}

#[tokio::test]
async fn problems_are_logged_once_and_the_last_certificate_is_kept() {
    let pairs = Pair::several::<2>();
    let [first, other] = &pairs;
    let mut scene = Scene::start(|folder| first.write(folder));
    timeout(TIMEOUT, scene.ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
    let whole = &first.certificate;
    for (content, says) in [
        (&whole[..whole.len() / 2], "tls.crt: failed to read the certificate"),
        (&other.certificate, "failed to match the private key with the certificate"),
    ] {
        let mended = scene.log.lines("the source works again");
        scene.put("tls.crt", content);
        scene.is_logged_once(says).await;
        assert_eq!(scene.log.lines("; the certificate in service stays"), mended + 1);
        assert_eq!(scene.shown(&pairs), first.fingerprint);
        assert!(*scene.ready.borrow());
        scene.put("tls.crt", whole);
        scene.until("mended", || scene.log.lines("the source works again") == mended + 1).await;
    }
    other.write(scene.folder.path());
    scene.until("the other", || scene.shown(&pairs) == other.fingerprint).await;
}

#[tokio::test]
async fn missing_files_are_logged_and_picked_up_later() {
    let pair = Pair::new();
    let mut scene = Scene::start(|_| ());
    let path = scene.folder.path().join("tls.crt");
    let says =
        format!("failed to read {}: there is no such file; no certificate is in service yet", path.display());
    scene.is_logged_once(&says).await;
    assert!(!*scene.ready.borrow());
    assert_eq!((&mut scene.first_certificate).now_or_never(), None);
    let error = refusal(&client(&pair.bundle(), &TLS13), &scene.server, NAME);
    assert_eq!(error, Error::AlertReceived(AlertDescription::AccessDenied));

    pair.write(scene.folder.path());
    timeout(TIMEOUT, &mut scene.first_certificate).await.unwrap();
    timeout(TIMEOUT, scene.ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
    assert_eq!(scene.shown(std::slice::from_ref(&pair)), pair.fingerprint);
}
