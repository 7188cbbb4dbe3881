//! The loop that makes the calls. It never sleeps: a generator that has to be woken adds that to what it measures.

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use rustls::pki_types::ServerName;

use crate::connection::{Connection, Expected, Failure, Progress};
use crate::record::Record;
use crate::review::Request;

/// Default `timeoutSeconds` of kube-apiserver, which includes the time to connect.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that its client keeps for later.
const KEPT: usize = 25;
/// Default maximum of concurrent mutating requests in kube-apiserver.
const MOST: usize = 200;

pub(crate) struct Engine {
    poll: Poll,
    events: Events,
    tls: Arc<rustls::ClientConfig>,
    name: ServerName<'static>,
    endpoints: Vec<SocketAddr>,
    connections: Vec<Option<Connection>>,
    /// The one used last is used next, as Go does.
    idle: Vec<usize>,
    kept: usize,
    dialling: usize,
    dialled: u64,
    waiting: VecDeque<Instant>,
    pub(crate) timeout: Duration,
    /// Times of retries, and the times at which their calls were scheduled.
    retries: Vec<(Instant, Instant)>,
    request: Request,
    expected: Expected,
    calls: u64,
    /// Calls that ended since the last reset.
    pub(crate) ended: usize,
    pub(crate) record: Record,
    housekeeping: Instant,
}

