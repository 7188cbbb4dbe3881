//! State and timeouts of a connection.
//!
//! hyper's header timeout also runs while a connection idles, so it would close connections that the API server keeps
//! for its next call. Here the timeout for the headers of a request starts with their first byte.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Periods {
    pub(crate) handshake: Duration,
    /// The headers of a request, from their first byte.
    pub(crate) headers: Duration,
    /// Between a response and the next request. The API server keeps an idle connection for 90 s. It has to close
    /// first: a POST sent while this server closes is lost.
    pub(crate) idle: Duration,
    /// Writing without progress.
    pub(crate) stall: Duration,
    /// Writing a whole response. The API server's timeouts end at 30 s.
    pub(crate) response: Duration,
    pub(crate) closing: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            stall: Duration::from_secs(10),
            response: Duration::from_secs(30),
            closing: Duration::from_secs(10),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Idle,
    Headers,
    Busy,
    Responding,
    Closing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    Drop(&'static str),
    Close,
}

#[derive(Debug)]
struct State {
    protocol: Protocol,
    phase: Phase,
    since: Instant,
    in_flight: usize,
    /// Start times of the HTTP/2 responses being sent, by number; the first is the oldest.
    responses: BTreeMap<u64, Instant>,
    next_response: u64,
    served: bool,
    flushed: bool,
    blocked_since: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<State>>);

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            protocol: Protocol::Http1,
            phase: Phase::Handshake,
            since: Instant::now(),
            in_flight: 0,
            responses: BTreeMap::new(),
            next_response: 0,
            served: false,
            flushed: false,
            blocked_since: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handshake completed. The connection now idles: clients may connect before they have a request.
    pub(crate) fn established(&self, protocol: Protocol) {
        let mut state = self.state();
        state.protocol = protocol;
        state.enter(Phase::Idle);
    }

    pub(super) fn read(&self) {
        let mut state = self.state();
        if state.protocol == Protocol::Http1 && state.phase == Phase::Idle {
            state.enter(Phase::Headers);
        }
    }

    pub(super) fn wrote(&self) {
        self.state().blocked_since = None;
    }

    pub(super) fn flushed(&self) {
        let mut state = self.state();
        state.blocked_since = None;
        state.flushed = true;
    }

    pub(super) fn blocked(&self) {
        self.state().blocked_since.get_or_insert_with(Instant::now);
    }

    /// A request is in flight until the returned value is dropped.
    pub(crate) fn request(&self) -> InFlight {
        let mut state = self.state();
        state.in_flight += 1;
        state.served = true;
        if state.phase != Phase::Closing {
            state.enter(Phase::Busy);
        }
        InFlight { activity: self.clone(), response: None }
    }

    /// Marks an HTTP/1.1 connection idle after its response. To be called after each poll of the connection: bytes read
    /// in the same poll as the response belong to the rest of that request's body, not to the next headers.
    pub(crate) fn settle(&self) {
        let mut state = self.state();
        if state.phase == Phase::Responding && state.flushed {
            state.enter(Phase::Idle);
        }
    }

    /// Time at which the next timeout elapses, and its effect. `None` if none is running.
    pub(crate) fn timeout(&self, periods: &Periods) -> Option<(Instant, Overdue)> {
        const SLOW_READER: Overdue = Overdue::Drop("the client read a response too slowly");
        let state = self.state();
        let phase = match state.phase {
            Phase::Handshake => Some((periods.handshake, Overdue::Drop("the TLS handshake timed out"))),
            Phase::Idle => Some((periods.idle, Overdue::Close)),
            Phase::Headers => Some((periods.headers, Overdue::Drop("the headers of a request timed out"))),
            Phase::Responding => Some((periods.response, SLOW_READER)),
            Phase::Closing if state.in_flight == 0 => {
                Some((periods.closing, Overdue::Drop("the client did not close the connection")))
            }
            // The body and the handler have their own timeouts.
            Phase::Busy | Phase::Closing => None,
        };
        let phase = phase.map(|(period, effect)| (state.since + period, effect));
        let stalled = Overdue::Drop("the client stopped reading");
        let stall = state.blocked_since.map(|since| (since + periods.stall, stalled));
        let response = state.responses.values().next().map(|since| (*since + periods.response, SLOW_READER));
        [phase, stall, response].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// A graceful shutdown began; requests in flight complete.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        if state.phase != Phase::Closing {
            state.enter(Phase::Closing);
        }
    }

    pub(super) fn has_served(&self) -> bool {
        self.state().served
    }

    /// Returns `true` between a response and the first byte of the next request.
    pub(super) fn is_idle_after_request(&self) -> bool {
        let state = self.state();
        state.served && state.phase == Phase::Idle
    }

    /// Returns `true` if the client waits for a response. A connection younger than `fresh` is about to send a request.
    pub(crate) fn is_awaited(&self, fresh: Duration) -> bool {
        let state = self.state();
        match state.phase {
            Phase::Handshake | Phase::Headers | Phase::Busy | Phase::Responding => true,
            Phase::Idle => !state.served && state.since.elapsed() < fresh,
            Phase::Closing => state.in_flight > 0,
        }
    }

    /// Time since which the connection has had no complete request; `None` while it has one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        matches!(state.phase, Phase::Handshake | Phase::Idle | Phase::Headers).then_some(state.since)
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
        self.flushed = false;
    }
}

