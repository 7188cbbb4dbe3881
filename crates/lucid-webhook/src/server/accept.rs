//! Accepts connections up to a limit.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::activity::Activity;

/// Pause after a failed accept, and between attempts to close an idle connection.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Vec<Weak<ConnectionSlot>>>>);

/// Slot of one connection within the limit, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    pub(super) activity: Activity,
    evict: Notify,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlot {
    /// Completes when the connection has to close in favor of a new one.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

impl Connections {
    fn enter(&self, permit: OwnedSemaphorePermit) -> Arc<ConnectionSlot> {
        let slot = ConnectionSlot { activity: Activity::new(), evict: Notify::new(), _permit: permit };
        let slot = Arc::new(slot);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|slot| slot.strong_count() > 0);
        open.push(Arc::downgrade(&slot));
        slot
    }

    fn open(&self) -> Vec<Arc<ConnectionSlot>> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().filter_map(Weak::upgrade).collect()
    }

    /// Requests that the longest-idle connection closes. Otherwise a client that keeps connections open without
    /// sending requests could lock out the API server.
    fn evict_longest_idle(&self) {
        let open = self.open();
        let idle = open.iter().filter_map(|slot| Some((slot.activity.idle_since()?, slot)));
        if let Some((_, slot)) = idle.min_by_key(|(since, _)| *since) {
            slot.evict.notify_one();
        }
    }

    /// Returns `true` if a client waits for a response, or connected less than `fresh` ago.
    pub(super) fn any_awaited(&self, fresh: Duration) -> bool {
        self.open().iter().any(|slot| slot.activity.is_awaited(fresh))
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

    pub(super) async fn next(&mut self) -> (TcpStream, SocketAddr, Arc<ConnectionSlot>) {
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
