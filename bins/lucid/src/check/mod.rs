//! `lucid check`: checks Lucid in a live cluster, and reports unaudited pods with the reason.
//!
//! The command is read-only. A missing RBAC permission is reported with the check that needs it; the other checks still
//! run.
//!
//! [`report`] prints the result. The other modules contribute checks:
//!
//! - [`deployed_args`]: Deployments and StatefulSets; [`permissions`]: their RBAC permissions.
//! - [`registration`]: the webhooks that the API server calls; [`backstop`]: the policy that it enforces itself.
//! - [`endpoint`], [`certificate`] and [`callers`]: the webhook servers; [`reachable`]: a call by the API server.
//! - [`namespaces`] and [`overlap`]: selected namespaces and other webhooks that are called there.
//! - [`configuration`]: the catalogue; [`pods`]: the pods.

mod backstop;
mod callers;
mod certificate;
mod configuration;
mod deployed_args;
mod endpoint;
mod namespaces;
mod overlap;
mod permissions;
mod pods;
mod reachable;
mod registration;
mod report;

use std::io::{self, IsTerminal, Write};

use kube::Client;
use lucid_admission::Scope;
use lucid_chain::keys;
use lucid_shared::options::InjectionArgs;
use serde_json::json;
use snafu::{ResultExt, Snafu};

use crate::connection::{ClusterArgs, ConnectionError};
use backstop::Known;
use deployed_args::Deployed;
use endpoint::Endpoint;
use pods::Survey;
use registration::RegisteredWebhooks;
use report::{Check, Report};

/// Options of `lucid check`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Skip existing pods and check only Lucid itself.
    #[arg(long)]
    skip_pods: bool,

    /// Output format.
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Format,

    /// Operator options to assume if its Deployment does not set them.
    #[command(flatten)]
    injection: InjectionArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Errors of [`check`].
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub(crate) enum CheckError {
    /// The API server could not be reached.
    #[snafu(transparent)]
    Connection {
        /// Cause.
        source: ConnectionError,
    },
    /// The options contradict each other.
    #[snafu(display("failed to read the options: {problem}"))]
    Options {
        /// Error of the option parser.
        problem: String,
    },
    /// The output could not be written.
    #[snafu(display("failed to write: {source}"))]
    Write {
        /// Cause.
        source: io::Error,
    },
}

/// Runs all checks and prints the report. Returns `true` if no check failed.
///
/// # Errors
///
/// Returns an error if the API server cannot be reached, the options contradict each other, or the output cannot be
/// written.
pub(crate) async fn check(args: &CheckArgs, out: &mut impl Write) -> Result<bool, CheckError> {
    let client = args.cluster.client().await?;
    let report = run(&client, args).await?;
    match args.output {
        Format::Json => report.json(out),
        Format::Table => report.table(out, width()),
    }
    .context(WriteSnafu)?;
    Ok(report.is_good())
}

/// Returns the number of columns if the output is a terminal with at least 40.
fn width() -> Option<u16> {
    let stdout = io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|_| stdout.is_terminal())?;
    (size.ws_col >= 40).then_some(size.ws_col)
}

async fn run(client: &Client, args: &CheckArgs) -> Result<Report, CheckError> {
    let namespace = args.cluster.namespace.as_str();
    let mut report = Report::new(namespace);
    let options = |problem| OptionsSnafu { problem }.build();
    let operator = Deployed::operator(client, namespace, &args.injection).await.map_err(options)?;
    let validator = Deployed::validator(client, namespace, &args.injection).await.map_err(options)?;
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

    let registrations = RegisteredWebhooks::read(client, &operator, &validator).await;
    report.extend(registrations.checks.clone());
    // `Some(true)` if the programs require a client certificate, `None` if their settings are unknown.
    let settings = [
        operator.is_known.then_some(&operator.args.common.serving.certificates),
        validator.is_known.then_some(&validator.args.serving.certificates),
    ];
    let demanded =
        settings.into_iter().flatten().map(|it| it.client_ca.is_some()).reduce(|all, it| all && it);
    let mut seen = Vec::new();
    for registered in registrations.all() {
        let endpoint = Endpoint::of(client, &registered.webhook["clientConfig"]).await;
        // Webhooks usually share a Service.
        let server = (endpoint.name.clone(), endpoint.addresses.clone());
        if !seen.contains(&server) {
            report.extend(endpoint.check.clone());
            report.extend([callers::check(&endpoint, demanded).await]);
            seen.push(server);
        }
        report.extend([certificate::check(registered, &endpoint).await]);
    }

    let scope = Scope::new(namespace);
    let default = json!({"matchLabels": {keys::ENABLED_LABEL: keys::TRUE}});
    let mutating = registrations.mutating.as_ref();
    let selector = mutating.map_or(&default, |it| &it.webhook["namespaceSelector"]);
    let namespaces = match namespaces::read(client, &namespaces::selector(selector)).await {
        Ok(namespaces) => namespaces,
        Err(unread) => {
            let checks = ["selectors", "reachable", "overlap"].into_iter();
            let checks = checks.chain((!args.skip_pods).then_some("pods"));
            report.extend(checks.map(|check| Check::unread(check, &unread)));
            return Ok(report);
        }
    };
    report.extend(namespaces::check(&namespaces, &scope));
    match (&registrations.configurations, mutating) {
        (Ok(configurations), Some(ours)) => report.extend(overlap::check(configurations, ours, &namespaces)),
        (Err(unread), _) => report.extend([Check::unread("overlap", unread)]),
        (Ok(_), None) => {}
    }

    let (cluster, checks) =
        configuration::read(client, namespace, operator.args.common.injection.settings()).await;
    report.extend(checks);
    let ignores_failures = registrations.all().any(registration::RegisteredWebhook::ignores_failures);
    let validates_apart = validator.is_known && !(operator.is_known && operator.args.validate);
    let validation =
        if validates_apart { &validator.args.validation } else { &operator.args.common.validation };
    let known = Known { args: &operator.args, validation, cluster: cluster.as_ref(), namespace };
    report.extend(backstop::check(client, known, ignores_failures).await);
    let selected = || namespaces.iter().filter(|it| it.is_selected && scope.covers(&it.name));
    report.extend([reachable::check(client, cluster.as_ref(), mutating, &namespaces, &scope).await]);
    let Some(cluster) = cluster else { return Ok(report) };
    report.extend(configuration::check(&cluster, selected().map(|it| it.name.as_str())).await);
    if args.skip_pods {
        return Ok(report);
    }
    let object_selector = mutating.map(|it| it.webhook["objectSelector"].clone()).unwrap_or_default();
    let survey = Survey {
        client,
        cluster: &cluster,
        scope: &scope,
        registered: mutating.and_then(|it| Some(it.since.as_ref()?.0)),
        ignores_failures: mutating.is_some_and(registration::RegisteredWebhook::ignores_failures),
        object_selector: namespaces::selector(&object_selector),
    };
    report.extend(survey.checks(&namespaces).await);
    Ok(report)
}
