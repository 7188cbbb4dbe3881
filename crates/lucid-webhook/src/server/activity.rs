//! What a connection is busy with, and until when it may be.
//!
//! hyper's own header timeout also counts while a connection idles, so it would close the connections that the API
//! server keeps for its next call. Here the time of a head begins with its first byte.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long each part of a connection's life may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Periods {
    /// The TLS handshake.
    pub(crate) handshake: Duration,
    /// A request's head, from its first byte.
    pub(crate) head: Duration,
    /// Between an answer and the next request. The API server keeps an idle connection for 90 s; whoever closes
    /// first must not be this server, since a POST that is under way then is lost.
    pub(crate) idle: Duration,
    /// For the peer to take more of an answer.
    pub(crate) stall: Duration,
    /// For a whole answer to leave. Nobody waits longer: the API server's timeouts end at 30 s.
    pub(crate) answer: Duration,
    /// For a connection that was asked to end.
    pub(crate) closing: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            stall: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            closing: Duration::from_secs(10),
        }
    }
}

/// In this time a client makes its handshake and asks, unless it is up to something else.
const NEWCOMER: Duration = Duration::from_millis(500);

/// A body comes if this much of it comes in this time; what is slower makes room when there is none.
const PROGRESS: usize = 16 * 1024;
const STANDSTILL: Duration = Duration::from_secs(1);
/// An answer that leaves for as long makes room when there is none.
const SLOW_ANSWER: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Idle,
    /// A part of an HTTP/1.1 request's head is here.
    Head,
    /// The service works on a request.
    Busy,
    /// The service is done, an HTTP/1.1 answer leaves.
    Answering,
    /// Somebody asked the connection to end.
    Closing,
}

/// What a connection has to do because time passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// End, at once.
    Drop(&'static str),
    /// End, after what is in flight.
    Close,
}

#[derive(Debug)]
struct State {
    protocol: Protocol,
    phase: Phase,
    since: Instant,
    in_flight: usize,
    /// The requests whose service waits for more of the body.
    waiting: usize,
    /// When the last [`PROGRESS`] bytes of bodies were complete, or the first request came; and what came since.
    fed: Instant,
    morsel: usize,
    /// HTTP/2 answers that leave, by number, and since when. The first is the oldest.
    leaving: BTreeMap<u64, Instant>,
    answers: u64,
    served: bool,
    flushed: bool,
    blocked: Option<Instant>,
}

