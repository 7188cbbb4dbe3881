//! Options of the decision log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::serving::Host;
use lucid_audit::log::{OpenError, Options, Sync};
use lucid_audit::metrics::Metrics;
use lucid_audit::note::{KeyError, SigningKey, VerifierKey, is_name};
use lucid_audit::{OnFailure, Recorder};
use prometheus_client::registry::Registry;
use snafu::{ResultExt, Snafu};

/// Where decisions are kept, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Record")]
pub struct DecisionArgs {
    /// Keep every decision in a log in this directory, which is made when it is not there. One process writes one log: give
    /// each replica a directory of its own. By default decisions are kept in memory only.
    #[arg(long, env = "LUCID_DECISION_LOG", value_name = "DIRECTORY")]
    pub decision_log: Option<PathBuf>,

    /// Seal the log with the signing key in this file, as `lucid audit key` makes it. Without it nothing is sealed.
    #[arg(long, env = "LUCID_DECISION_LOG_KEY", value_name = "FILE", requires = "decision_log")]
    pub decision_log_key: Option<PathBuf>,

    /// The name of the log, under which it is sealed, such as `lucid.computing/prod/lucid-operator-0`. By default
    /// `lucid.computing/` and the pod's name (POD_NAME) or else the host's.
    #[arg(long, env = "LUCID_DECISION_LOG_ORIGIN", value_name = "NAME", value_parser = parse_origin)]
    pub decision_log_origin: Option<String>,

    /// When a decision counts as kept: `always` or `batch` when the disk has it, by itself or with those that came at the same
    /// time; `interval` or `interval=MILLISECONDSms` when the system has it, and the disk up to a second, or that much, later.
    #[arg(long, env = "LUCID_DECISION_LOG_SYNC", value_name = "WHEN", default_value = "batch")]
    pub decision_log_sync: Sync,

    /// What becomes of a request whose decision cannot be kept, as when the disk is full: `deny` refuses it, with
    /// `serve-and-alarm` it is answered, the decision stays in memory, and metrics and errors in the log tell so.
    #[arg(long, env = "LUCID_DECISION_LOG_ON_FAILURE", value_name = "POLICY", default_value = "deny")]
    pub decision_log_on_failure: OnFailure,

    /// Begin a new file of the log when one has this many bytes.
    #[arg(long, env = "LUCID_DECISION_LOG_SEGMENT_BYTES", value_name = "BYTES", default_value = "67108864")]
    #[arg(value_parser = crate::within(65_536_u64..=1 << 40))]
    pub decision_log_segment_bytes: u64,

    /// Accept cosignatures of the log's checkpoints by these witnesses: verifier keys separated by commas. By default of nobody.
    #[arg(long, env = "LUCID_DECISION_LOG_WITNESSES", value_name = "KEYS", value_delimiter = ',')]
    pub decision_log_witnesses: Vec<VerifierKey>,

    /// How many decisions of authenticated callers are kept in memory, and as many of others. One takes
    /// at most 1.9 kB.
    #[arg(long, env = "LUCID_DECISION_RING", value_name = "NUMBER", default_value = "1000")]
    #[arg(value_parser = crate::within(0_u64..=1_000_000))]
    pub decision_ring: u64,
}

/// The decision log could not be set up.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum DecisionLogError {
    /// The log could not be opened.
    #[snafu(display("LUCID_DECISION_LOG: {source}{}", way_to_adopt(source)))]
    Open {
        /// Error of the log.
        source: OpenError,
    },
    /// The key file could not be read.
    #[snafu(display("LUCID_DECISION_LOG_KEY: failed to read {}: {source}", path.display()))]
    KeyFile {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The key file contains no valid key.
    #[snafu(display("LUCID_DECISION_LOG_KEY: {}: {source}", path.display()))]
    Key {
        /// Path of the file.
        path: PathBuf,
        /// Parse error.
        source: KeyError,
    },
}

/// Names the command of this program for an option that the library's error mentions.
const fn way_to_adopt(error: &OpenError) -> &'static str {
    if error.needs_adoption() { "; here that is `lucid audit seal`" } else { "" }
}

