//! An auditor with the judges of `lucid-guardrails`, from a configuration.

mod config;

use std::{error::Error, io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Parser, ValueEnum};
use lucid_auditor::{Auditor, Turns};
use lucid_shared::LogArgs;

use config::Source;

/// Audits the traffic of AI models: refuses prompt injections, masks personal data, and more.
///
/// The judges come from a configuration. Lucid sets the variables LUCID_CHAIN_NEXT, LUCID_AUDITOR_PORT and others, which
/// lucid-auditor describes.
#[derive(Debug, Parser)]
#[command(name = "lucid-guardrails-auditor", version)]
// Log lines are records of refusals and masks, for programs.
#[command(mut_arg("format", |format| format.default_value("json")))]
struct Args {
    /// Configuration in YAML. It is reloaded when it changes.
    #[arg(long, env = "LUCID_GUARDRAILS_FILE", value_name = "FILE", conflicts_with_all = ["config", "profile"])]
    file: Option<PathBuf>,

    /// Configuration, as text.
    #[arg(long, env = "LUCID_GUARDRAILS_CONFIG", value_name = "YAML", conflicts_with = "profile")]
    config: Option<String>,

    /// Built-in configuration. By default that of the container's name, such as lucid-injection-auditor, or all.
    #[arg(long, env = "LUCID_GUARDRAILS_PROFILE")]
    profile: Option<Profile>,

    /// Name of the container.
    #[arg(long, env = "LUCID_AUDITOR_ID", hide = true)]
    id: Option<String>,

    /// Validate the configuration, print the judges, and exit.
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Profile {
    /// Prompt injection, toxicity, personal data and secrets.
    All,
    /// Prompt injection, in prompts and results of tools.
    Injection,
    /// Threats and insults.
    Toxicity,
    /// Personal data and secrets are masked.
    Pii,
}

impl Profile {
    /// Returns the profile of an auditor of the built-in catalogue.
    fn of(auditor: &str) -> Option<Self> {
        Some(match auditor {
            "lucid-injection-auditor" => Self::Injection,
            "lucid-toxicity-auditor" => Self::Toxicity,
            "lucid-pii-auditor" => Self::Pii,
            _ => return None,
        })
    }

    /// Returns the configuration.
    fn yaml(self) -> String {
        const INJECTION: &str =
            "{name: injection, directions: [prompt, tool_result], phrases: {builtin: injection}}";
        const TOXICITY: &str = "{name: toxicity, phrases: {builtin: toxicity}}";
        const PII: &str = "{pii: {}}, {secrets: {}}";
        let judges = match self {
            Self::All => [INJECTION, TOXICITY, PII].join(", "),
            Self::Injection => INJECTION.to_owned(),
            Self::Toxicity => TOXICITY.to_owned(),
            Self::Pii => PII.to_owned(),
        };
        format!("judges: [{judges}]")
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    lucid_shared::end(run(lucid_shared::parse())).await
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let source = match (args.file, args.config) {
        (Some(path), _) => Source::File(path),
        (None, Some(text)) => Source::Text(text),
        (None, None) => {
            let named = || Profile::of(args.id.as_deref().unwrap_or_default());
            Source::Text(args.profile.or_else(named).unwrap_or(Profile::All).yaml())
        }
    };
    if args.check {
        let (_, judges) = source.load()?;
        for (name, policy) in judges.policies() {
            let directions = policy.directions.as_deref().map(|directions| {
                directions.iter().map(|direction| direction.as_str()).collect::<Vec<_>>().join(", ")
            });
            let directions = directions.unwrap_or_else(|| "all texts".to_owned());
            let roles = policy.roles.as_deref().map(|roles| {
                format!(", roles {}", roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", "))
            });
            let (roles, turns) = (roles.unwrap_or_default(), policy.turns);
            let turns = if turns == Turns::Last { ", last turn" } else { "" };
            writeln!(lucid_shared::output(), "{name}: {:?}, {directions}{roles}{turns}", policy.mode)?;
        }
        return Ok(());
    }
    let telemetry = lucid_shared::init_telemetry(&args.log, "lucid-guardrails-auditor")?;
    let auditor = Auditor::from_env()?;
    let (config, judges) = source.load()?;
    tracing::info!(?judges, "configuration loaded");
    let served = lucid_auditor::serve(auditor.with_judges(config::follow(source, config, judges))).await;
    telemetry.end().await;
    Ok(served?)
}
