//! Requests in progress on a connection.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Time without a request after which a connection is closed, also before the first one.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// Counts the requests in progress on a connection. The connection's slot covers one of them; HTTP/2 has several, and each
/// further one takes another slot.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    requests: watch::Sender<usize>,
    slots: Arc<Semaphore>,
}

#[derive(Debug)]
pub(crate) struct InProgress {
    activity: Activity,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Activity {
    pub(crate) fn new(slots: Arc<Semaphore>) -> Self {
        Self { requests: watch::Sender::new(0), slots }
    }

    /// Returns `None` if no slot is left for the request.
    pub(crate) fn begin(&self) -> Option<InProgress> {
        let slot = match *self.requests.borrow() {
            0 => None,
            _ => Some(Arc::clone(&self.slots).try_acquire_owned().ok()?),
        };
        self.requests.send_modify(|requests| *requests += 1);
        Some(InProgress { activity: self.clone(), _slot: slot })
    }

    /// Completes when no request has been in progress for 30 s.
    pub(crate) async fn idle(&self) {
        let mut requests = self.requests.subscribe();
        loop {
            let is_idle = *requests.borrow_and_update() == 0;
            tokio::select! {
                // A request that begins as the limit is reached counts.
                biased;
                // The sender outlives the future.
                _ = requests.changed() => {}
                () = tokio::time::sleep(IDLE_LIMIT), if is_idle => return,
            }
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.activity.requests.send_modify(|requests| *requests -= 1);
    }
}
