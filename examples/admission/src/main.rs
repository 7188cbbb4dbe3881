//! An operator that injects auditor chains into pods and validates them, with Lucid's webhooks in its own router.
//!
//! It runs outside the cluster: `example-admission 127.0.0.1:8443` serves and registers `https://127.0.0.1:8443`.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use lucid_admission::{ClusterConfiguration, Injector, Registrations, Settings, Validator};
use lucid_audit::Recorder;
use lucid_certs::target::{ObjectTarget, TrustTarget, Webhooks};
use lucid_certs::{Certificates, SelfManaged, ServerTls, ServingNames};
use lucid_policy::{Mode, Policy};
use lucid_webhook::registration::{Configurations, Endpoint};
use lucid_webhook::{BoxError, Readiness, Router, Server, client};
use tokio::signal::unix::{SignalKind, signal};

const NAME: &str = "guard";
const NAMESPACE: &str = "guard-system";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let address: SocketAddr = std::env::args().nth(1).ok_or("accepted is IP:PORT")?.parse()?;
    let kube = kube::Client::try_default().await?;

    // The cluster's catalogue, chains and namespaces. Requests fail until they have been read once.
    let readiness = Readiness::default();
    let mut policy = Policy::default();
    policy.mode = Mode::Enforce;
    let cluster = ClusterConfiguration::new(Settings::default()).with_policy(policy).with_publishing();
    let synced = cluster.start(kube.clone(), NAMESPACE, readiness.condition("configuration"));

    // Lucid's webhooks.
    let recorder = Arc::new(Recorder::new(1000));
    let registrations = Registrations::new(NAMESPACE);
    let injector = Injector::new(registrations.clone(), cluster.clone(), Arc::clone(&recorder));
    let validator = Validator::new(registrations.clone(), cluster, recorder);
    let router = validator.serve(injector.serve(Router::new()));

    // A CA in a Secret that all replicas share, and the trust of the API server in it.
    let names = ServingNames::for_services(NAMESPACE, &[NAME])?.with_host(&address.ip().to_string())?;
    let mutating = ObjectTarget::mutating_webhooks(kube.clone(), "guard-trust", NAME, Webhooks::All);
    let validating = ObjectTarget::validating_webhooks(kube.clone(), "guard-trust", NAME, Webhooks::All);
    let targets = [Arc::new(mutating) as Arc<dyn TrustTarget>, Arc::new(validating)];
    let certificates = Certificates::new(names.clone()).with_targets(targets);
    let tls = ServerTls::new(certificates.resolver()).build()?;
    let server = Server::bind(address).await?.with_readiness(readiness);

    synced.wait().await;
    let configurations = Configurations::new(NAME, Endpoint::Url(format!("https://{address}")));
    let (mutating, validating) = registrations.configurations(&configurations)?;
    client::apply(kube.clone(), &mutating, NAME).await?;
    client::apply(kube.clone(), &validating, NAME).await?;

    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move { terminate.recv().await.unwrap_or_default() }.shared();
    tokio::spawn(
        certificates.run(SelfManaged::new(kube, NAMESPACE, "guard-ca", names, NAME.into()), stop.clone()),
    );
    server.serve(tls, router, stop).await;
    Ok(())
}
