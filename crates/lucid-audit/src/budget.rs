use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Bytes a second. A log takes twice that on disk, in segments and tiles: 10 GiB last for 3 days.
pub(crate) const RATE: u64 = 16 << 10;
/// Bytes at once: a minute of 200 pods a second, each with three decisions of 1.8 kB.
pub(crate) const BURST: u64 = 64 << 20;

/// A token bucket of bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    rate: u64,
    burst: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes: u64,
    /// Up to when `bytes` was filled.
    filled: Instant,
}

impl Budget {
    pub(crate) fn new(rate: u64, burst: u64) -> Self {
        Self { rate, burst, state: Mutex::new(State { bytes: burst, filled: Instant::now() }) }
    }

    /// Takes `bytes` out if there are as many.
    pub(crate) fn take(&self, bytes: usize, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = now.saturating_duration_since(state.filled).as_secs();
        state.filled += Duration::from_secs(seconds);
        state.bytes = state.bytes.saturating_add(seconds.saturating_mul(self.rate)).min(self.burst);
        let left = u64::try_from(bytes).ok().and_then(|bytes| state.bytes.checked_sub(bytes));
        state.bytes = left.unwrap_or(state.bytes);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let days = ((10_u64 << 30) / 2 - BURST) / RATE / 86_400;
        assert!(days >= 3, "{days}");
        const { assert!(60 * 200 * 3 * 1_800 <= BURST) };
    }
}
