//! Who may come in: accepting connections within a limit.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::activity::Activity;

/// Pause after an accept that failed, as when file descriptors ran out, and between two looks for somebody who can
/// leave.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// All connections that stand. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    places: BTreeMap<u64, Occupant>,
}

#[derive(Debug)]
struct Occupant {
    activity: Activity,
    leave: Arc<Notify>,
    asked_to_leave: bool,
}

/// The right to be connected; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    connections: Connections,
    number: u64,
    pub(super) activity: Activity,
    leave: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Completes when somebody else needs this place.
    pub(super) async fn needed(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open().places.remove(&self.number);
    }
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, permit: OwnedSemaphorePermit) -> Place {
        let mut open = self.open();
        let (number, activity, leave) = (open.next, Activity::new(), Arc::new(Notify::new()));
        open.next += 1;
        let occupant =
            Occupant { activity: activity.clone(), leave: Arc::clone(&leave), asked_to_leave: false };
        open.places.insert(number, occupant);
        drop(open);
        Place { connections: self.clone(), number, activity, leave, _permit: permit }
    }

    /// Asks one connection without a request to leave. Otherwise whoever opens connections and keeps them would lock
    /// the API server out.
    fn make_room(&self) {
        let mut open = self.open();
        let staying = open.places.values_mut().filter(|occupant| !occupant.asked_to_leave);
        let spare = staying.filter_map(|occupant| Some((occupant.activity.spare()?, occupant)));
        if let Some((_, occupant)) = spare.min_by_key(|(rank, _)| *rank) {
            occupant.asked_to_leave = true;
            occupant.leave.notify_one();
        }
    }

    /// Whether any of them waits for an answer, or will do so at once.
    pub(super) fn any_awaited(&self, fresh: Duration) -> bool {
        self.open().places.values().any(|occupant| occupant.activity.is_awaited(fresh))
    }
}

/// Lets connections in. Its future may be dropped and made again at any time.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    connections: Connections,
    waiting: Option<(TcpStream, SocketAddr)>,
}

impl Door {
    pub(super) fn new(listener: TcpListener, limit: usize, connections: Connections) -> Self {
        let places = Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS)));
        Self { listener, places, connections, waiting: None }
    }

    pub(super) async fn next(&mut self) -> (TcpStream, SocketAddr, Place) {
        loop {
            if self.waiting.is_none() {
                match self.listener.accept().await {
                    Ok(accepted) => self.waiting = Some(accepted),
                    Err(error) => self.cope(&error).await,
                }
                continue;
            }
            let permit = match Arc::clone(&self.places).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_full) => {
                    self.connections.make_room();
                    let place = Arc::clone(&self.places).acquire_owned();
                    let Ok(Ok(permit)) = tokio::time::timeout(ACCEPT_BACK_OFF, place).await else { continue };
                    permit
                }
            };
            if let Some((stream, peer)) = self.waiting.take() {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%peer, %error, "failed to set TCP_NODELAY");
                }
                return (stream, peer, self.connections.enter(permit));
            }
        }
    }

    async fn cope(&self, error: &io::Error) {
        // The client went away while it waited.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return;
        }
        tracing::warn!(%error, "failed to accept a connection");
        // Most likely out of file descriptors or memory: each connection that leaves gives some back.
        self.connections.make_room();
        tokio::time::sleep(ACCEPT_BACK_OFF).await;
    }
}
