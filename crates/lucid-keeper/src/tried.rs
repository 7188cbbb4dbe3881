//! Steps of this leader that were tried, to space repetitions. No I/O.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::act::Done;
use crate::fleet::RunningPod;
use crate::steps::Step;

/// First and longest pause after a step that had to wait or failed.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_mins(30);
/// Workloads to remember. More are forgotten together.
const MOST: usize = 10_000;

/// Namespace and workload.
type Key = (String, String);

/// Steps by workload.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Pauses, with their begin.
    paused: HashMap<Key, (Instant, Duration)>,
    /// Evictions and restarts: second, and images planned then. Younger pods that are not as planned either would be
    /// followed by others like them.
    replaced: HashMap<Key, (i64, Vec<String>)>,
}

impl Tried {
    pub(crate) fn may_act(&self, pod: &RunningPod, step: &Step) -> bool {
        let key = pod.workload_key();
        let is_paused = self.paused.get(&key).is_some_and(|(since, pause)| since.elapsed() < *pause);
        let is_successor = self.replaced.get(&key).is_some_and(|(second, planned)| {
            let created = pod.created.map_or(0, Timestamp::as_second);
            created >= *second && *planned == pod.comparison.planned
        });
        !(is_paused || is_successor && step.replaces())
    }

    #[cfg(test)]
    pub(crate) fn end_pauses(&mut self) {
        self.paused.clear();
    }

    pub(crate) fn note(&mut self, pod: &RunningPod, step: &Step, outcome: &Done) {
        let key = pod.workload_key();
        if self.paused.len() >= MOST || self.replaced.len() >= MOST {
            *self = Self::default();
        }
        let is_done = matches!(outcome, Done::Yes(_));
        if is_done && step.replaces() {
            let second = Timestamp::now().as_second();
            self.replaced.insert(key.clone(), (second, pod.comparison.planned.clone()));
        }
        let pause = match self.paused.get(&key) {
            Some((_, pause)) if !is_done => (*pause * 2).min(LONGEST),
            _ => FIRST,
        };
        // The status of a controller follows an eviction late, and the pods of a restart are created one by one.
        if !is_done || step.replaces() {
            self.paused.insert(key, (Instant::now(), pause));
        } else {
            self.paused.remove(&key);
        }
    }
}
