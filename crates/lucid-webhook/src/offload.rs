//! Runs work on large requests outside the threads that serve connections.
//!
//! The work and memory of a webhook are linear in the size of its request. Small requests stay on the async workers;
//! large ones run on blocking threads, within a limit on their number and total size. Probes, handshakes and small
//! requests are answered meanwhile.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::thread::available_parallelism;

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use tracing::Instrument;

use crate::budget::LARGE;

/// Concurrent large requests per core, separately for authenticated and other callers. A handler may wait for the
/// network.
const PER_CORE: u32 = 2;
/// Total size in bytes of concurrent large requests, separately for authenticated and other callers. A larger request
/// runs alone.
const BYTES: u32 = 6 << 20;

/// Limits the large requests at a time. Clones share the limit.
#[derive(Clone, Debug)]
pub(crate) struct Offload {
    anonymous: Arc<Semaphore>,
    authenticated: Arc<Semaphore>,
    /// Bytes that the smallest request counts for.
    least: u32,
}

/// Lets one large request run, until its last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Slot(#[expect(dead_code, reason = "held for its drop")] Arc<OwnedSemaphorePermit>);

impl Default for Offload {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from).try_into().unwrap_or(u32::MAX);
        let semaphore = || Arc::new(Semaphore::new(BYTES as usize));
        let least = BYTES / PER_CORE.saturating_mul(cores).min(BYTES);
        Self { anonymous: semaphore(), authenticated: semaphore(), least }
    }
}

impl Offload {
    /// Waits for a slot, which a small request does not need. Fails if none is free at the deadline.
    pub(crate) async fn enter(
        &self,
        bytes: usize,
        authenticated: bool,
        deadline: Instant,
    ) -> Result<Option<Slot>, Elapsed> {
        if bytes <= LARGE {
            return Ok(None);
        }
        let semaphore = if authenticated { &self.authenticated } else { &self.anonymous };
        let permits = u32::try_from(bytes).map_or(BYTES, |bytes| bytes.clamp(self.least, BYTES));
        let acquired = Arc::clone(semaphore).acquire_many_owned(permits);
        let permit = tokio::time::timeout_at(deadline, acquired).await?;
        // The semaphore is never closed.
        Ok(permit.ok().map(|permit| Slot(Arc::new(permit))))
    }
}

/// Runs `work` on a blocking thread, or on the caller's task without a slot. If the caller is cancelled, the work ends
/// at its next await point, and the slot stays taken until then.
pub(crate) async fn run<T: Send + 'static>(
    slot: Option<Slot>,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let Some(slot) = slot else { return work.await };
    let (mut sender, outcome) = oneshot::channel();
    let runtime = Handle::current();
    let work = AssertUnwindSafe(work).catch_unwind().in_current_span();
    tokio::task::spawn_blocking(move || {
        let _slot = slot;
        runtime.block_on(async move {
            tokio::select! {
                outcome = work => drop(sender.send(outcome)),
                () = sender.closed() => {}
            }
        });
    });
    match outcome.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => resume_unwind(panic),
        // The runtime shuts down, and this task with it.
        Err(_closed) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn authenticated_callers_have_their_own_slots() {
        let offload = Offload::default();
        let soon = || Instant::now() + Duration::from_millis(10);
        let mut anonymous = Vec::new();
        while let Ok(slot) = offload.enter(LARGE + 1, false, soon()).await {
            anonymous.push(slot.expect("a large request runs without a slot"));
        }
        assert!(offload.enter(LARGE, false, soon()).await.unwrap().is_none());
        assert!(offload.enter(LARGE + 1, true, soon()).await.unwrap().is_some());
        anonymous.pop();
        assert!(offload.enter(LARGE + 1, false, soon()).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn the_total_size_is_limited() {
        let offload = Offload::default();
        let soon = || Instant::now() + Duration::from_millis(10);
        let _half = offload.enter(3 << 20, false, soon()).await.unwrap();
        let half = offload.enter(3 << 20, false, soon()).await.unwrap();
        assert!(offload.enter(LARGE + 1, false, soon()).await.is_err());
        drop(half);
        assert!(offload.enter(usize::MAX, false, soon()).await.is_err(), "a larger request runs alone");
        assert!(offload.enter(LARGE + 1, false, soon()).await.is_ok());
    }

    #[tokio::test]
    async fn cancelled_work_ends_and_releases_its_slot() {
        let offload = Offload::default();
        let later = Instant::now() + Duration::from_secs(60);
        let slot = offload.enter(usize::MAX, false, later).await.unwrap();
        let (started, starts) = oneshot::channel();
        let work = tokio::spawn(run(slot, async {
            started.send(()).unwrap();
            std::future::pending::<()>().await;
        }));
        starts.await.unwrap();
        work.abort();
        assert!(offload.enter(LARGE + 1, false, later).await.unwrap().is_some());
    }

    #[tokio::test]
    #[should_panic(expected = "on purpose")]
    async fn a_panic_reaches_the_caller() {
        let slot = Offload::default().enter(LARGE + 1, false, Instant::now()).await.unwrap();
        run(slot, async { panic!("on purpose") }).await
    }
}
