//! Requests in progress on a connection.

use std::time::Duration;

use tokio::sync::watch;

/// Time without a request after which a connection is closed, also before the first one.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// Counts the requests in progress on a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity(watch::Sender<usize>);

/// A request in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct InProgress(Activity);

impl Activity {
    pub(crate) fn begin(&self) -> InProgress {
        self.0.send_modify(|requests| *requests += 1);
        InProgress(self.clone())
    }

    /// Completes when no request has been in progress for 30 s.
    pub(crate) async fn idle(&self) {
        let mut requests = self.0.subscribe();
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
        self.0.0.send_modify(|requests| *requests -= 1);
    }
}
