//! `lucid audit tail`: follows a log directory, or a running process at `/audit`.

mod directory;
mod entry;
mod server;

use std::io::Write;
use std::path::PathBuf;

use reqwest::Url;

use self::entry::Outcome;
use super::remote::AccessArgs;
use super::{Format, shutdown_signal};
use crate::error::Result;

/// Options of `lucid audit tail`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TailArgs {
    /// Directory of a log, or URL of a process with --audit-token-file, such as
    /// `https://lucid-operator-webhook.lucid-system.svc`, whose decisions in memory are read at /audit.
    #[arg(value_name = "DIR|URL", value_parser = parse_source, required_unless_present_any = ["log", "url"])]
    source: Option<Source>,

    /// Directory of a log, same as DIR.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["source", "url"])]
    log: Option<PathBuf>,

    /// URL of a process, same as URL.
    #[arg(long, value_name = "URL", conflicts_with = "source", value_parser = parse_source)]
    url: Option<Source>,

    /// Options of access to a process.
    #[command(flatten)]
    access: AccessArgs,

    /// Follow new decisions until SIGTERM or SIGINT, across log rotation and restarts of the process. Missed decisions
    /// are reported on standard error.
    #[arg(long, short)]
    follow: bool,

    /// Number of latest decisions to print first.
    #[arg(long, short = 'n', value_name = "COUNT", default_value = "20")]
    lines: usize,

    /// Print only decisions about this namespace.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Print only decisions with this outcome. would-deny selects requests that were admitted although they violate the
    /// policy.
    #[arg(long, value_name = "DECISION")]
    decision: Option<Outcome>,

    /// Print only decisions with this break-glass ticket.
    #[arg(long, value_name = "TICKET")]
    ticket: Option<String>,

    /// Output format. json prints the lines of the log or of the response unchanged.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Debug)]
enum Source {
    Directory(PathBuf),
    Server(Url),
}

fn parse_source(text: &str) -> Result<Source, String> {
    if !text.starts_with("https://") && !text.starts_with("http://") {
        return Ok(Source::Directory(text.into()));
    }
    let mut url: Url = text.parse().map_err(|error| format!("{error}"))?;
    let path = match url.path().trim_end_matches('/') {
        "" => "/audit".to_owned(),
        path => path.to_owned(),
    };
    url.set_path(&path);
    Ok(Source::Server(url))
}

pub(super) async fn tail(args: &TailArgs, output: &mut impl Write) -> Result<()> {
    let shutdown = shutdown_signal()?;
    match (&args.log, args.source.as_ref().or(args.url.as_ref())) {
        (None, Some(Source::Server(url))) => server::tail(args, url, shutdown, output).await,
        (Some(directory), _) | (None, Some(Source::Directory(directory))) => {
            directory::tail(args, directory, shutdown, output).await
        }
        // Unreachable: clap requires one of the arguments.
        (None, None) => Ok(()),
    }
}
