//! What waits to be written.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::anchor::Anchor;

use super::error::AppendError;

/// How many records wait at most. Who comes then waits before the queue.
const CAPACITY: usize = 4096;

/// Records, each with who waits for it. Many put in, one takes out.
#[derive(Debug)]
pub(super) struct Queue {
    room: Arc<Semaphore>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Waiting {
    /// A JSON object.
    pub(super) record: Vec<u8>,
    answer: oneshot::Sender<Result<Anchor, AppendError>>,
    _room: OwnedSemaphorePermit,
}

impl Waiting {
    pub(super) fn answer(self, answer: Result<Anchor, AppendError>) {
        // Nobody may wait any more.
        let _ = self.answer.send(answer);
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { room: Arc::new(Semaphore::new(CAPACITY)), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Puts a record in, and waits until it is kept.
    pub(super) async fn put(&self, record: Vec<u8>) -> Result<Anchor, AppendError> {
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| AppendError::Closed)?;
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.closed {
                return Err(AppendError::Closed);
            }
            state.waiting.push_back(Waiting { record, answer, _room: room });
        }
        self.changed.notify_one();
        answered.await.unwrap_or(Err(AppendError::Closed))
    }

    /// Takes out up to `most` records, in order. Waits until there is one, or up to `patience`, when there may be none. `None`
    /// when it is closed and all are out.
    pub(super) fn take(&self, most: usize, patience: Option<Duration>) -> Option<Vec<Waiting>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State| state.waiting.is_empty() && !state.closed;
        let mut state = match patience {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let waited = self.changed.wait_timeout_while(state, patience, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if state.closed && state.waiting.is_empty() {
            return None;
        }
        let count = most.min(state.waiting.len());
        Some(state.waiting.drain(..count).collect())
    }

    /// Takes no more in.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.room.close();
        self.changed.notify_all();
    }
}
