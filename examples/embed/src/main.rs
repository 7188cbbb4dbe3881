//! An operator that gives every pod the annotation `tidy.example.com/owner`: whoever has created it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use lucid_certs::target::{ObjectTarget, TrustTarget, Webhooks};
use lucid_certs::{Certificates, SelfManaged, ServerTls, ServingNames};
use lucid_webhook::client::apply;
use lucid_webhook::registration::{Configurations, Endpoint, Rule, parse_selector};
use lucid_webhook::{
    AdminServer, BoxError, Changed, Metrics, Object, Operation, Readiness, Router, Server, UserInfo, Webhook,
};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};

/// Of the Service, the registration, and what is written in our name.
const NAME: &str = "tidy";
const NAMESPACE: &str = "tidy-system";

async fn name_owner(Object(mut pod): Object<Pod>, user: UserInfo) -> Changed<Pod> {
    pod.metadata.annotations.get_or_insert_default().insert("tidy.example.com/owner".into(), user.username);
    Changed(pod)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let client = Client::try_default().await?;
    let mut registry = Registry::default();

    // An authority in a Secret that all replicas share; whom to trust is brought to the registration.
    let names = ServingNames::for_services(NAMESPACE, &[NAME])?;
    // As somebody else than who registers: whoever applies an object takes back what it has applied before.
    let target: Arc<dyn TrustTarget> =
        Arc::new(ObjectTarget::mutating_webhooks(client.clone(), "tidy-trust", NAME, Webhooks::All));
    let certificates = Certificates::new(names.clone())
        .with_targets([target])
        .with_metrics(lucid_certs::metrics::Metrics::new(&mut registry));
    let tls = ServerTls::new(certificates.resolver()).build()?;
    let mut ready = certificates.ready();
    let source = SelfManaged::new(client.clone(), NAMESPACE, "tidy-ca", names, NAME.into());

    let selector = parse_selector("tidy.example.com/enabled=true")?;
    let webhook = Webhook::mutating("owner.tidy.example.com", name_owner).with_registration(|registration| {
        registration.with_rule(Rule::of::<Pod>([Operation::Create])).with_namespace_selector(selector)
    });
    let router = Router::new().webhook("/owner", webhook).with_metrics(Metrics::new(&mut registry));
    let configurations = Configurations::new(NAME, Endpoint::service(NAMESPACE, NAME));
    if let Some(configuration) = configurations.mutating(router.registrations())? {
        apply(client, &configuration, NAME).await?;
    }
    // There is something by now that trust can be brought to.
    tokio::spawn(certificates.run(source, std::future::pending()));

    let readiness = Readiness::default();
    let trusted = readiness.condition("callers trust the certificate");
    let admin = AdminServer::bind(([0, 0, 0, 0], 8080).into()).await?;
    tokio::spawn(admin.serve(readiness, registry));
    tokio::spawn(async move {
        while ready.changed().await.is_ok() {
            trusted.set(*ready.borrow_and_update());
        }
    });

    let mut terminate = signal(SignalKind::terminate())?;
    let asked_to_end = async move { terminate.recv().await.unwrap_or_default() };
    Server::bind(([0, 0, 0, 0], 8443).into()).await?.serve(tls, router, asked_to_end).await;
    Ok(())
}
