//! `lucid audit correlate`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use lucid_audit::correlate::{Correlator, Drift, DriftClass, Tally};
use lucid_audit::follow::EventFollower;
use lucid_audit::note::VerifierKey;
use serde_json::json;

use super::alert::AlertArgs;
use super::keys::parse_key;
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
    #[arg(long, value_name = "VKEY", value_parser = parse_key)]
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
    let mut compared = Compared::new(args);
    let mut drifts = BTreeMap::new();
    let mut again = Instant::now();
    let mut ended = !args.follow;
    loop {
        compared.read(args)?;
        if args.follow && (ended || again.elapsed() >= AGAIN) {
            compared.correlator.read_again()?;
            again = Instant::now();
        }
        let found = if args.follow {
            compared.correlator.settle(Timestamp::now())
        } else {
            compared.correlator.finish(Timestamp::now())
        };
        for drift in &found {
            *drifts.entry(drift.class).or_insert(0) += 1;
        }
        let tally = compared.correlator.tally();
        print(args, &found, output).failed_to_print()?;
        if let Some(path) = &args.metrics_file {
            metrics::write(path, &drifts, tally).failed_to(format_args!("write {}", path.display()))?;
        }
        if let Some(alerts) = alerts.as_ref().filter(|_| !found.is_empty()) {
            alerts.post(&found).await;
        }
        if ended {
            if !args.follow && drifts.is_empty() && tally.anchors == 0 {
                return Err(format!(
                    "nothing could be compared: none of the {} events in {} has an anchor; is it the API server's audit \
                     log, of the time and the cluster of the log, and does its policy keep events of pods at level \
                     Metadata or above?",
                    tally.events,
                    args.apiserver_audit.display()
                )
                .into());
            }
            summary(args, &found, &drifts, tally, &compared, output).failed_to_print()?;
            return Ok(drifts.is_empty());
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            // One more pass includes everything written until the signal.
            () = &mut shutdown => ended = true,
        }
    }
}

struct Compared {
    correlator: Correlator,
    /// File of the events; `None` for standard input.
    events: Option<EventFollower>,
}

impl Compared {
    fn new(args: &CorrelateArgs) -> Self {
        let mut correlator = Correlator::new(SignedDuration::from_secs(args.grace_seconds.into()));
        args.log.iter().for_each(|path| correlator.add_log(path, args.key.clone()));
        let path = &args.apiserver_audit;
        let events = (path.as_os_str() != "-").then(|| EventFollower::new(path));
        Self { correlator, events }
    }

    /// Reads new data, events first, so that the record of each event is present when the logs are read.
    fn read(&mut self, args: &CorrelateArgs) -> Result<()> {
        let correlator = &mut self.correlator;
        match &mut self.events {
            Some(file) => {
                let path = &args.apiserver_audit;
                if !path.exists() && correlator.tally().events == 0 {
                    File::open(path).failed_to(format_args!("read {}", path.display()))?;
                }
                file.poll(|line| correlator.event(line))?;
            }
            None => {
                for line in io::stdin().lock().split(b'\n') {
                    correlator.event(&line.failed_to("read standard input")?);
                }
            }
        }
        Ok(correlator.read()?)
    }

    fn compressed(&self) -> u64 {
        self.events.as_ref().map_or(0, |file| file.compressed().len() as u64)
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
    drifts: &BTreeMap<DriftClass, u64>,
    tally: Tally,
    compared: &Compared,
    output: &mut impl Write,
) -> io::Result<()> {
    match args.output {
        Format::Json if args.follow => return Ok(()),
        Format::Json => {
            let drift = !drifts.is_empty();
            return writeln!(output, "{}", json!({"drift": drift, "drifts": found, "tally": tally}));
        }
        Format::Text => {}
    }
    let count: u64 = drifts.values().sum();
    let verdict = match count {
        0 => "no drift".to_owned(),
        1 => "1 drift".to_owned(),
        count => format!("{count} drifts"),
    };
    writeln!(output, "{verdict}: {tally}")?;
    match compared.compressed() {
        0 => Ok(()),
        count => writeln!(output, "  rotated files skipped because they are compressed: {count}"),
    }
}
