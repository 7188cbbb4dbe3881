//! An operator that gives every pod the annotation `tidy.example.com/owner`: whoever has created it.

use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::operator::Operator;
use lucid_webhook::registration::{Rule, parse_selector};
use lucid_webhook::{BoxError, Changed, Object, Operation, Router, UserInfo, Webhook, shutdown_signal};

async fn name_owner(Object(mut pod): Object<Pod>, user: UserInfo) -> Changed<Pod> {
    pod.metadata.annotations.get_or_insert_default().insert("tidy.example.com/owner".into(), user.username);
    Changed::new(pod)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let selector = parse_selector("tidy.example.com/enabled=true")?;
    let webhook = Webhook::mutating("owner.tidy.example.com", name_owner).with_registration(|registration| {
        registration.with_rule(Rule::of::<Pod>([Operation::Create])).with_namespace_selector(selector)
    });
    let router = Router::new().webhook("/owner", webhook);
    let client = kube::Client::try_default().await?;
    Operator::new("tidy", "tidy-system", router).run(client, shutdown_signal()?).await
}
