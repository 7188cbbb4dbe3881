//! Accepts connections up to a limit.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::activity::Activity;

/// Pause after a failed accept, and between attempts to close an idle connection.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The open connections, shared by all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, (Activity, Arc<Notify>)>,
}

/// Slot of one connection within the limit, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connections: Connections,
    number: u64,
    pub(super) activity: Activity,
    evict: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlot {
    /// Completes when the connection has to close in favor of a new one.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.open().connections.remove(&self.number);
    }
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, permit: OwnedSemaphorePermit) -> ConnectionSlot {
        let mut open = self.open();
        let (number, activity, evict) = (open.next, Activity::new(), Arc::new(Notify::new()));
        open.next += 1;
        open.connections.insert(number, (activity.clone(), Arc::clone(&evict)));
        drop(open);
        ConnectionSlot { connections: self.clone(), number, activity, evict, _permit: permit }
    }

    /// Asks the connection that has been idle longest to close. Otherwise a client that keeps connections open without
    /// sending requests could lock out the API server.
    fn evict_longest_idle(&self) {
        let open = self.open();
        let idle =
            open.connections.values().filter_map(|(activity, evict)| Some((activity.idle_since()?, evict)));
        if let Some((_, evict)) = idle.min_by_key(|(since, _)| *since) {
            evict.notify_one();
        }
    }

    /// Returns `true` if a client waits for a response, or connected less than `fresh` ago.
    pub(super) fn any_awaited(&self, fresh: Duration) -> bool {
        self.open().connections.values().any(|(activity, _)| activity.is_awaited(fresh))
    }
}

/// Accepts connections. Futures of [`Self::next`] are cancel safe.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    connections: Connections,
    accepted: Option<(TcpStream, SocketAddr)>,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener, limit: usize, connections: Connections) -> Self {
        let slots = Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS)));
        Self { listener, slots, connections, accepted: None }
    }

    pub(super) async fn next(&mut self) -> (TcpStream, SocketAddr, ConnectionSlot) {
        loop {
            if self.accepted.is_none() {
                match self.listener.accept().await {
                    Ok(accepted) => self.accepted = Some(accepted),
                    Err(error) => self.recover(&error).await,
                }
                continue;
            }
            let permit = match Arc::clone(&self.slots).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_full) => {
                    self.connections.evict_longest_idle();
                    let slot = Arc::clone(&self.slots).acquire_owned();
                    let Ok(Ok(permit)) = tokio::time::timeout(ACCEPT_BACKOFF, slot).await else { continue };
                    permit
                }
            };
            if let Some((stream, peer)) = self.accepted.take() {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%peer, %error, "failed to set TCP_NODELAY");
                }
                return (stream, peer, self.connections.enter(permit));
            }
        }
    }

    async fn recover(&self, error: &io::Error) {
        // The client disconnected while it was queued.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return;
        }
        tracing::warn!(%error, "failed to accept a connection");
        // Probably out of file descriptors or memory, which a closed connection releases.
        self.connections.evict_longest_idle();
        tokio::time::sleep(ACCEPT_BACKOFF).await;
    }
}
