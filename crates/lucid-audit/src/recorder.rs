use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use prometheus_client::registry::Registry;
use snafu::Snafu;
use tokio::sync::{Semaphore, watch};
use tokio::time::{self, Instant};

use crate::anchor::Anchor;
use crate::budget::{self, Budget};
use crate::decision::{Decision, Record};
use crate::log::{AppendError, Log, LogStatus, OpenError, Options, Pending};
use crate::metrics::Metrics;
use crate::ring::{Entry, Ring};

/// Policy for decisions that the log cannot keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFailurePolicy {
    /// [`Recorder::record`] returns an error, so that the caller can deny the request. Nothing is allowed without a log
    /// record.
    #[default]
    Deny,
    /// The decision is kept in the ring only. Each occurrence is logged as an error and counted.
    ServeAndAlarm,
}

impl fmt::Display for LogFailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "deny",
            Self::ServeAndAlarm => "serve-and-alarm",
        })
    }
}

impl FromStr for LogFailurePolicy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "deny" => Ok(Self::Deny),
            "serve-and-alarm" => Ok(Self::ServeAndAlarm),
            _ => Err("expected deny or serve-and-alarm"),
        }
    }
}

/// Error for a decision that may not be in the log.
#[derive(Debug, Snafu)]
#[snafu(display("failed to keep the decision in the log: {source}"))]
#[non_exhaustive]
pub struct Unrecorded {
    /// The decision, for replacing it with another one.
    pub decision: Box<Decision>,
    /// Reason for the failure.
    pub source: AppendError,
    /// Handle of the record if the log may still keep it.
    pending: Option<Pending>,
}

/// Maximum number of unauthenticated callers waiting for the log. Fewer than its queue holds, so that authenticated callers
/// always find room.
const MOST_UNAUTHENTICATED: usize = 256;

/// Records decisions: the latest in memory, and all of them in a log if there is one.
///
/// Decisions are bounded; see [`Record`]. Those of [authenticated](Decision::authenticated) callers are separate from
/// others, which have as much room in memory and a [budget](Self::with_budget) for the log.
///
/// All methods take `&self`. Share a recorder in an [`Arc`].
#[derive(Debug)]
pub struct Recorder {
    ring: Ring,
    log: OnceLock<Log>,
    /// Reason why the log could not be opened.
    unavailable: ArcSwapOption<String>,
    ready: Arc<watch::Sender<bool>>,
    on_failure: LogFailurePolicy,
    patience: Duration,
    metrics: Metrics,
    budget: Budget,
    unauthenticated: Semaphore,
}

/// Reason for a failure, and the handle of the record if the log may still keep it.
type Failure = (AppendError, Option<Pending>);

