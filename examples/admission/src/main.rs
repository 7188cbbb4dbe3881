//! An operator that injects auditor chains into pods and validates them, with Lucid's webhooks in its own router.
//!
//! It runs outside the cluster: `example-admission 127.0.0.1:8443` serves and registers `https://127.0.0.1:8443`.

use std::net::SocketAddr;
use std::sync::Arc;

use lucid_admission::{ChainSettings, ClusterConfiguration, PodInjector, PodValidator, Registrations};
use lucid_audit::Recorder;
use lucid_certs::{Certificates, ServerTls, ServingNames};
use lucid_policy::{Mode, Policy};
use lucid_webhook::operator::Registration;
use lucid_webhook::registration::{Configurations, Endpoint};
use lucid_webhook::{BoxError, Readiness, Router, Server, shutdown_signal};

const NAME: &str = "guard";
const NAMESPACE: &str = "guard-system";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let address: SocketAddr = std::env::args().nth(1).ok_or("expected IP:PORT")?.parse()?;
    let kube = kube::Client::try_default().await?;

    // The cluster's catalogue, chains and namespaces. Requests fail until they have been read once.
    let readiness = Readiness::default();
    let mut policy = Policy::default();
    policy.mode = Mode::Enforce;
    let cluster = ClusterConfiguration::new(ChainSettings::default()).with_policy(policy).with_publishing();
    let synced = cluster.start(kube.clone(), NAMESPACE, readiness.condition("configuration"));

    // Lucid's webhooks.
    let recorder = Arc::new(Recorder::new(1000));
    let registrations = Registrations::new(NAMESPACE);
    let injector = PodInjector::new(registrations.clone(), cluster.clone(), Arc::clone(&recorder));
    let validator = PodValidator::new(registrations.clone(), cluster, recorder);
    let router = validator.mount(injector.mount(Router::new(), kube.clone()), kube.clone());

    // A CA in a Secret that all replicas share, and a registration that trusts it.
    let configurations = Configurations::new(NAME, Endpoint::url(format!("https://{address}")));
    let registration = Registration::new(kube.clone(), configurations, &router)?;
    let names = ServingNames::for_services(NAMESPACE, &[NAME])?.with_host(&address.ip().to_string())?;
    let certificates = Certificates::new(names).with_targets(registration.targets());
    let tls = ServerTls::new(certificates.resolver()).build()?;
    let server = Server::bind(address).await?.with_readiness(readiness);

    synced.wait().await;
    let shutdown = shutdown_signal()?;
    let authority = certificates.self_managed(kube, NAMESPACE, "guard-ca")?;
    tokio::spawn(certificates.run(authority, shutdown.clone()));
    server.serve(tls, router, shutdown).await;
    Ok(())
}
