//! `lucid auditor test`: a black-box suite for auditors.
//!
//! A [scripted model](model) behind the auditor and a [caller] in front of it exchange exact bytes. Each [check](checks) sets
//! the model's behaviour, sends a request and compares what arrives on both sides.

mod bench;
mod caller;
mod checks;
mod codings;
mod message;
mod model;
mod process;
mod report;
mod transcript;

use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use url::Url;

use crate::error::{Result, ResultExt, usage_error};
use bench::{Bench, Problem};
use checks::Check;
use model::Model;
use process::Process;
use report::Report;
use transcript::Transcript;

/// Commands for auditors.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AuditorArgs {
    #[command(subcommand)]
    command: AuditorCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum AuditorCommand {
    /// Test that an auditor meets its contract, with a scripted model behind it.
    ///
    /// The command is started with the variables that Lucid sets in containers, once for each audit mode. An auditor at a URL
    /// has to run in enforce mode with LUCID_CHAIN_NEXT=http://ADDRESS of --model-listen. Exit code 0: no check failed; 1: a
    /// check failed; 2: wrong arguments, or the auditor cannot be started.
    Test(TestArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct TestArgs {
    /// URL of a running auditor.
    #[arg(value_name = "URL", required_unless_present = "command", requires = "model_listen")]
    url: Option<Url>,

    /// Command that runs the auditor.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "url")]
    command: Vec<OsString>,

    /// Address and port of the scripted model, with a URL.
    #[arg(long, value_name = "ADDRESS", value_parser = lucid_shared::parse_address)]
    model_listen: Option<SocketAddr>,

    /// Text that the auditor refuses.
    #[arg(long, value_name = "TEXT", default_value = "ignore previous instructions", value_parser = parse_text)]
    refused: String,

    /// Text that the auditor masks. Without it, masks are not tested.
    #[arg(long, value_name = "TEXT", value_parser = parse_text)]
    masked: Option<String>,

    /// Fail if the auditor ignores LUCID_ROUTES, as an auditor with `routes: true` in the catalogue must not.
    #[arg(long, conflicts_with = "url")]
    routes: bool,

    /// Maximum number of seconds to wait for each message.
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,

    /// Format of the output: a line for each check as it ends, or a report for programs.
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
    Junit,
}

/// Accepts texts that are the same within JSON, and long enough to be sent in pieces.
fn parse_text(text: &str) -> std::result::Result<String, String> {
    match text.chars().count() >= 8 && !text.contains(['"', '\\']) && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => {
            Err("expected 8 characters or more, without quotes, backslashes and control characters"
                .to_owned())
        }
    }
}

/// Runs a command for auditors. Returns `true` if no check failed.
///
/// # Errors
///
/// Returns an error if the auditor cannot be started or a check cannot run.
pub(crate) async fn auditor(args: &AuditorArgs, out: &mut impl Write) -> Result<bool> {
    let AuditorCommand::Test(args) = &args.command;
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let (name, auditor) = match &args.url {
        Some(url) => (url.to_string(), Some(address(url).await.usage()?)),
        None => (words.join(" "), None),
    };
    let localhost = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listen = args.model_listen.unwrap_or(localhost);
    let transcript = Transcript::default();
    let bind =
        |address| Model::bind(address, transcript.clone()).failed_to(format_args!("listen on {address}"));
    let mut bench = Bench {
        auditor: auditor.unwrap_or(listen),
        model: bind(listen).usage()?,
        second_auditor: listen,
        second_model: bind(localhost).usage()?,
        needs_routes: args.routes,
        transcript,
        process: None,
        refused: args.refused.clone(),
        masked: args.masked.clone(),
        patience: Duration::from_secs(args.timeout),
    };
    let mut report = Report::new(name);
    let stages: [(_, Vec<&Check>); 2] =
        [("enforce", checks::enforce().collect()), ("observe", checks::observe().collect())];
    for (mode, checks) in stages {
        if auditor.is_none() {
            let models = [bench.model.address, bench.second_model.address];
            let (process, addresses) = Process::start(&args.command, models, mode).await.usage()?;
            bench.process = Some(process);
            [bench.auditor, bench.second_auditor] = addresses;
        }
        for check in checks {
            let begin = Instant::now();
            let outcome = match (auditor, mode) {
                (Some(_), "observe") => Err(Problem::Skipped("only with -- COMMAND")),
                _ => (check.run)(&mut bench).await,
            };
            let result = report::Result::new(check, outcome, &bench.transcript, begin.elapsed());
            let result = result.failed_to(format_args!("run {}", check.name))?;
            if args.output == Output::Table {
                result.line(out).failed_to_print()?;
            }
            report.push(result);
        }
        if let Some(process) = bench.process.take() {
            process.stop().await.failed_to("end the auditor")?;
        }
    }
    match args.output {
        Output::Table => report.summary(out),
        Output::Json => report.json(out),
        Output::Junit => report.junit(out),
    }
    .failed_to_print()?;
    Ok(report.is_good())
}

async fn address(url: &Url) -> Result<SocketAddr> {
    let expected = "expected http://HOST:PORT";
    let host = url.host_str().filter(|_| url.scheme() == "http");
    let host = host.ok_or_else(|| usage_error(format!("URL {url}: {expected}")))?;
    let port = url.port_or_known_default().unwrap_or(80);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses =
        tokio::net::lookup_host((host, port)).await.failed_to(format_args!("resolve {host}"))?;
    addresses.next().ok_or_else(|| format!("{host} has no address").into())
}