impl DecisionArgs {
    /// Creates the recorder of decisions and registers its metrics. If the log cannot be opened for a transient reason,
    /// such as a lock of another process or a full disk, a background task retries.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be opened and a retry cannot help. With [`OnFailure::ServeAndAlarm`], a
    /// damaged log is not an error, and the recorder keeps decisions in memory only.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime if the log cannot be opened yet.
    pub fn recorder(&self, registry: &mut Registry) -> Result<Arc<Recorder>, DecisionLogError> {
        let metrics = Metrics::new(registry);
        let ring = usize::try_from(self.decision_ring).unwrap_or(usize::MAX);
        let recorder = Recorder::new(ring).metrics(metrics.clone()).on_failure(self.decision_log_on_failure);
        let Some(directory) = &self.decision_log else { return Ok(Arc::new(recorder)) };
        let mut options = Options::new()
            .sync(self.decision_log_sync)
            .segment_bytes(self.decision_log_segment_bytes)
            .witnesses(self.decision_log_witnesses.clone())
            .metrics(metrics);
        if let Some(path) = &self.decision_log_key {
            let origin = self.decision_log_origin.clone().unwrap_or_else(default_origin);
            options = options.key(read_key(path, &origin)?);
        }
        match recorder.open_log(directory, options.clone()) {
            Ok(()) => Ok(Arc::new(recorder)),
            Err(error) if error.is_transient() => {
                let recorder = Arc::new(recorder.with_unavailable_log(error.to_string()));
                let opening = open_later(Arc::downgrade(&recorder), directory.clone(), options, error);
                tokio::spawn(opening);
                Ok(recorder)
            }
            Err(error) if error.is_fault() && self.decision_log_on_failure == OnFailure::ServeAndAlarm => {
                tracing::error!("LUCID_DECISION_LOG: {error}; decisions are in memory only");
                Ok(Arc::new(recorder.with_unavailable_log(error.to_string())))
            }
            Err(error) => Err(error).context(OpenSnafu),
        }
    }
}