/// The state of one connection. All clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<State>>);

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            protocol: Protocol::Http1,
            phase: Phase::Handshake,
            since: Instant::now(),
            in_flight: 0,
            waiting: 0,
            fed: Instant::now(),
            morsel: 0,
            leaving: BTreeMap::new(),
            answers: 0,
            served: false,
            flushed: false,
            blocked: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handshake is over. A client may open a connection ahead of its need, so this one idles, as others do
    /// between requests.
    pub(crate) fn established(&self, protocol: Protocol) {
        let mut state = self.state();
        state.protocol = protocol;
        state.enter(Phase::Idle);
    }

    /// Bytes came.
    pub(super) fn read(&self) {
        let mut state = self.state();
        if state.protocol == Protocol::Http1 && state.phase == Phase::Idle {
            state.enter(Phase::Head);
        }
    }

    /// The peer took bytes.
    pub(super) fn wrote(&self) {
        self.state().blocked = None;
    }

    /// The peer took all there was.
    pub(super) fn flushed(&self) {
        let mut state = self.state();
        state.blocked = None;
        state.flushed = true;
    }

    /// The peer takes no bytes.
    pub(super) fn blocked(&self) {
        self.state().blocked.get_or_insert_with(Instant::now);
    }

    /// A request goes to the service, until what is returned is dropped.
    pub(crate) fn request(&self) -> InFlight {
        let mut state = self.state();
        if state.in_flight == 0 {
            (state.fed, state.morsel) = (Instant::now(), 0);
        }
        state.in_flight += 1;
        state.served = true;
        if state.phase != Phase::Closing {
            state.enter(Phase::Busy);
        }
        InFlight { activity: self.clone(), answer: None }
    }

    /// To be called after each turn of the connection. Only then does it count as idle: what hyper reads in the turn
    /// of an answer is the rest of that request's body, not the begin of another head.
    pub(crate) fn settle(&self) {
        let mut state = self.state();
        if state.phase == Phase::Answering && state.flushed {
            state.enter(Phase::Idle);
        }
    }

    /// When to ask for [`Self::overdue`]; `None` means after some event, not by the clock.
    pub(crate) fn deadline(&self, periods: &Periods) -> Option<Instant> {
        let state = self.state();
        let phase = state.period(periods).map(|period| state.since + period);
        let stall = state.blocked.map(|since| since + periods.stall);
        let answer = state.leaving.values().next().map(|since| *since + periods.answer);
        [phase, stall, answer].into_iter().flatten().min()
    }

    pub(crate) fn overdue(&self, periods: &Periods) -> Option<Overdue> {
        let now = Instant::now();
        let mut state = self.state();
        if state.blocked.is_some_and(|since| since + periods.stall <= now) {
            return Some(Overdue::Drop("the peer stopped to read"));
        }
        if state.leaving.values().next().is_some_and(|since| *since + periods.answer <= now) {
            return Some(Overdue::Drop("the peer took an answer too slowly"));
        }
        if state.period(periods).is_none_or(|period| state.since + period > now) {
            return None;
        }
        let overdue = match state.phase {
            Phase::Handshake => Overdue::Drop("the TLS handshake took too long"),
            Phase::Head => Overdue::Drop("the head of a request took too long"),
            Phase::Answering => Overdue::Drop("the peer took an answer too slowly"),
            Phase::Closing => Overdue::Drop("the peer did not close"),
            Phase::Idle | Phase::Busy => Overdue::Close,
        };
        if overdue == Overdue::Close {
            state.enter(Phase::Closing);
        }
        Some(overdue)
    }

    /// The connection was asked to end; what is in flight has its time.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        if state.phase != Phase::Closing {
            state.enter(Phase::Closing);
        }
    }

    pub(super) fn has_served(&self) -> bool {
        self.state().served
    }

    /// Returns true between an answer and the first byte of the next request.
    pub(super) fn is_idle_after_request(&self) -> bool {
        let state = self.state();
        state.served && state.phase == Phase::Idle
    }

    /// Whether an answer is owed, or soon will be.
    pub(crate) fn is_awaited(&self, fresh: Duration) -> bool {
        let state = self.state();
        match state.phase {
            Phase::Handshake | Phase::Head | Phase::Busy | Phase::Answering => true,
            // Whoever has just connected is about to ask.
            Phase::Idle => !state.served && state.since.elapsed() < fresh,
            Phase::Closing => state.in_flight > 0,
        }
    }

    /// Whether the connection may end without a word: nothing was asked yet, or only half, or nobody takes the answer.
    pub(super) fn is_owed_nothing(&self) -> bool {
        let state = self.state();
        match state.phase {
            Phase::Idle => !state.served,
            Phase::Handshake | Phase::Head => true,
            Phase::Busy | Phase::Answering => state.stuck().is_some(),
            Phase::Closing => false,
        }
    }

    /// Who goes first when there is no room, the least of all; `None` for who must stay.
    ///
    /// It is who had the time to ask something and did not, or not all of it, or does not take the answer; then who has
    /// idled longest; then who has just come.
    pub(super) fn spare(&self) -> Option<(u8, Instant)> {
        let state = self.state();
        if let Some(since) = state.stuck() {
            return Some((0, since));
        }
        let rank = match (state.served, state.since.elapsed() < NEWCOMER) {
            (false, false) => 0,
            (true, _) => 1,
            (false, true) => 2,
        };
        matches!(state.phase, Phase::Handshake | Phase::Idle | Phase::Head).then_some((rank, state.since))
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
        self.flushed = false;
    }

    /// Since when it is the peer who keeps all the requests of this connection, if that is too long where others wait.
    fn stuck(&self) -> Option<Instant> {
        let (since, allowed) = match (self.phase, self.leaving.values().next()) {
            (Phase::Busy, _) if self.in_flight > self.waiting + self.leaving.len() => return None,
            (Phase::Busy, None) => (self.fed, STANDSTILL),
            (Phase::Busy, Some(oldest)) => (*oldest, SLOW_ANSWER),
            (Phase::Answering, _) => (self.since, SLOW_ANSWER),
            _ => return None,
        };
        (since.elapsed() >= allowed).then_some(since)
    }

    fn period(&self, periods: &Periods) -> Option<Duration> {
        match self.phase {
            Phase::Handshake => Some(periods.handshake),
            Phase::Idle => Some(periods.idle),
            Phase::Head => Some(periods.head),
            Phase::Answering => Some(periods.answer),
            Phase::Closing if self.in_flight == 0 => Some(periods.closing),
            // The body has a guard of its own, and the handler its deadline.
            Phase::Busy | Phase::Closing => None,
        }
    }
}

