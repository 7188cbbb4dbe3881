//! A target and its readings.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::{
    bundle::TrustBundle,
    last_problem::LastProblem,
    metrics::Metrics,
    target::{Contention, Reading, Target, TargetError},
};

/// Reconcile interval while nothing changes; due times are then evaluated by the wall clock.
pub(super) const INTERVAL: Duration = Duration::from_mins(1);

pub(super) const MIN_PAUSE: Duration = Duration::from_millis(50);

/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(10);

const TIMEOUT: Duration = Duration::from_secs(10);

const CONFLICT_WARNING_THRESHOLD: u32 = 8;

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Bundle(TrustBundle),
    /// Any bundle, because it is managed externally.
    External,
}

impl Wanted {
    fn is_held_by(&self, reading: &Reading) -> bool {
        match self {
            Self::Bundle(bundle) => reading.holds(bundle),
            Self::External => !reading.stale,
        }
    }
}

pub(super) struct DrivenTarget {
    target: Target,
    /// Reading at the start of the round; `None` if the target could not be read.
    pub(super) before: Option<Reading>,
    pub(super) after: Option<Reading>,
    /// Last successful reading. Callers still have that bundle while the target cannot be read.
    pub(super) known: Option<Reading>,
    contention: Contention,
    /// Wanted content that the target was last seen to hold.
    held: Option<Wanted>,
    conflicts: u32,
    last_problem: LastProblem,
}

impl DrivenTarget {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            before: None,
            after: None,
            known: None,
            contention: Contention::default(),
            held: None,
            conflicts: 0,
            last_problem: LastProblem::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.target.0.name()
    }

    pub(super) async fn read(&mut self, metrics: &Metrics) {
        let reading = timeout(TIMEOUT, self.target.0.read()).await;
        let reading = reading.unwrap_or_else(|_| Err(self.timed_out("get")));
        if reading.is_err() {
            metrics.publication(self.name(), "error");
        }
        self.note(reading);
        self.before.clone_from(&self.after);
    }

    /// Writes `wanted` unless the target holds it. Returns when to retry.
    pub(super) async fn publish(&mut self, wanted: &Wanted, metrics: &Metrics) -> Duration {
        let Some(reading) = &self.before else { return INTERVAL };
        let name = self.target.0.name();
        let bundle = match wanted {
            Wanted::Bundle(bundle) => Some(bundle),
            Wanted::External => None,
        };
        let count = |result| {
            if bundle.is_some() {
                metrics.publication(name, result);
            }
        };
        if wanted.is_held_by(reading) {
            count("unchanged");
            self.held = Some(wanted.clone());
            return INTERVAL;
        }
        // Drift: the target held `wanted` before. The first repair is immediate.
        let is_healing = self.held.as_ref() == Some(wanted);
        let pause = if is_healing { self.contention.heal_after(Instant::now()) } else { Duration::ZERO };
        if !pause.is_zero() {
            return pause.min(INTERVAL);
        }
        let is_drift = is_healing && bundle.is_some_and(|bundle| !reading.holds_bytes_of(bundle));
        let write = async {
            match bundle {
                Some(bundle) => self.target.0.write(bundle, reading).await.map(Some),
                None => self.target.0.restore(reading).await,
            }
        };
        let outcome = match timeout(TIMEOUT, write).await {
            Ok(Ok(None)) => return INTERVAL,
            Ok(outcome) => outcome.map(Option::unwrap_or_default),
            Err(_) => Err(self.timed_out("write")),
        };
        match &outcome {
            Ok(written) => {
                self.conflicts = 0;
                count("written");
                self.held = Some(wanted.clone());
                if is_drift {
                    metrics.drift_healed(name);
                }
                if is_healing {
                    let owners = reading.other_owners.join(", ");
                    match reading.version() {
                        Some(_) => warn!(target = name, owners, "changed by another manager; restored"),
                        None => warn!(target = name, "deleted; restored"),
                    }
                } else {
                    let authorities = bundle.into_iter().flat_map(TrustBundle::fingerprints);
                    let authorities: Vec<_> = authorities.map(|it| it.to_string()).collect();
                    info!(target = name, ?authorities, "written");
                }
                // A target that is overwritten during the write must not cause a write loop either.
                let is_contended = is_healing || !wanted.is_held_by(written);
                // Differences besides the bundle are not reported: replicas with different settings may cause
                // them.
                if is_contended && self.contention.note_healed(Instant::now()) && is_drift {
                    warn!(target = name, "another manager keeps changing it; restoring it once a minute");
                    timeout(TIMEOUT, self.target.0.report_contention(reading)).await.ok();
                }
            }
            Err(TargetError::Changed { .. }) => {
                debug!(target = name, "write conflict");
                count("conflict");
                let pause = MIN_PAUSE * 2u32.saturating_pow(self.conflicts.min(10));
                self.conflicts = self.conflicts.saturating_add(1);
                if self.conflicts == CONFLICT_WARNING_THRESHOLD {
                    let conflicts = self.conflicts;
                    warn!(target = name, conflicts, "every write conflicts; retrying with backoff");
                }
                // The last reading counts until the next one.
                return pause.min(INTERVAL);
            }
            Err(_) => {
                count("error");
                let holds_bundle = bundle.is_none_or(|bundle| reading.holds_bytes_of(bundle));
                let before = holds_bundle.then(|| reading.clone());
                self.note(outcome);
                // The certificates do not wait for the rest of the object.
                self.after = before;
                return RETRY;
            }
        }
        self.note(outcome);
        INTERVAL
    }

    /// Records the result of a request. Logs an error once, not in every round.
    fn note(&mut self, outcome: Result<Reading, TargetError>) {
        self.after = match outcome {
            Ok(reading) => {
                if self.last_problem.resolve() {
                    info!(target = self.name(), "the target works again");
                }
                self.known = Some(reading.clone());
                Some(reading)
            }
            Err(error) => {
                let problem = lucid_text::with_causes(&error);
                if self.last_problem.is_new(&problem) {
                    warn!("{problem}");
                }
                None
            }
        };
    }

    fn timed_out(&self, action: &'static str) -> TargetError {
        TargetError::TimedOut { action, target: self.name().to_owned(), timeout: TIMEOUT }
    }
}