/// Initial delay before the log is opened again. It doubles up to [`LONGEST_PAUSE`], except while another process holds
/// the lock: that check is cheap, and the other process is likely to exit soon.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Retries until the log can be opened.
async fn open_later(recorder: Weak<Recorder>, directory: PathBuf, options: Options, mut error: OpenError) {
    let mut reported = String::new();
    let mut pause = FIRST_PAUSE;
    loop {
        let reason = error.to_string();
        let is_held = matches!(error, OpenError::Locked { .. });
        if reason != reported {
            if is_held {
                tracing::warn!("LUCID_DECISION_LOG: waiting for the process that holds the log: {reason}");
            } else {
                tracing::error!("LUCID_DECISION_LOG: {reason}; retrying");
            }
        }
        reported = reason;
        if is_held {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let Some(recorder) = recorder.upgrade() else { return };
        let (directory, options) = (directory.clone(), options.clone());
        let opened = tokio::task::spawn_blocking(move || recorder.open_log(&directory, options)).await;
        match opened {
            Ok(Err(again)) => error = again,
            Ok(Ok(())) => return tracing::info!("LUCID_DECISION_LOG: the log is open"),
            // The runtime is shutting down.
            Err(_) => return,
        }
    }
}

/// Adds a readiness condition to `host` if requests are rejected while the log is unavailable.
pub fn report_readiness(recorder: &Recorder, host: &Host) {
    if let Some(ready) = recorder.ready() {
        tokio::spawn(host.condition("decision log").follow(ready));
    }
}

/// Closes the log after writing and sealing all records.
pub async fn close(recorder: Arc<Recorder>) {
    // The join fails only while the runtime shuts down, and dropping the recorder closes the log, too.
    let _ = tokio::task::spawn_blocking(move || recorder.close()).await;
}

/// Reads the signing key of the log `origin`. Replicas may share a file, because each signs under its own name.
pub fn read_key(path: &Path, origin: &str) -> Result<SigningKey, DecisionLogError> {
    let text = zeroize::Zeroizing::new(fs::read_to_string(path).context(KeyFileSnafu { path })?);
    let key = SigningKey::parse(&text).context(KeySnafu { path })?;
    key.named(origin).context(KeySnafu { path })
}

/// Returns the name of this replica: the pod's name, or else the host's.
pub(super) fn replica() -> Option<String> {
    let named = ["POD_NAME", "HOSTNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let host = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
    named.chain(host()).map(|name| name.trim().to_owned()).find(|name| is_name(name))
}

/// Returns the default origin: `lucid.computing/` and the name of this replica.
pub fn default_origin() -> String {
    format!("lucid.computing/{}", replica().unwrap_or_else(|| "lucid".to_owned()))
}

/// Parses the name of a log, for clap's `value_parser`.
///
/// # Errors
///
/// Returns the accepted form if `text` is not a name of signed notes.
pub fn parse_origin(text: &str) -> Result<String, &'static str> {
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("accepted is a name without spaces and plus signs, such as lucid.computing/prod/lucid-operator-0")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use lucid_audit::Decision;

    use super::*;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        decisions: DecisionArgs,
    }

    fn recorder(arguments: &[&str]) -> Result<Arc<Recorder>, DecisionLogError> {
        let args = Args::try_parse_from([&["test"], arguments].concat()).unwrap();
        args.decisions.recorder(&mut Registry::default())
    }

    #[tokio::test]
    async fn a_thousand_decisions_are_in_memory_unless_another_number_is_asked_for() {
        for (arguments, kept) in [(&[][..], 1000), (&["--decision-ring=3"], 3)] {
            let recorder = recorder(arguments).unwrap();
            for number in 0..1010 {
                recorder.record(Decision::new("validate", number.to_string())).await.unwrap();
            }
            assert_eq!(recorder.latest().len(), kept);
        }
    }

    #[tokio::test]
    async fn a_log_that_another_process_holds_is_opened_when_it_ends() {
        for policy in ["deny", "serve-and-alarm"] {
            let folder = tempfile::tempdir().unwrap();
            let log = folder.path().display().to_string();
            let arguments = ["--decision-log", &log, "--decision-log-on-failure", policy];
            let first = recorder(&arguments).unwrap();
            let second = recorder(&arguments).unwrap();
            assert!(second.log_status().unwrap_err().contains("another process writes the log"));
            let recorded = second.record(Decision::new("validate", "u-1")).await;
            assert_eq!(recorded.is_err(), policy == "deny");
            first.close();
            let opened = async {
                while second.log_status().is_err() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_mins(1), opened).await.unwrap();
            let anchor = second.record(Decision::new("validate", "u-2")).await.unwrap();
            assert_eq!(anchor.unwrap().seq, 0);
        }
    }

    #[tokio::test]
    async fn a_log_that_is_not_as_it_was_left_ends_the_process_or_is_an_alarm() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("decisions.key");
        fs::write(&key, &*SigningKey::generate("lucid.computing/test/0").unwrap().to_secret()).unwrap();
        let log = folder.path().join("log").display().to_string();
        let key = key.display().to_string();
        let arguments = ["--decision-log", &log, "--decision-log-key", &key, "--decision-log-origin=a/0"];
        let first = recorder(&arguments).unwrap();
        assert_eq!(first.log_status().unwrap().unwrap().vkey.unwrap().name(), "a/0", "as it is told to");
        first.record(Decision::new("validate", "u-1")).await.unwrap();
        first.close();
        drop(first);
        fs::write(lucid_audit::layout::segment(Path::new(&log), 0), "").unwrap();
        let error = recorder(&arguments).unwrap_err().to_string();
        assert!(error.starts_with("LUCID_DECISION_LOG: 1 records were sealed in "), "{error}");
        let alarm = [&arguments[..], &["--decision-log-on-failure=serve-and-alarm"]].concat();
        let alarm = recorder(&alarm).unwrap();
        assert!(alarm.log_status().unwrap_err().starts_with("1 records were sealed in "));
        assert!(alarm.record(Decision::new("validate", "u-2")).await.unwrap().is_none());
        // Configuration errors always fail, and the message names the remedy.
        let other = folder.path().join("other").display().to_string();
        let other = |more: &[&str]| recorder(&[&["--decision-log", &other], more].concat());
        let unsealed = other(&[]).unwrap();
        unsealed.record(Decision::new("validate", "u-1")).await.unwrap();
        drop(unsealed);
        let error = other(&["--decision-log-key", &key, "--decision-log-on-failure=serve-and-alarm"]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("never sealed") && error.ends_with("`lucid audit seal`"), "{error}");
        fs::write(&key, "PRIVATE+KEY+a+00000000+c2VjcmV0").unwrap();
        let error = recorder(&arguments).unwrap_err().to_string();
        assert!(error.starts_with("LUCID_DECISION_LOG_KEY: ") && !error.contains("c2VjcmV0"), "{error}");
    }
}
