//! lucid-auditor, as its documentation shows it, and lucid-guardrails.

use std::error::Error;

use clap::Parser;
use lucid_auditor::Auditor;
use lucid_guardrails::Config;
use tokio::sync::watch;

#[derive(Parser)]
struct Program {
    /// Judges: a configuration of lucid-guardrails, YAML.
    #[arg(long)]
    config: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut auditor = Auditor::from_env()?;
    if let Some(config) = Program::parse().config {
        auditor = auditor.with_judges(watch::channel(Config::parse(&config)?.build()?).1);
    }
    Ok(lucid_auditor::serve(auditor).await?)
}