impl Engine {
    pub(crate) fn new(
        tls: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
        endpoints: Vec<SocketAddr>,
        request: Request,
        expected: Expected,
        record: Record,
    ) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            tls,
            name,
            endpoints,
            connections: Vec::new(),
            idle: Vec::new(),
            kept: KEPT,
            dialling: 0,
            dialled: 0,
            waiting: VecDeque::new(),
            timeout: TIMEOUT,
            retries: Vec::new(),
            request,
            expected,
            calls: 0,
            ended: 0,
            record,
            housekeeping: Instant::now(),
        })
    }

    /// Opens `count` connections, which are all kept.
    pub(crate) fn connect(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        self.kept = self.kept.max(count);
        let begin = Instant::now();
        while self.idle.len() < count {
            if self.dialling + self.idle.len() < count {
                self.dial();
            }
            self.turn();
            if begin.elapsed() > TIMEOUT {
                return Err(format!("only {} of {count} connections were made", self.idle.len()).into());
            }
        }
        Ok(())
    }

    /// Sets the endpoints of new connections. Existing connections stay.
    pub(crate) fn set_endpoints(&mut self, endpoints: Vec<SocketAddr>) {
        self.endpoints = endpoints;
    }

    /// Adds a call that was to be made at `scheduled`.
    pub(crate) fn call(&mut self, scheduled: Instant) {
        self.waiting.push_back(scheduled);
    }

    /// Calls that are not answered yet.
    pub(crate) fn pending(&self) -> usize {
        self.waiting.len()
            + self.retries.len()
            + self.connections.iter().flatten().filter(|one| one.exchange.is_some()).count()
    }

    /// Returns `true` if every call is completely written.
    pub(crate) fn all_sent(&self) -> bool {
        self.waiting.is_empty()
            && !self.connections.iter().flatten().any(|connection| connection.sending(&self.request.bytes))
    }

    /// Does what can be done now.
    pub(crate) fn turn(&mut self) {
        let begin = Instant::now();
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        // The next turn repeats an interrupted call.
        let polled = self.poll.poll(&mut events, Some(Duration::ZERO)).is_ok();
        let nothing = !polled || (events.is_empty() && self.waiting.is_empty());
        for event in &events {
            self.advance(event.token().0, event.is_read_closed() || event.is_error());
        }
        self.events = events;
        self.assign();
        if nothing {
            self.record.idled(begin, Instant::now());
        }
        if begin - self.housekeeping > Duration::from_millis(100) {
            self.housekeeping = begin;
            self.retry(begin);
            self.give_up(begin);
        }
    }

    fn advance(&mut self, index: usize, closing: bool) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        match connection.advance(&self.request.bytes, closing) {
            Progress::Pending => {}
            Progress::Idle => {
                self.dialling -= 1;
                self.idle.push(index);
            }
            Progress::Answered { outcome, keep } => {
                let scheduled = connection.exchange.take().map(|exchange| exchange.scheduled);
                if let Some(scheduled) = scheduled {
                    self.finish(scheduled, outcome);
                }
                if keep && (self.idle.len() < self.kept || !self.waiting.is_empty()) {
                    self.idle.push(index);
                } else {
                    self.connections[index] = None;
                }
            }
            Progress::Ended => self.close(index, Failure::Broken),
        }
    }

    /// Gives waiting calls to idle connections and dials for the others.
    fn assign(&mut self) {
        while let Some(&scheduled) = self.waiting.front() {
            let Some(index) = self.idle.pop() else { break };
            let Some(connection) = self.connections[index].as_mut() else { continue };
            self.waiting.pop_front();
            self.calls += 1;
            let uid = self.request.set_uid(self.calls);
            if connection.begin(scheduled, uid, self.expected, &self.request.bytes).is_err() {
                self.close(index, Failure::Broken);
            }
        }
        // Each call that finds no connection dials one, and takes whichever is free first.
        while self.waiting.len() > self.dialling && self.connections.iter().flatten().count() < MOST {
            if !self.dial() {
                break;
            }
        }
    }

    fn dial(&mut self) -> bool {
        let index = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        let address = self.endpoints.get(self.dialled as usize % self.endpoints.len().max(1));
        self.dialled += 1;
        let dialled = address.and_then(|&address| {
            let (tls, name) = (Arc::clone(&self.tls), self.name.clone());
            Connection::dial(address, tls, name, self.poll.registry(), Token(index)).ok()
        });
        let Some(connection) = dialled else {
            self.fail_waiting(Failure::Dial);
            return false;
        };
        self.dialling += 1;
        match self.connections.get_mut(index) {
            Some(slot) => *slot = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        true
    }

    fn close(&mut self, index: usize, failure: Failure) {
        let Some(connection) = self.connections[index].take() else { return };
        self.idle.retain(|&idle| idle != index);
        if !connection.established {
            self.dialling -= 1;
            self.fail_waiting(Failure::Dial);
        }
        if let Some(exchange) = connection.exchange {
            self.finish(exchange.scheduled, Err(failure));
        }
    }

    /// The call that dialled fails with its dial.
    fn fail_waiting(&mut self, failure: Failure) {
        if let Some(scheduled) = self.waiting.pop_front() {
            self.finish(scheduled, Err(failure));
        }
    }

    fn finish(&mut self, scheduled: Instant, outcome: Result<(), Failure>) {
        if let Err(Failure::Busy(seconds)) = outcome {
            let due = Instant::now() + Duration::from_secs(seconds.into());
            if due < scheduled + self.timeout {
                self.retries.push((due, scheduled));
                return;
            }
        }
        self.record.finished(scheduled, outcome);
        self.ended += 1;
    }

    fn retry(&mut self, now: Instant) {
        let waiting = &mut self.waiting;
        self.retries.retain(|&(due, scheduled)| {
            let later = due > now;
            if !later {
                waiting.push_back(scheduled);
            }
            later
        });
    }

    fn give_up(&mut self, now: Instant) {
        let timeout = self.timeout;
        let late = |since: Instant| now.saturating_duration_since(since) > timeout;
        for index in 0..self.connections.len() {
            let Some(connection) = &self.connections[index] else { continue };
            let since = match &connection.exchange {
                Some(exchange) => exchange.scheduled,
                None if !connection.established => connection.dialled,
                None => continue,
            };
            if late(since) {
                self.close(index, Failure::Timeout);
            }
        }
        while self.waiting.front().is_some_and(|&scheduled| late(scheduled)) {
            self.fail_waiting(Failure::Timeout);
        }
    }
}
