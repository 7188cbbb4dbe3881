//! `lucid check`: checks Lucid in a live cluster, and reports unaudited pods with the reason.
//!
//! The command is read-only. A missing RBAC permission is reported with the check that needs it; the other checks still
//! run.

mod backstop;
mod callers;
mod certificate;
mod configuration;
mod decision_log;
mod endpoint;
mod image_volumes;
mod namespaces;
mod overlap;
mod permissions;
pub(crate) mod pods;
mod programs;
mod quotas;
mod reachable;
mod registration;
mod report;

use std::io::{self, IsTerminal, Write};

use kube::Client;
use lucid_admission::{ClusterConfiguration, Scope};
use lucid_chain::keys;
use lucid_shared::options::{InjectionArgs, OperatorArgs};
use serde_json::json;

use crate::connection::ClusterArgs;
use crate::error::{Result, ResultExt};
use endpoint::Endpoint;
use pods::Survey;
use registration::{RegisteredWebhook, RegisteredWebhooks};
use report::{Check, Report};

/// Options of `lucid check`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Skip existing pods and check only Lucid itself.
    #[arg(long)]
    skip_pods: bool,

    /// Output format.
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Format,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// Operator options to assume if its Deployment does not set them.
    #[command(flatten)]
    injection: InjectionArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Runs all checks and prints the report. Returns `true` if no check failed.
pub(crate) async fn check(args: &CheckArgs, out: &mut impl Write) -> Result<bool> {
    let client = args.cluster.client().await?;
    let report = run(&client, args).await?;
    match args.output {
        Format::Json => report.json(out),
        Format::Table => report.table(out, width()),
    }
    .failed_to_print()?;
    Ok(report.is_good())
}

/// Returns the number of columns if the output is a terminal with at least 40.
fn width() -> Option<u16> {
    let stdout = io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|_| stdout.is_terminal())?;
    (size.ws_col >= 40).then_some(size.ws_col)
}

/// Returns the options of the deployed operator. Without a Deployment or StatefulSet, `own` applies.
pub(crate) async fn deployed_operator(
    client: &Client,
    namespace: &str,
    own: &InjectionArgs,
) -> Result<OperatorArgs> {
    let deployed = programs::read(client, namespace, own).await;
    Ok(deployed.failed_to("read the options").usage()?.0.args)
}

/// Returns the configuration as the operator reads it.
pub(crate) async fn read_configuration(
    client: &Client,
    namespace: &str,
    operator: &OperatorArgs,
) -> Result<ClusterConfiguration> {
    let (settings, policy) = (operator.common.injection.settings(), operator.common.validation.policy());
    let (cluster, checks) = configuration::read(client, namespace, settings, policy).await;
    let found = || checks.iter().map(|check| check.found.clone()).collect::<Vec<_>>().join("; ");
    Ok(cluster.ok_or_else(|| format!("failed to read the configuration: {}", found()))?)
}

async fn run(client: &Client, args: &CheckArgs) -> Result<Report> {
    let namespace = args.cluster.namespace.as_str();
    let mut report = Report::new(namespace);
    let deployed = programs::read(client, namespace, &args.injection).await;
    let (operator, validator) = deployed.failed_to("read the options").usage()?;
    report.extend([operator.check.clone()]);
    // A separate validator is optional where the operator validates.
    let is_apart = !operator.args.validate;
    report.extend((validator.is_deployed || is_apart).then(|| validator.check.clone()));
    if let Some(account) = &operator.account {
        report.extend(permissions::check(client, account, operator.args.needs()).await);
    }
    if let Some(account) = &validator.account {
        report.extend(permissions::check(client, account, validator.args.needs()).await);
    }

    let validates_apart = validator.is_known() && !(operator.is_known() && operator.args.validate);
    let validation =
        if validates_apart { &validator.args.validation } else { &operator.args.common.validation };
    let settings = operator.args.common.injection.settings();
    let (cluster, checks) = configuration::read(client, namespace, settings, validation.policy()).await;

    let registrations = RegisteredWebhooks::read(client, &operator, &validator, cluster.as_ref()).await;
    report.extend(registrations.checks.clone());
    // `Some(true)` if the programs require a client certificate, `None` if their settings are unknown.
    let settings = [
        operator.is_known().then_some(&operator.args.common.serving.certificates),
        validator.is_known().then_some(&validator.args.serving.certificates),
    ];
    let demanded =
        settings.into_iter().flatten().map(|it| it.client_ca.is_some()).reduce(|all, it| all && it);
    let is_logged = operator.args.common.decisions.decision_log.is_some()
        || validator.args.decisions.decision_log.is_some();
    let mut seen = Vec::new();
    for registered in &registrations.webhooks {
        let endpoint = Endpoint::of(client, &registered.webhook["clientConfig"]).await;
        // Webhooks usually share a Service.
        let server = (endpoint.name.clone(), endpoint.addresses.clone());
        if !seen.contains(&server) {
            report.extend(endpoint.check.clone());
            report.extend([
                callers::check(&endpoint, demanded).await,
                decision_log::check(&endpoint, is_logged).await,
            ]);
            seen.push(server);
        }
        report.extend([certificate::check(registered, &endpoint).await]);
    }

    let scope = Scope::new(namespace);
    let default = json!({"matchLabels": {keys::ENABLED_LABEL: keys::TRUE}});
    let mutating = registrations.mutating();
    let selector = mutating.map_or(&default, |it| &it.webhook["namespaceSelector"]);
    let namespaces = match namespaces::read(client, &registration::selector(selector), &scope).await {
        Ok(namespaces) => namespaces,
        Err(unread) => {
            let checks = ["selectors", "reachable", "overlap"].into_iter();
            let checks = checks.chain((!args.skip_pods).then_some("pods"));
            report.extend(checks.map(|check| Check::unread(check, &unread)));
            return Ok(report);
        }
    };
    report.extend(namespaces::check(&namespaces));
    match (&registrations.configurations, mutating) {
        (Ok(configurations), Some(ours)) => report.extend(overlap::check(configurations, ours, &namespaces)),
        (Err(unread), _) => report.extend([Check::unread("overlap", unread)]),
        (Ok(_), None) => {}
    }

    let ignores_failures = registrations.webhooks.iter().any(RegisteredWebhook::ignores_failures);
    report.extend(checks);
    let expected = match &cluster {
        Some(cluster) => backstop::expected(&operator.args, validation, cluster, namespace).await,
        None => None,
    };
    report.extend(backstop::check(client, expected, ignores_failures).await);
    report.extend([reachable::check(client, cluster.as_ref(), mutating, &namespaces).await]);
    let Some(cluster) = cluster else { return Ok(report) };
    let audited = namespaces.iter().filter(|it| it.is_audited()).map(|it| it.name.as_str());
    report.extend(configuration::check(&cluster, namespace, audited.clone()).await);
    report.extend(image_volumes::check(client, &cluster, namespace, audited).await);
    report.extend(quotas::check(client, &cluster, &namespaces).await);
    if args.skip_pods {
        return Ok(report);
    }
    let survey = Survey { client, cluster: &cluster, scope: &scope, webhook: mutating };
    report.extend(survey.checks(&namespaces).await);
    Ok(report)
}
