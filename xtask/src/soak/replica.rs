//! A replica of a server that makes its own certificates, and serves TLS on loopback.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Reporter;
use lucid_certs::target::TrustTarget;
use lucid_certs::{Certificates, SelfManaged, ServerTls, ServingNames, Timing, TrustBundle};
use lucid_e2e::Error;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{self, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::subject::NAMESPACE;

/// Secret of the authority.
pub(super) const SECRET: &str = "soak-ca";

/// Server name of the replicas.
pub(super) const SERVER_NAME: &str = "soak.lucid-system.svc";

/// Time for which a terminating replica keeps serving, so that callers that have just chosen it get an answer.
const LAME_DUCK: Duration = Duration::from_secs(2);

/// Ready replicas, as in a Service, in the order of their start.
pub(super) type Endpoints = watch::Sender<BTreeMap<usize, SocketAddr>>;

pub(super) struct Replica {
    number: usize,
    endpoints: Arc<Endpoints>,
    pub(super) ready: watch::Receiver<bool>,
    tls: Arc<ServerConfig>,
    stop: oneshot::Sender<()>,
    driver: JoinHandle<()>,
    service: JoinHandle<()>,
    server: JoinHandle<()>,
}

/// Way to end a replica.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// Graceful termination.
    Orderly,
    /// Immediate end, at any point.
    Killed,
}

impl Replica {
    pub(super) async fn start(
        number: usize,
        client: Client,
        targets: Vec<Arc<dyn TrustTarget>>,
        timing: Timing,
        endpoints: &Arc<Endpoints>,
    ) -> Result<Self, Error> {
        let names = ServingNames::for_services("lucid-system", &["soak"])?;
        let certificates = Certificates::new(names.clone()).with_targets(targets).with_settle(timing.settle);
        let tls = Arc::new(ServerTls::new(certificates.resolver()).build()?);
        let reporter = Reporter { controller: "soak".to_owned(), instance: Some(number.to_string()) };
        let source = SelfManaged::new(client, NAMESPACE, SECRET, names, reporter).with_timing(timing)?;

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let ready = certificates.ready();
        let service = tokio::spawn(follow(number, address, ready.clone(), Arc::clone(endpoints)));
        let server = tokio::spawn(serve(listener, Arc::clone(&tls).into()));
        let (stop, stopped) = oneshot::channel();
        let driver = tokio::spawn(certificates.run(source, async { drop(stopped.await) }));
        Ok(Self { number, endpoints: Arc::clone(endpoints), ready, tls, stop, driver, service, server })
    }

    /// Returns `true` if `client` trusts the certificate that the replica serves.
    pub(super) async fn is_accepted_by(&self, client: &TlsConnector) -> bool {
        let (near, far) = io::duplex(1 << 16);
        let Ok(name) = ServerName::try_from(SERVER_NAME) else { return false };
        let accepted = TlsAcceptor::from(Arc::clone(&self.tls)).accept(far);
        tokio::try_join!(client.connect(name, near), accepted).is_ok()
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Removes the replica from the Service and ends it.
    pub(super) async fn end(self, end: End) -> Result<(), Error> {
        self.service.abort();
        self.endpoints.send_if_modified(|endpoints| endpoints.remove(&self.number).is_some());
        match end {
            End::Orderly => {
                let _ = self.stop.send(());
                self.driver.await?;
            }
            End::Killed => self.driver.abort(),
        }
        tokio::spawn(async move {
            sleep(LAME_DUCK).await;
            self.server.abort();
        });
        Ok(())
    }
}

/// Acts as the Service: publishes the replicas that report ready.
async fn follow(
    number: usize,
    address: SocketAddr,
    mut ready: watch::Receiver<bool>,
    endpoints: Arc<Endpoints>,
) {
    loop {
        let is_ready = *ready.borrow_and_update();
        endpoints.send_if_modified(|endpoints| {
            if is_ready {
                endpoints.insert(number, address) != Some(address)
            } else {
                endpoints.remove(&number).is_some()
            }
        });
        if ready.changed().await.is_err() {
            return;
        }
    }
}

/// Echoes each byte, on each connection until the peer closes it.
async fn serve(listener: TcpListener, tls: TlsAcceptor) {
    loop {
        let Ok((connection, _)) = listener.accept().await else { continue };
        let accepted = tls.accept(connection);
        tokio::spawn(async move {
            let Ok(Ok(mut connection)) = timeout(Duration::from_secs(10), accepted).await else { return };
            let mut byte = [0];
            while connection.read_exact(&mut byte).await.is_ok() {
                let answer = async {
                    connection.write_all(&byte).await?;
                    connection.flush().await
                };
                if answer.await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Creates a client that trusts only `bundle`.
pub(super) fn trusting(bundle: &TrustBundle) -> Result<TlsConnector, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in bundle.certificates() {
        roots.add(certificate.clone())?;
    }
    let mut client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Each handshake verifies the certificate, as in kube-apiserver.
    client.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(client).into())
}
