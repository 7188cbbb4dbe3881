use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use snafu::Snafu;
use tokio::sync::{Semaphore, watch};
use tokio::time::{self, Instant};

use crate::anchor::Anchor;
use crate::budget::{self, Budget};
use crate::decision::Decision;
use crate::log::{AppendError, Log, LogStatus, OpenError, Options, Pending};
use crate::metrics::Metrics;
use crate::ring::{Entry, Ring};

/// What becomes of a decision that cannot be kept in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// [`Recorder::record`] fails, so that who decided can refuse: nothing happens that is not in the log.
    #[default]
    Deny,
    /// It is in the ring only. An error is logged and counted for each.
    ServeAndAlarm,
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "deny",
            Self::ServeAndAlarm => "serve-and-alarm",
        })
    }
}

/// The text is no [`OnFailure`].
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("accepted are deny and serve-and-alarm"))]
pub struct ParseOnFailureError;

impl FromStr for OnFailure {
    type Err = ParseOnFailureError;

    fn from_str(text: &str) -> Result<Self, ParseOnFailureError> {
        match text {
            "deny" => Ok(Self::Deny),
            "serve-and-alarm" => Ok(Self::ServeAndAlarm),
            _ => Err(ParseOnFailureError),
        }
    }
}

/// Why a decision is not in the log.
#[derive(Clone, Debug, Snafu)]
#[non_exhaustive]
pub enum RecordError {
    /// The log does not take it.
    #[snafu(display("failed to keep the decision in the log: {source}"))]
    Append {
        /// Why.
        source: AppendError,
    },
    /// The disk has not said yet that it has it.
    #[snafu(display("failed to keep the decision in the log: the disk took longer than {} ms", patience.as_millis()))]
    Late {
        /// How long was waited.
        patience: Duration,
    },
    /// There is no log that could be written to.
    #[snafu(display("failed to keep the decision in the log: {reason}"))]
    Unavailable {
        /// Why it could not be opened.
        reason: String,
    },
    /// Unauthenticated callers have used up what they may add to the log.
    #[snafu(display(
        "failed to keep the decision in the log: callers without a client certificate have used up their budget"
    ))]
    Budget,
    /// It has no JSON.
    #[snafu(display("failed to write the decision as JSON: {reason}"))]
    Json {
        /// What is wrong with it.
        reason: String,
    },
}

impl RecordError {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Append { source } => source.kind(),
            Self::Late { .. } => "late",
            Self::Unavailable { .. } => "unavailable",
            Self::Budget => "budget",
            Self::Json { .. } => "unfit",
        }
    }
}

/// A decision that is not known to be in the log.
#[derive(Debug, Snafu)]
#[snafu(display("{source}"))]
#[non_exhaustive]
pub struct Unrecorded {
    /// The decision, for who decides something else now.
    pub decision: Box<Decision>,
    /// Why it is not.
    pub source: RecordError,
    /// The log may come to have it all the same.
    pending: Option<Pending>,
}

/// Maximum number of decisions of unauthenticated callers that wait for the log. Its queue has room for more: authenticated
/// callers always get into it.
const MOST_UNAUTHENTICATED: usize = 256;

/// Keeps decisions: the latest in memory, all of them in a log if there is one.
///
/// Decisions are [bounded](Decision::bounded). Those of [authenticated](Decision::authenticated) callers are kept apart from
/// others: others have as much room in memory, and a [budget](Self::budget) for the log.
///
/// All methods take `&self`; share it in an [`Arc`].
#[derive(Debug)]
pub struct Recorder {
    ring: Ring,
    log: OnceLock<Log>,
    /// Why there is no log yet.
    unavailable: Option<String>,
    ready: Arc<watch::Sender<bool>>,
    on_failure: OnFailure,
    patience: Duration,
    metrics: Metrics,
    budget: Budget,
    unauthenticated: Semaphore,
}

/// Why a decision is not known to be in the log, and whether it may come to be.
type Failure = (RecordError, Option<Pending>);

