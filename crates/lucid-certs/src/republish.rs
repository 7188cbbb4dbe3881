//! Telling the task that its targets changed

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// Asks a [`SelfManaged`](crate::SelfManaged) to look at everything and publish its bundle again, as by a
/// watch on the targets that saw one change: then a field that somebody wiped is healed at once and not
/// within the minute.
///
/// Clones ask the same task.
#[derive(Debug, Clone, Default)]
pub struct Republish(Arc<Notify>);

impl Republish {
    /// Asks, and does not wait. The task answers at once, or 5 seconds after it answered the request
    /// before; after it has replaced the authority, at its next look within a minute. Requests in
    /// between are one, and none is lost. A watch may ask about every change, also of the task's own
    /// making: the publication that follows changes nothing, and ends it.
    pub fn request(&self) {
        self.0.notify_one();
    }
}

/// The side of the task
#[derive(Debug)]
pub(crate) struct Requests {
    republish: Republish,
    pause: Duration,
    not_before: Instant,
}

impl Requests {
    /// At least `pause` lies between two that are answered, so that two who overwrite each other do so at
    /// most that often.
    pub(crate) fn with_pause(pause: Duration) -> Self {
        Self { republish: Republish::default(), pause, not_before: Instant::now() }
    }

    pub(crate) fn handle(&self) -> Republish {
        self.republish.clone()
    }

    /// The next request. Dropping the future before it completes loses none.
    pub(crate) async fn next(&mut self) {
        sleep_until(self.not_before).await;
        self.republish.0.notified().await;
        self.not_before = Instant::now() + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(500);
    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn the_first_request_is_answered_at_once_and_those_in_the_pause_together_at_its_end() {
        let begin = Instant::now();
        let mut requests = Requests::with_pause(PAUSE);
        let republish = requests.handle();
        republish.request();
        timeout(PATIENCE, requests.next()).await.unwrap();
        let answered = Instant::now();
        assert!(answered - begin < PAUSE);

        for _ in 0..3 {
            republish.clone().request();
        }
        timeout(PATIENCE, requests.next()).await.unwrap();
        assert!(answered.elapsed() >= PAUSE, "{:?}", answered.elapsed());
        timeout(2 * PAUSE, requests.next()).await.expect_err("three requests are one");
    }

    #[tokio::test]
    async fn a_request_survives_that_the_wait_for_it_is_given_up() {
        let mut requests = Requests::with_pause(PAUSE);
        let republish = requests.handle();
        republish.request();
        timeout(PATIENCE, requests.next()).await.unwrap();
        republish.request();
        timeout(PAUSE / 5, requests.next()).await.unwrap_err();
        timeout(PATIENCE, requests.next()).await.unwrap();
    }
}
