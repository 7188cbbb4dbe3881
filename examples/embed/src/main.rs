//! An operator that gives every pod the annotation `tidy.example.com/owner`: whoever has created it.

use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use lucid_certs::target::{ObjectTarget, TrustTarget, Webhooks};
use lucid_certs::{Certificates, SelfManaged, ServerTls, ServingNames};
use lucid_webhook::registration::{Configurations, Endpoint, Rule, parse_selector};
use lucid_webhook::{
    AdminServer, BoxError, Changed, Metrics, Object, Operation, Readiness, Router, Server, UserInfo, Webhook,
};
use tokio::signal::unix::{SignalKind, signal};

const NAME: &str = "tidy";
const NAMESPACE: &str = "tidy-system";

async fn name_owner(Object(mut pod): Object<Pod>, user: UserInfo) -> Changed<Pod> {
    pod.metadata.annotations.get_or_insert_default().insert("tidy.example.com/owner".into(), user.username);
    Changed(pod)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let client = kube::Client::try_default().await?;
    let mut registry = prometheus_client::registry::Registry::default();

    // An authority in a Secret that all replicas share. Whom to trust comes to the registration by a field manager of its own.
    let names = ServingNames::for_services(NAMESPACE, &[NAME])?;
    let target = ObjectTarget::mutating_webhooks(client.clone(), "tidy-trust", NAME, Webhooks::All);
    let certificates = Certificates::new(names.clone())
        .with_targets([Arc::new(target) as Arc<dyn TrustTarget>])
        .with_metrics(lucid_certs::metrics::Metrics::new(&mut registry));
    let tls = ServerTls::new(certificates.resolver()).build()?;

    let selector = parse_selector("tidy.example.com/enabled=true")?;
    let webhook = Webhook::mutating("owner.tidy.example.com", name_owner).with_registration(|registration| {
        registration.with_rule(Rule::of::<Pod>([Operation::Create])).with_namespace_selector(selector)
    });
    let router = Router::new().webhook("/owner", webhook).with_metrics(Metrics::new(&mut registry));
    // Before the API server hears of the webhook: whoever fails to get a port leaves no registration behind.
    let admin = AdminServer::bind(([0, 0, 0, 0], 8080).into()).await?;
    let readiness = Readiness::default();
    let server = Server::bind(([0, 0, 0, 0], 8443).into()).await?.with_readiness(readiness.clone());
    let configurations = Configurations::new(NAME, Endpoint::service(NAMESPACE, NAME));
    if let Some(configuration) = configurations.mutating(router.registrations())? {
        lucid_webhook::client::apply(client.clone(), &configuration, NAME).await?;
    }

    // After SIGTERM this replica stops writing and is not ready, but still answers requests.
    let mut terminate = signal(SignalKind::terminate())?;
    let asked_to_end = async move { terminate.recv().await.unwrap_or_default() }.shared();
    tokio::spawn(readiness.condition("callers trust the certificate").follow(certificates.ready()));
    let source = SelfManaged::new(client, NAMESPACE, "tidy-ca", names, NAME.into());
    tokio::spawn(certificates.run(source, asked_to_end.clone()));
    tokio::spawn(admin.serve(readiness, registry));
    server.serve(tls, router, asked_to_end).await;
    Ok(())
}
