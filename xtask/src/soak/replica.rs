//! A replica of a webhook server that makes its own certificates, on loopback.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Reporter;
use lucid_certs::target::ObjectTarget;
use lucid_certs::{Certificates, ServerTls, ServingNames, Timing, TrustBundle};
use lucid_e2e::Error;
use lucid_webhook::{AdmissionResponse, Router, Server, Webhook};
use reqwest::Url;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::call::{call, client, review, trusting};
use super::subject::NAMESPACE;

pub(super) const SECRET: &str = "soak-ca";

const SERVER_NAME: &str = "soak.lucid-system.svc";

/// Time for which a terminating replica keeps serving, so that callers that have just chosen it get a response.
const LAME_DUCK: Duration = Duration::from_secs(2);

/// Ready replicas, as in a Service, in the order of their start.
pub(super) type Endpoints = watch::Sender<BTreeMap<usize, SocketAddr>>;

pub(super) struct Replica {
    number: usize,
    address: SocketAddr,
    endpoints: Arc<Endpoints>,
    pub(super) ready: watch::Receiver<bool>,
    /// Stops the replica when it is dropped.
    stop: watch::Sender<()>,
    driver: JoinHandle<()>,
    service: JoinHandle<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Orderly,
    /// Certificates are left as they are, at any point.
    Killed,
}

impl Replica {
    pub(super) async fn start(
        number: usize,
        client: Client,
        targets: Vec<ObjectTarget>,
        timing: Timing,
        endpoints: &Arc<Endpoints>,
    ) -> Result<Self, Error> {
        let names = ServingNames::for_services("lucid-system", &["soak"])?;
        let certificates = Certificates::new(names).with_targets(targets).with_timing(timing);
        let tls = Arc::new(ServerTls::new(certificates.resolver()).build()?);
        let reporter = Reporter { controller: "soak".to_owned(), instance: Some(number.to_string()) };
        let source = certificates.self_managed(client, NAMESPACE, SECRET)?.with_reporter(reporter);

        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into()).await?.with_lame_duck(LAME_DUCK);
        let address = server.local_addr();
        let allow = async || AdmissionResponse::allow();
        let router = Router::new().webhook("/", Webhook::validating("soak.example.com", allow));
        let ready = certificates.ready();
        let service = tokio::spawn(follow(number, address, ready.clone(), Arc::clone(endpoints)));
        let (stop, stopped) = watch::channel(());
        tokio::spawn(server.serve(tls, router, ended(stopped.clone())));
        let driver = tokio::spawn(certificates.run(source, ended(stopped)));
        Ok(Self { number, address, endpoints: Arc::clone(endpoints), ready, stop, driver, service })
    }

    /// Returns `true` if a client that trusts only `bundle` accepts the certificate that the replica serves.
    pub(super) async fn is_accepted_with(&self, bundle: &TrustBundle) -> Result<bool, Error> {
        let client = client(Some(trusting(bundle)?), 0).resolve(SERVER_NAME, self.address).build()?;
        Ok(call(&client, url(self.address)?, Some(&review())).await.is_ok())
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub(super) async fn end(self, end: End) -> Result<(), Error> {
        self.service.abort();
        self.endpoints.send_if_modified(|endpoints| endpoints.remove(&self.number).is_some());
        if end == End::Killed {
            self.driver.abort();
            return Ok(());
        }
        drop(self.stop);
        Ok(self.driver.await?)
    }
}

async fn ended(mut stopped: watch::Receiver<()>) {
    // Nothing is ever sent: this returns when the sender is dropped.
    let _ = stopped.changed().await;
}

/// URL of a replica's webhook. A client resolves the name to loopback.
pub(super) fn url(address: SocketAddr) -> Result<Url, Error> {
    Ok(Url::parse(&format!("https://{SERVER_NAME}:{}/", address.port()))?)
}

/// Clients that trust only `bundle`: the first one dials for each call, and the second one keeps its connections.
pub(super) fn clients(bundle: &TrustBundle) -> Result<[reqwest::Client; 2], Error> {
    let tls = trusting(bundle)?;
    let client = |idle| {
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        client(Some(tls.clone()), idle).resolve(SERVER_NAME, loopback).build()
    };
    Ok([client(0)?, client(1)?])
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