/// A request in the service; over HTTP/2, until its response is sent.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Activity,
    response: Option<u64>,
}

impl InFlight {
    pub(super) fn responding(&mut self) {
        let mut state = self.activity.state();
        if state.protocol == Protocol::Http2 {
            let number = state.next_response;
            state.next_response += 1;
            state.responses.insert(number, Instant::now());
            self.response = Some(number);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        if let Some(number) = self.response {
            state.responses.remove(&number);
        }
        state.in_flight -= 1;
        if state.in_flight == 0 {
            let next = match (state.phase, state.protocol) {
                (Phase::Closing, _) => Phase::Closing,
                (_, Protocol::Http1) => Phase::Responding,
                (_, Protocol::Http2) => Phase::Idle,
            };
            state.enter(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn established(protocol: Protocol) -> Activity {
        let activity = Activity::new();
        activity.established(protocol);
        activity
    }

    fn phase(activity: &Activity) -> Phase {
        activity.state().phase
    }

    #[tokio::test]
    async fn the_header_timeout_runs_from_the_first_byte_to_the_call() {
        let activity = established(Protocol::Http1);
        assert_eq!(phase(&activity), Phase::Idle);
        activity.read();
        let begin = activity.state().since;
        assert_eq!(phase(&activity), Phase::Headers);
        activity.read();
        assert_eq!(activity.state().since, begin, "further bytes do not extend the timeout");
        let request = activity.request();
        assert_eq!(activity.timeout(&Periods::default()), None);
        activity.read();
        assert_eq!(phase(&activity), Phase::Busy, "a body is not headers");
        drop(request);
        activity.read();
        activity.settle();
        assert_eq!(phase(&activity), Phase::Responding, "nothing was flushed");
        activity.flushed();
        activity.read();
        assert_eq!(phase(&activity), Phase::Responding, "the rest of a body is not headers");
        activity.settle();
        assert_eq!(phase(&activity), Phase::Idle);
    }

    #[tokio::test]
    async fn h2_idle_time_starts_at_the_last_finished_request() {
        let activity = established(Protocol::Http2);
        activity.read();
        assert_eq!(phase(&activity), Phase::Idle, "a ping is not a request");
        let (first, second) = (activity.request(), activity.request());
        drop(first);
        assert_eq!(phase(&activity), Phase::Busy);
        drop(second);
        assert_eq!(phase(&activity), Phase::Idle);
    }

    #[tokio::test]
    async fn a_closing_connection_waits_for_its_requests() {
        let periods = Periods { closing: Duration::ZERO, ..Periods::default() };
        let activity = established(Protocol::Http2);
        let request = activity.request();
        activity.close();
        assert_eq!(activity.timeout(&periods), None);
        assert!(activity.is_awaited(Duration::ZERO));
        drop(request);
        assert!(matches!(activity.timeout(&periods), Some((_, Overdue::Drop(_)))));
    }
}
