use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Clocks have an end, and to add to a time beyond it is a panic: `Duration::MAX` means a hundred years.
const LONGEST_PAUSE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What a circuit is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Everything passes.
    Closed,
    /// Nothing passes.
    Open,
    /// One ask is on its way, to find out.
    HalfOpen,
}

impl State {
    pub(crate) const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The state that all asks share.
#[derive(Debug)]
pub(super) struct Circuit {
    failures: u32,
    pause: Duration,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    state: State,
    /// In a row, while closed.
    failed: u32,
    /// While open.
    until: Instant,
    /// Changes with each state: an ask that began in another one has no say.
    generation: u64,
}

impl Now {
    fn enter(&mut self, state: State, until: Instant) {
        *self = Self { state, failed: 0, until, generation: self.generation + 1 };
    }
}

/// An ask that was let through.
#[derive(Debug)]
pub(super) struct Ticket {
    generation: u64,
}

impl Circuit {
    pub(super) fn new(failures: u32, pause: Duration) -> Self {
        let now = Now { state: State::Closed, failed: 0, until: Instant::now(), generation: 0 };
        Self { failures, pause: pause.min(LONGEST_PAUSE), now: Mutex::new(now) }
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> State {
        self.lock().state
    }

    /// Lets an ask through, or tells for how long none is.
    pub(super) fn begin(&self, at: Instant) -> Result<Ticket, Duration> {
        let mut now = self.lock();
        match now.state {
            State::Closed => {}
            State::Open if at >= now.until => now.enter(State::HalfOpen, at),
            State::Open => return Err(now.until.saturating_duration_since(at)),
            State::HalfOpen => return Err(Duration::ZERO),
        }
        Ok(Ticket { generation: now.generation })
    }

    /// An ask has shown whether the Verifier is out of order.
    pub(super) fn end(&self, ticket: &Ticket, is_outage: bool, at: Instant) {
        let mut now = self.lock();
        if ticket.generation != now.generation {
            return;
        }
        match (now.state, is_outage) {
            (State::Closed, false) => now.failed = 0,
            (State::HalfOpen, false) => now.enter(State::Closed, at),
            (State::Closed, true) if now.failed + 1 < self.failures => now.failed += 1,
            (State::Closed | State::HalfOpen, true) => now.enter(State::Open, at + self.pause),
            // Nothing was let through in this state.
            (State::Open, _) => {}
        }
    }

    /// An ask was dropped. If it was the probe, the next one is.
    pub(super) fn abandon(&self, ticket: &Ticket, at: Instant) {
        let mut now = self.lock();
        if ticket.generation == now.generation && now.state == State::HalfOpen {
            now.enter(State::Open, at);
        }
    }
}
