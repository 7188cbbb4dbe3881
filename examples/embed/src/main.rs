//! An operator that gives every pod the annotation `tidy.example.com/owner`: the user who created it. It also defines
//! [`teams`].

mod teams;

use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::operator::Operator;
use lucid_webhook::registration::parse_selector;
use lucid_webhook::{BoxError, Changed, Object, Operation, Router, UserInfo, Webhook, shutdown_signal};

async fn name_owner(Object(mut pod): Object<Pod>, user: UserInfo) -> Changed<Pod> {
    pod.metadata.annotations.get_or_insert_default().insert("tidy.example.com/owner".into(), user.username);
    Changed::new(pod)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let selector = parse_selector("tidy.example.com/enabled=true")?;
    let webhook = Webhook::defaulting::<Pod>("owner.tidy.example.com", [Operation::Create], name_owner)
        .with_registration(|registration| registration.with_namespace_selector(selector));
    let client = kube::Client::try_default().await?;
    let router = teams::serve(Router::new().webhook("/owner", webhook), client.clone())?;
    Operator::new("tidy", "tidy-system", router).run(client, shutdown_signal()?).await
}
