//! A target and its readings.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::{
    bundle::TrustBundle,
    last_problem::LastProblem,
    metrics::Metrics,
    target::{Contention, Reading, TargetError, TrustTarget},
};

/// Reconcile interval while nothing changes; due times are then evaluated by the wall clock.
pub(super) const INTERVAL: Duration = Duration::from_mins(1);

pub(super) const MIN_PAUSE: Duration = Duration::from_millis(50);

/// Timeout of a request about one target.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of consecutive conflicts at which a warning is logged.
const CONFLICT_WARNING_THRESHOLD: u32 = 8;

pub(super) struct Target {
    target: Arc<dyn TrustTarget>,
    /// Reading at the start of the round; `None` if the target could not be read.
    pub(super) before: Option<Reading>,
    /// Reading after the bundle was written.
    pub(super) after: Option<Reading>,
    /// Last successful reading. Callers still have that bundle while the target cannot be read.
    pub(super) known: Option<Reading>,
    contention: Contention,
    /// The wanted bundle that the target was last seen to hold.
    held: Option<TrustBundle>,
    conflicts: u32,
    last_problem: LastProblem,
}

impl Target {
    pub(super) fn new(target: Arc<dyn TrustTarget>) -> Self {
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
        self.target.name()
    }

    pub(super) async fn read(&mut self, metrics: &Metrics) {
        let reading = timeout(TIMEOUT, self.target.read()).await;
        let reading = reading.unwrap_or_else(|_| Err(self.timed_out("get")));
        if reading.is_err() {
            metrics.publication(self.name(), "error");
        }
        self.note(reading);
        self.before.clone_from(&self.after);
    }

    /// Writes `wanted` unless the target holds it. Returns when to retry.
    pub(super) async fn publish(&mut self, wanted: &TrustBundle, metrics: &Metrics) -> Duration {
        let Some(reading) = &self.before else { return INTERVAL };
        let name = self.target.name();
        if reading.holds(wanted) {
            metrics.publication(name, "unchanged");
            self.held = Some(wanted.clone());
            return INTERVAL;
        }
        // Drift: the target held `wanted` before. The first repair is immediate.
        let is_healing = self.held.as_ref() == Some(wanted);
        let pause = if is_healing { self.contention.heal_after(Instant::now()) } else { Duration::ZERO };
        if !pause.is_zero() {
            return pause.min(INTERVAL);
        }
        let is_drift = is_healing && !reading.holds_bytes_of(wanted);
        let outcome = timeout(TIMEOUT, self.target.write(wanted, reading)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(self.timed_out("write")));
        match &outcome {
            Ok(written) => {
                self.conflicts = 0;
                metrics.publication(name, "written");
                self.held = Some(wanted.clone());
                if is_drift {
                    metrics.drift_healed(name);
                }
                if is_healing {
                    let owners = reading.other_owners.join(", ");
                    warn!(target = name, owners, "changed by another manager; restored");
                } else {
                    let authorities: Vec<_> = wanted.fingerprints().map(|it| it.to_string()).collect();
                    info!(target = name, ?authorities, "trust bundle published");
                }
                // A target that is overwritten during the write must not cause a write loop either.
                let is_contended = is_healing || !written.holds(wanted);
                // Differences besides the bundle are not reported: replicas with different settings may cause
                // them.
                if is_contended && self.contention.note_healed(Instant::now()) && is_drift {
                    warn!(target = name, "another manager keeps changing it; restoring it once a minute");
                    timeout(TIMEOUT, self.target.report_contention(reading)).await.ok();
                }
            }
            Err(TargetError::Changed { .. }) => {
                debug!(target = name, "write conflict");
                metrics.publication(name, "conflict");
                let pause = MIN_PAUSE * 2u32.saturating_pow(self.conflicts.min(10));
                self.conflicts = self.conflicts.saturating_add(1);
                if self.conflicts == CONFLICT_WARNING_THRESHOLD {
                    let conflicts = self.conflicts;
                    warn!(target = name, conflicts, "every write conflicts; retrying with backoff");
                }
                // The last reading counts until the next one.
                return pause.min(INTERVAL);
            }
            Err(_) => metrics.publication(name, "error"),
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
                let problem = crate::chain(&error);
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