/// One request, in the service or, by HTTP/2, on its way back.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Activity,
    answer: Option<u64>,
}

impl InFlight {
    /// For the request's body.
    pub(super) fn reading(&self) -> Reading {
        Reading { activity: self.activity.clone(), waits: false }
    }

    /// The service is done.
    pub(super) fn answered(&mut self) {
        let mut state = self.activity.state();
        if state.protocol == Protocol::Http2 {
            let number = state.answers;
            state.answers += 1;
            state.leaving.insert(number, Instant::now());
            self.answer = Some(number);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        if let Some(number) = self.answer {
            state.leaving.remove(&number);
        }
        state.in_flight -= 1;
        if state.in_flight == 0 {
            let next = match (state.phase, state.protocol) {
                (Phase::Closing, _) => Phase::Closing,
                (_, Protocol::Http1) => Phase::Answering,
                (_, Protocol::Http2) => Phase::Idle,
            };
            state.enter(next);
        }
    }
}

/// The body of one request, for as long as the service has it.
#[derive(Debug)]
pub(super) struct Reading {
    activity: Activity,
    waits: bool,
}

impl Reading {
    /// The service wants more of the body, and there is nothing.
    pub(super) fn waits(&mut self) {
        if !self.waits {
            self.waits = true;
            self.activity.state().waiting += 1;
        }
    }

    /// More of it came, or its end.
    pub(super) fn came(&mut self, bytes: usize) {
        let mut state = self.activity.state();
        state.morsel = state.morsel.saturating_add(bytes);
        if state.morsel >= PROGRESS {
            (state.fed, state.morsel) = (Instant::now(), 0);
        }
        if std::mem::take(&mut self.waits) {
            state.waiting -= 1;
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.came(0);
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
    async fn a_head_begins_with_its_first_byte_and_ends_with_the_call() {
        let activity = established(Protocol::Http1);
        assert_eq!(phase(&activity), Phase::Idle);
        activity.read();
        let begin = activity.state().since;
        assert_eq!(phase(&activity), Phase::Head);
        activity.read();
        assert_eq!(activity.state().since, begin, "more bytes give no more time");
        let request = activity.request();
        assert_eq!(activity.deadline(&Periods::default()), None);
        activity.read();
        assert_eq!(phase(&activity), Phase::Busy, "a body is no head");
        drop(request);
        activity.read();
        activity.settle();
        assert_eq!(phase(&activity), Phase::Answering, "nothing was flushed");
        activity.flushed();
        activity.read();
        assert_eq!(phase(&activity), Phase::Answering, "the rest of a body is no head");
        activity.settle();
        assert_eq!(phase(&activity), Phase::Idle);
    }

    #[tokio::test]
    async fn h2_idles_from_the_last_finished_request() {
        let activity = established(Protocol::Http2);
        activity.read();
        assert_eq!(phase(&activity), Phase::Idle, "a ping is no request");
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
        assert_eq!(activity.overdue(&periods), None);
        assert!(activity.is_awaited(Duration::ZERO));
        drop(request);
        assert!(matches!(activity.overdue(&periods), Some(Overdue::Drop(_))));
    }

    #[tokio::test]
    async fn who_asked_nothing_in_time_goes_before_who_idles_and_who_just_came_last() {
        let (idle, silent) = (Activity::new(), Activity::new());
        idle.established(Protocol::Http2);
        drop(idle.request());
        silent.established(Protocol::Http2);
        tokio::time::sleep(NEWCOMER).await;
        let (new, busy) = (Activity::new(), Activity::new());
        let _request = busy.request();
        assert!(silent.spare().is_some() && silent.spare() < idle.spare() && idle.spare() < new.spare());
        assert_eq!(busy.spare(), None);
    }
}
