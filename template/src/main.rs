//! An operator with webhooks for pods and teams.

mod webhooks;

use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::Operation::{Create, Update};
use lucid_webhook::operator::Operator;
use lucid_webhook::registration::{Rule, parse_selector};
use lucid_webhook::{BoxError, Converter, Router, Webhook, shutdown_signal};
use webhooks::{OldTeam, Team, has_members, name_owner, to_v1, to_v2};

fn router() -> Result<Router, BoxError> {
    let enabled = parse_selector("{{group}}/enabled=true")?;
    let owner = Webhook::defaulting::<Pod>("owner.{{group}}", [Create], name_owner)
        .with_registration(|it| it.with_namespace_selector(enabled));
    let members = Webhook::validating("members.{{group}}", has_members)
        .with_registration(|it| it.with_rule(Rule::of::<Team>([Create, Update])));
    let converter = Converter::hub::<Team>().spoke::<OldTeam>(to_v2, to_v1).build_for(["v1", "v2"])?;
    Ok(Router::new().webhook("/owner", owner).webhook("/members", members).convert("/convert", converter))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let client = kube::Client::try_default().await?;
    Operator::new("{{project-name | kebab_case}}", "{{project-name | kebab_case}}-system", router()?)
        .run(client, shutdown_signal()?)
        .await
}

#[cfg(test)]
mod tests;
