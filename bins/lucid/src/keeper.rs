//! `lucid keeper`: what happens to running pods without the planned chain.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table, presets};
use lucid_keeper::{Keeper, Planned, When};
use lucid_notary::client::ClientMetrics;
use lucid_shared::options::{InjectionArgs, NotaryArgs};

use crate::check::{deployed_operator, read_configuration};
use crate::connection::ClusterArgs;
use crate::error::{Result, ResultExt};

/// Options of `lucid keeper`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct KeeperArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Show on which pods the operator would act next, and why not on others. Changes nothing. Without a Verifier, an
    /// allowlist or signatures, no pod is Revoked.
    Plan(Box<PlanArgs>),
}

#[derive(Clone, Debug, clap::Args)]
struct PlanArgs {
    /// Output format.
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Output,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// Sources of verdicts on the auditors of running pods.
    #[command(flatten)]
    sources: NotaryArgs,

    /// Operator options to assume if its Deployment does not set them.
    #[command(flatten)]
    injection: InjectionArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) async fn keeper(args: &KeeperArgs, out: &mut impl Write) -> Result<()> {
    let Command::Plan(args) = &args.command;
    let client = args.cluster.client().await?;
    let namespace = args.cluster.namespace.as_str();
    let operator = deployed_operator(&client, namespace, &args.injection).await?;
    let cluster = read_configuration(&client, namespace, &operator).await?;
    let mut keeper = Keeper::new(client, cluster, namespace, None).with_actions(&operator.keeper_actions);
    if let Some(notary) = args.sources.notary(&ClientMetrics::default()).usage()? {
        keeper = keeper.with_notary(notary);
    }
    let planned = keeper.plan().await.failed_to("list pods")?;
    match args.output {
        Output::Json => serde_json::to_writer_pretty(&mut *out, &planned)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out)),
        Output::Table => table(&planned, out),
    }
    .failed_to_print()
}

fn table(planned: &[Planned], out: &mut impl Write) -> io::Result<()> {
    if planned.is_empty() {
        return writeln!(out, "no running pod needs an action");
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["NAMESPACE", "POD", "WORKLOAD", "STATE", "ACTION", "WHEN", "WHY"]);
    for Planned { namespace, pod, workload, state, reason, action, next, why, .. } in planned {
        let workload = workload.as_ref().map_or_else(String::new, ToString::to_string);
        let (next, why) = match next {
            When::Now => ("now", reason),
            When::Later => ("later", why),
            When::Never => ("never", why),
        };
        // Authors of pods choose parts of it.
        let why = &why.replace(char::is_control, " ");
        table.add_row([namespace, pod, &workload, state.as_str(), action.as_str(), next, why]);
    }
    writeln!(out, "{}", table.trim_fmt())
}
