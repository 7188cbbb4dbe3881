//! `lucid audit correlate`.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use lucid_audit::correlate::{Correlator, Drift};
use lucid_audit::note::VerifierKey;
use serde_json::json;

use super::alert::AlertArgs;
use super::{Format, metrics, shutdown_signal};
use crate::error::{Result, ResultExt};

/// Options of `lucid audit correlate`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CorrelateArgs {
    /// Directory of a log; repeat for each replica.
    #[arg(long, value_name = "DIR", required = true)]
    log: Vec<PathBuf>,

    /// Audit log of the API server: the file of its --audit-log-path, or `-` for standard input. Uncompressed rotated
    /// files are read first.
    #[arg(long, value_name = "FILE")]
    apiserver_audit: PathBuf,

    /// Follow both logs until SIGTERM or SIGINT.
    #[arg(long)]
    follow: bool,

    /// Trusted sealing key, as a vkey or a file with one; repeatable. By default the file vkey in each log's directory,
    /// trusted on first use.
    #[arg(long, value_name = "VKEY", value_parser = lucid_shared::options::parse_key)]
    key: Vec<VerifierKey>,

    /// Seconds to wait for the counterpart of a record or an event.
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    grace_seconds: u32,

    /// Options of alerts.
    #[command(flatten)]
    alert: AlertArgs,

    /// Also write counters to this file for node exporter's textfile collector. The name must end with .prom.
    #[arg(long, value_name = "FILE", value_parser = parse_metrics_file)]
    metrics_file: Option<PathBuf>,

    /// Output format. With --follow, json prints one drift per line.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

fn parse_metrics_file(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    // The textfile collector ignores other files.
    if path.extension().is_some_and(|extension| extension == "prom") {
        Ok(path)
    } else {
        Err("expected a file name that ends in .prom")
    }
}

const INTERVAL: Duration = Duration::from_millis(500);

/// Interval at which modified segments of the logs are read again.
const AGAIN: Duration = Duration::from_secs(5);

/// Compares, prints and alerts. Returns `true` if there is no drift.
pub(super) async fn correlate(args: &CorrelateArgs, output: &mut impl Write) -> Result<bool> {
    let alerts = args.alert.alerts()?;
    for (number, path) in args.log.iter().enumerate() {
        let same = |other: &PathBuf| {
            other == path
                || fs::canonicalize(other)
                    .is_ok_and(|other| fs::canonicalize(path).is_ok_and(|it| it == other))
        };
        if args.log.iter().take(number).any(same) {
            let path = path.display();
            return Err(format!("expected each log once, found {path} twice among --log").into());
        }
    }
    let mut shutdown = std::pin::pin!(shutdown_signal()?);
    let mut correlator = Correlator::new(SignedDuration::from_secs(args.grace_seconds.into()));
    args.log.iter().for_each(|path| correlator.add_log(path, args.key.clone()));
    let path = &args.apiserver_audit;
    let is_file = path.as_os_str() != "-";
    if is_file {
        correlator.add_events(path);
    }
    let mut again = Instant::now();
    let mut ended = !args.follow;
    loop {
        if !is_file {
            for line in io::stdin().lock().split(b'\n') {
                correlator.event(&line.failed_to("read standard input")?);
            }
        }
        correlator.read()?;
        if args.follow && (ended || again.elapsed() >= AGAIN) {
            correlator.read_again()?;
            again = Instant::now();
        }
        let now = Timestamp::now();
        let found = if args.follow { correlator.settle(now) } else { correlator.finish(now) };
        print(args, &found, output).failed_to_print()?;
        if let Some(path) = &args.metrics_file {
            metrics::write(path, &correlator).failed_to(format_args!("write {}", path.display()))?;
        }
        if let Some(alerts) = alerts.as_ref().filter(|_| !found.is_empty()) {
            alerts.post(&found).await;
        }
        if ended {
            let count: u64 = correlator.drifts().map(|(_, count)| count).sum();
            let tally = correlator.tally();
            if !args.follow && count == 0 && tally.anchors() == 0 {
                return Err(format!(
                    "nothing could be compared: none of the {} events in {} has an anchor; is it the API server's audit \
                     log, of the time and the cluster of the log, and does its policy keep events of pods at level \
                     Metadata or above?",
                    tally.events(),
                    path.display()
                )
                .into());
            }
            summary(args, &found, count, &correlator, output).failed_to_print()?;
            return Ok(count == 0);
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            // One more pass includes everything written until the signal.
            () = &mut shutdown => ended = true,
        }
    }
}

fn print(args: &CorrelateArgs, found: &[Drift], output: &mut impl Write) -> io::Result<()> {
    for drift in found {
        match args.output {
            Format::Text => writeln!(output, "{drift}")?,
            Format::Json if args.follow => {
                serde_json::to_writer(&mut *output, drift)?;
                writeln!(output)?;
            }
            Format::Json => {}
        }
    }
    output.flush()
}

fn summary(
    args: &CorrelateArgs,
    found: &[Drift],
    count: u64,
    correlator: &Correlator,
    output: &mut impl Write,
) -> io::Result<()> {
    let tally = correlator.tally();
    match args.output {
        Format::Json if args.follow => return Ok(()),
        Format::Json => {
            let drift = count > 0;
            return writeln!(output, "{}", json!({"drift": drift, "drifts": found, "tally": tally}));
        }
        Format::Text => {}
    }
    let verdict = match count {
        0 => "no drift".to_owned(),
        1 => "1 drift".to_owned(),
        count => format!("{count} drifts"),
    };
    writeln!(output, "{verdict}: {tally}")
}