impl Recorder {
    /// Creates a recorder that keeps the latest `capacity` decisions of authenticated callers in memory, and as many of
    /// others. Each takes at most 1,898 bytes as JSON; see [`Record`].
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            ring: Ring::new(capacity),
            log: OnceLock::new(),
            unavailable: ArcSwapOption::empty(),
            ready: Arc::new(watch::Sender::new(true)),
            on_failure: LogFailurePolicy::default(),
            patience: Duration::from_secs(1),
            metrics: Metrics::default(),
            budget: Budget::new(budget::RATE, budget::BURST),
            unauthenticated: Semaphore::new(MOST_UNAUTHENTICATED),
        }
    }

    /// Opens the log in `directory` and writes each decision to it from now on. Does nothing if a log is open already. Blocks
    /// on disk I/O.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be opened. The recorder then requires a log, which keeps no decision until another
    /// attempt succeeds. A retry may succeed after an error of kind [`Locked`](crate::log::OpenErrorKind::Locked) or
    /// [`Transient`](crate::log::OpenErrorKind::Transient).
    pub fn open_log(&self, directory: &Path, mut options: Options) -> Result<(), OpenError> {
        if self.log.get().is_some() {
            return Ok(());
        }
        options.metrics = self.metrics.clone();
        let log = Log::open(directory, options).inspect_err(|error| {
            self.unavailable.store(Some(Arc::new(error.to_string())));
            self.ready.send_replace(false);
            self.report_unavailable();
        })?;
        self.log.get_or_init(|| log).report_to(Arc::clone(&self.ready));
        Ok(())
    }

    /// Sets the policy for decisions that the log cannot keep (default [`LogFailurePolicy::Deny`]).
    #[must_use]
    pub const fn with_on_failure(mut self, on_failure: LogFailurePolicy) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets the budget of unauthenticated callers in bytes on disk: `rate` per second and `burst` at once (default 16 KiB and
    /// 64 MiB). A decision is charged with its line and, in a sealed log, its entry and hash.
    #[must_use]
    pub fn with_budget(mut self, rate: u64, burst: u64) -> Self {
        self.budget = Budget::new(rate, burst);
        self
    }

    /// Sets the time limit for writing one decision to the log (default 1 s).
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Registers metrics with `registry`. Call it before [`Self::open_log`].
    ///
    /// | metric | labels | |
    /// |---|---|---|
    /// | `audit_records_total` | | records kept in the log |
    /// | `audit_commits_total` | | groups in which records were written |
    /// | `audit_bytes_total` | | bytes of the kept lines |
    /// | `audit_fsync_seconds` | | duration of flushing a group to disk |
    /// | `audit_size` | | number of records in the log |
    /// | `audit_sealed_size` | | number of records covered by the checkpoint |
    /// | `audit_cosigned_size` | | number of records covered by a checkpoint that a witness has cosigned |
    /// | `audit_failures_total` | kind | decisions missing from the log, by reason (`full`, `write`, `sync`, `lost`, `closed`, `unfit`, `late`, `unavailable`, `budget`), and failures to `seal` and `prune` |
    /// | `audit_state` | state | 1 for the current state of the log, 0 for the others |
    ///
    /// States are `off` (no log), `ok`, `failing` (records cannot be kept), `unsealed` (records are kept, but the last attempt to
    /// seal them failed), `unpruned` (the last attempt to remove old ones failed) and `unavailable` (the log could not be
    /// opened).
    #[must_use]
    pub fn with_metrics(mut self, registry: &mut Registry) -> Self {
        self.metrics = Metrics::new(registry);
        self.report_unavailable();
        self
    }

    /// Reports the state of an unavailable log. An open log reports its own.
    fn report_unavailable(&self) {
        if self.unavailable.load().is_some() && self.log.get().is_none() {
            self.metrics.state("unavailable");
        }
    }

    /// Returns a receiver for a readiness probe that is `true` while the log accepts decisions. `None` with
    /// [`LogFailurePolicy::ServeAndAlarm`], since [`Self::record`] does not fail then.
    #[must_use]
    pub fn ready(&self) -> Option<watch::Receiver<bool>> {
        (self.on_failure == LogFailurePolicy::Deny).then(|| self.ready.subscribe())
    }

    /// Records a decision. Returns its position in the log once it is kept there, or `None` without a log.
    ///
    /// The decision is in the ring afterwards, even if the returned future is dropped early.
    ///
    /// # Errors
    ///
    /// Returns an error if the log does not keep the decision and the policy is [`LogFailurePolicy::Deny`]. The decision is not in
    /// the ring then. Record the replacement with [`Self::overrule`], or the same decision with [`Self::remember`].
    pub async fn record(&self, decision: impl Into<Record>) -> Result<Option<Anchor>, Unrecorded> {
        self.record_within(decision, self.patience).await
    }

    /// Records a decision like [`Self::record`], but waits at most `patience` if that is shorter than the configured limit.
    ///
    /// # Errors
    ///
    /// See [`Self::record`].
    pub async fn record_within(
        &self,
        decision: impl Into<Record>,
        patience: Duration,
    ) -> Result<Option<Anchor>, Unrecorded> {
        let patience = patience.min(self.patience);
        let mut entry = Unfinished { ring: &self.ring, record: Some(Box::new(decision.into())) };
        let Some(record) = &entry.record else { return Ok(None) };
        let (source, pending) = match self.append(record, patience).await {
            Ok(anchor) => {
                entry.finish(anchor);
                return Ok(anchor);
            }
            Err(failure) => failure,
        };
        self.metrics.failed(source.kind());
        let Some(record) = entry.record.take() else { return Ok(None) };
        if self.on_failure == LogFailurePolicy::Deny {
            let decision = Box::new(record.decision);
            return Err(Unrecorded { decision, source, pending });
        }
        let also = if pending.is_some() { ", and may come to be in the log" } else { " only" };
        tracing::error!(
            uid = record.uid,
            webhook = record.webhook,
            "failed to keep the decision in the log: {source}; it is in memory{also}"
        );
        self.ring.push(*record, None);
        Ok(None)
    }

    /// Records the replacement of a decision that could not be recorded. The caller has changed the decision in `unrecorded`
    /// accordingly. The replacement is added to the ring. If the first decision was on its way into the log, it is either
    /// withdrawn or superseded by a record of the replacement, which refers to it.
    pub fn overrule(&self, unrecorded: Unrecorded) {
        let Unrecorded { decision, pending, .. } = unrecorded;
        let record = Record::from(*decision);
        if let (Some(pending), Some(log)) = (pending, self.log()) {
            // Charge the superseding record, including its reference.
            let written = Record::from(Decision { overrules: Some(u64::MAX), ..record.decision.clone() });
            let is_written = log.replace(pending, Box::new(record.decision.clone()));
            if is_written && !record.authenticated {
                self.budget.owe(log.on_disk(written.json.len()), Instant::now());
            }
        }
        self.ring.push(record, None);
    }

    /// Keeps a decision in memory only.
    pub fn remember(&self, decision: impl Into<Record>) {
        self.ring.push(decision.into(), None);
    }

    /// Returns the decisions in memory, oldest first. Does not block recording.
    #[must_use]
    pub fn latest(&self) -> Vec<Arc<Entry>> {
        self.ring.since(0)
    }

    /// Returns the log if one is open.
    #[must_use]
    pub fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    /// Returns the status of the log, or `None` without one.
    ///
    /// # Errors
    ///
    /// Returns the reason if the log could not be opened.
    pub fn log_status(&self) -> Result<Option<LogStatus>, String> {
        match (self.log(), self.unavailable()) {
            (Some(log), _) => Ok(Some(log.status())),
            (None, Some(reason)) => Err(reason),
            (None, None) => Ok(None),
        }
    }

    fn unavailable(&self) -> Option<String> {
        self.unavailable.load().as_deref().cloned()
    }

    /// Writes and seals all recorded decisions, then closes the log. Blocks on disk I/O.
    pub fn close(&self) {
        if let Some(log) = self.log() {
            log.close();
        }
    }

    async fn append(&self, record: &Record, patience: Duration) -> Result<Option<Anchor>, Failure> {
        let Some(log) = self.log() else {
            return self
                .unavailable()
                .map_or(Ok(None), |reason| Err((AppendError::Unavailable { reason }, None)));
        };
        let late = |pending| (AppendError::Late { patience }, pending);
        let report_late = || {
            // A shorter limit of the caller does not indicate a slow disk.
            if patience == self.patience {
                log.report_late(patience);
            }
        };
        let deadline = Instant::now() + patience;
        let _place = if record.authenticated {
            None
        } else {
            if !self.budget.take(log.on_disk(record.json.len()), Instant::now()) {
                return Err((AppendError::Budget, None));
            }
            let place = time::timeout_at(deadline, self.unauthenticated.acquire());
            Some(place.await.map_err(|_| late(None))?)
        };
        // A record that times out here was not enqueued.
        let put =
            time::timeout_at(deadline, log.put(record.json.to_vec())).await.inspect_err(|_| report_late());
        let mut pending = put.map_err(|_| late(None))?.map_err(|error| (error, None))?;
        match time::timeout_at(deadline, pending.kept()).await {
            Ok(kept) => kept.map(Some).map_err(|error| (error, None)),
            Err(_) => {
                report_late();
                Err(late(Some(pending)))
            }
        }
    }
}

/// Decision on its way into the ring.
struct Unfinished<'a> {
    ring: &'a Ring,
    record: Option<Box<Record>>,
}

impl Unfinished<'_> {
    fn finish(&mut self, anchor: Option<Anchor>) {
        if let Some(record) = self.record.take() {
            self.ring.push(*record, anchor);
        }
    }
}

/// Adds the decision when the future is dropped, such as after the client disconnects.
impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.finish(None);
    }
}