impl Recorder {
    /// Keeps the latest `capacity` decisions of authenticated callers in memory, and as many of others, each of at most
    /// [`LONGEST_DECISION`](crate::LONGEST_DECISION) bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            ring: Ring::new(capacity),
            log: OnceLock::new(),
            unavailable: None,
            ready: Arc::new(watch::Sender::new(true)),
            on_failure: OnFailure::default(),
            patience: Duration::from_secs(1),
            metrics: Metrics::default(),
            budget: Budget::new(budget::RATE, budget::BURST),
            unauthenticated: Semaphore::new(MOST_UNAUTHENTICATED),
        }
    }

    /// Also keeps each in a log.
    #[must_use]
    pub fn with_log(mut self, log: Log) -> Self {
        log.report_to(Arc::clone(&self.ready));
        self.log = OnceLock::from(log);
        self
    }

    /// A log is required, but cannot be opened for this `reason`. No decision can be recorded until [`Self::open_log`] succeeds.
    #[must_use]
    pub fn with_unavailable_log(mut self, reason: impl Into<String>) -> Self {
        self.log = OnceLock::new();
        self.unavailable = Some(reason.into());
        self.ready.send_replace(false);
        self.tell();
        self
    }

    /// Opens the log in `directory`, and keeps each decision there from now on. With a log already, nothing happens. Blocks for
    /// as long as the disk takes.
    ///
    /// # Errors
    ///
    /// When it cannot be opened. After an error that [is transient](OpenError::is_transient) the next attempt may succeed.
    pub fn open_log(&self, directory: &Path, options: Options) -> Result<(), OpenError> {
        if self.log.get().is_some() {
            return Ok(());
        }
        // An attempt that fails may have set the metric as for a log that is there.
        let log = Log::open(directory, options).inspect_err(|_| self.tell())?;
        self.log.get_or_init(|| log).report_to(Arc::clone(&self.ready));
        Ok(())
    }

    /// What becomes of a decision that the log does not take; [`OnFailure::Deny`] otherwise.
    #[must_use]
    pub const fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// How much callers without authentication may add to the log, in bytes on the disk: `rate` a second, and `burst` at once.
    /// 16 KiB and 64 MiB otherwise. A decision counts with its line, and in a sealed log with its entry and its hash.
    #[must_use]
    pub fn budget(mut self, rate: u64, burst: u64) -> Self {
        self.budget = Budget::new(rate, burst);
        self
    }

    /// How long the log may take for one decision; 1 s otherwise.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Where it is counted; nowhere otherwise.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self.tell();
        self
    }

    /// The state of a log that is there is told by the log itself.
    fn tell(&self) {
        if self.unavailable.is_some() && self.log.get().is_none() {
            self.metrics.state("unavailable");
        }
    }

    /// Follows whether decisions can be recorded, for a probe of readiness. `None` when that never makes [`Self::record`] fail:
    /// the policy is [`OnFailure::ServeAndAlarm`].
    #[must_use]
    pub fn ready(&self) -> Option<watch::Receiver<bool>> {
        (self.on_failure == OnFailure::Deny).then(|| self.ready.subscribe())
    }

    /// Records a decision, and returns where it is in the log, if there is one, when it is kept there.
    ///
    /// It is in the ring then, and also when the returned future is dropped before.
    ///
    /// # Errors
    ///
    /// When the log does not keep it and the policy is [`OnFailure::Deny`]. It is not in the ring then: what is decided
    /// instead belongs there, by [`Self::overrule`], or by [`Self::remember`] if it is the same.
    pub async fn record(&self, decision: Decision) -> Result<Option<Anchor>, Unrecorded> {
        self.record_within(decision, self.patience).await
    }

    /// As [`Self::record`], for who can wait only that long, if that is shorter.
    ///
    /// # Errors
    ///
    /// As for [`Self::record`].
    pub async fn record_within(
        &self,
        decision: Decision,
        patience: Duration,
    ) -> Result<Option<Anchor>, Unrecorded> {
        let patience = patience.min(self.patience);
        let mut entry = Unfinished { ring: &self.ring, decision: Some(Box::new(decision.bounded())) };
        let Some(decision) = &entry.decision else { return Ok(None) };
        let (source, pending) = match self.append(decision, patience).await {
            Ok(anchor) => {
                entry.finish(anchor);
                return Ok(anchor);
            }
            Err(failure) => failure,
        };
        self.metrics.failed(source.kind());
        let Some(decision) = entry.decision.take() else { return Ok(None) };
        if self.on_failure == OnFailure::Deny {
            return Err(Unrecorded { decision, source, pending });
        }
        let also = if pending.is_some() { ", and may come to be in the log" } else { " only" };
        tracing::error!(uid = decision.uid, webhook = decision.webhook, "{source}; it is in memory{also}");
        self.ring.push(*decision, None);
        Ok(None)
    }

    /// Keeps what was decided instead of a decision that could not be recorded: `unrecorded`, whose decision was changed to
    /// that. It is in memory; and where the first one was on its way into the log, it is taken back: it does not come to be
    /// written, or this one is written behind it and [says so](Decision::overrules).
    pub fn overrule(&self, unrecorded: Unrecorded) {
        let Unrecorded { decision, pending, .. } = unrecorded;
        let decision = Box::new(decision.bounded());
        if let (Some(pending), Some(log)) = (pending, self.log()) {
            // As it is written: with a number in it.
            let written = Decision { overrules: Some(u64::MAX), ..(*decision).clone() };
            let is_written = log.replace(pending, decision.clone());
            if is_written && !decision.authenticated {
                let length = written.to_record().map_or(0, |record| record.len());
                self.budget.owe(log.on_disk(length), Instant::now());
            }
        }
        self.ring.push(*decision, None);
    }

    /// Keeps a decision in memory only.
    pub fn remember(&self, decision: Decision) {
        self.ring.push(decision.bounded(), None);
    }

    /// The decisions in memory, oldest first. Nobody who records waits for who reads.
    #[must_use]
    pub fn latest(&self) -> Vec<Arc<Entry>> {
        self.ring.since(0)
    }

    /// The decisions in memory that came after the one with this [number](Entry::number), oldest first.
    #[must_use]
    pub fn since(&self, number: u64) -> Vec<Arc<Entry>> {
        self.ring.since(number)
    }

    /// The number of the latest decision, to wait for the next; 0 before the first.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.ring.watch()
    }

    /// The log, if there is one that can be written to.
    #[must_use]
    pub fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    /// How the log is, for who watches it; none without one.
    ///
    /// # Errors
    ///
    /// When there should be a log: why there is none.
    pub fn log_status(&self) -> Result<Option<LogStatus>, &str> {
        match (self.log(), &self.unavailable) {
            (Some(log), _) => Ok(Some(log.status())),
            (None, Some(reason)) => Err(reason),
            (None, None) => Ok(None),
        }
    }

    /// Writes and seals what was recorded, and closes the log. Blocks for as long as the disk takes.
    pub fn close(&self) {
        if let Some(log) = self.log() {
            log.close();
        }
    }

    async fn append(&self, decision: &Decision, patience: Duration) -> Result<Option<Anchor>, Failure> {
        let log = match (self.log(), &self.unavailable) {
            (Some(log), _) => log,
            (None, Some(reason)) => {
                return Err((RecordError::Unavailable { reason: reason.clone() }, None));
            }
            (None, None) => return Ok(None),
        };
        let record = decision.to_record();
        let record = record.map_err(|error| (RecordError::Json { reason: error.to_string() }, None))?;
        let appended = |source| (RecordError::Append { source }, None);
        let late = |pending| (RecordError::Late { patience }, pending);
        let report_late = || {
            // A caller with less time says nothing of the disk.
            if patience == self.patience {
                log.report_late(patience);
            }
        };
        let deadline = Instant::now() + patience;
        let _place = if decision.authenticated {
            None
        } else {
            if !self.budget.take(log.on_disk(record.len()), Instant::now()) {
                return Err((RecordError::Budget, None));
            }
            let place = time::timeout_at(deadline, self.unauthenticated.acquire());
            Some(place.await.map_err(|_| late(None))?)
        };
        // What does not get into the queue in time is not in it.
        let put = time::timeout_at(deadline, log.put(record)).await.inspect_err(|_| report_late());
        let mut pending = put.map_err(|_| late(None))?.map_err(appended)?;
        match time::timeout_at(deadline, pending.kept()).await {
            Ok(kept) => kept.map(Some).map_err(appended),
            Err(_) => {
                report_late();
                Err(late(Some(pending)))
            }
        }
    }
}

/// A decision on its way into the ring.
struct Unfinished<'a> {
    ring: &'a Ring,
    decision: Option<Box<Decision>>,
}

impl Unfinished<'_> {
    fn finish(&mut self, anchor: Option<Anchor>) {
        if let Some(decision) = self.decision.take() {
            self.ring.push(*decision, anchor);
        }
    }
}

/// Who decided waits no more, because the caller does not.
impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.finish(None);
    }
}
