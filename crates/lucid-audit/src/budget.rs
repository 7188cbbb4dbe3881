use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Sustained rate in bytes on disk per second: 10 GiB last for 7 days.
pub(crate) const RATE: u64 = 16 << 10;
/// Burst in bytes on disk: one minute of 200 pods per second with three decisions of 0.8 kB each.
pub(crate) const BURST: u64 = 64 << 20;

/// Token bucket of bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    rate: i64,
    burst: i64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Negative while there is debt.
    bytes: i64,
    filled: Instant,
}

impl Budget {
    pub(crate) fn new(rate: u64, burst: u64) -> Self {
        let (rate, burst) = (signed(rate), signed(burst));
        Self { rate, burst, state: Mutex::new(State { bytes: burst, filled: Instant::now() }) }
    }

    /// Takes `bytes` if available. Returns `false` otherwise.
    pub(crate) fn take(&self, bytes: u64, now: Instant) -> bool {
        let mut state = self.fill(now);
        let enough = signed(bytes) <= state.bytes;
        if enough {
            state.bytes -= signed(bytes);
        }
        enough
    }

    /// Takes `bytes` unconditionally. Refills repay the resulting debt first.
    pub(crate) fn owe(&self, bytes: u64, now: Instant) {
        let mut state = self.fill(now);
        state.bytes = state.bytes.saturating_sub(signed(bytes));
    }

    fn fill(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = now.saturating_duration_since(state.filled).as_secs();
        state.filled += Duration::from_secs(seconds);
        let filled = signed(seconds).saturating_mul(self.rate);
        state.bytes = state.bytes.saturating_add(filled).min(self.burst);
        state
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let budget = Budget::new(RATE, BURST);
        let begin = budget.state.lock().unwrap().filled;
        let taken = |seconds| {
            let now = begin + Duration::from_secs(seconds);
            (0_u64..).take_while(|_| budget.take(1 << 10, now)).count() as u64
        };
        assert_eq!(taken(0), BURST >> 10);
        assert_eq!(taken(0), 0);
        assert_eq!(taken(10), 10 * (RATE >> 10));
        assert_eq!(taken(1_000_000), BURST >> 10, "no more than a burst is saved");
    }

    #[test]
    fn ten_gibibytes_last_for_days_and_a_burst_of_pods_fits() {
        let days = ((10_u64 << 30) - BURST) / RATE / 86_400;
        assert_eq!(days, 7);
        assert!(60 * 200 * 3 * layout::on_disk(800, true) <= BURST);
    }

    #[test]
    fn debts_are_paid_before_new_records_are_admitted() {
        let budget = Budget::new(10, 100);
        let begin = budget.state.lock().unwrap().filled;
        assert!(budget.take(90, begin));
        budget.owe(30, begin);
        let taken = |seconds| budget.take(1, begin + Duration::from_secs(seconds));
        assert_eq!([0, 2, 3].map(taken), [false, false, true]);
    }
}
