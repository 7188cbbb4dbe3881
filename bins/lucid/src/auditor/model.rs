//! The scripted model behind the auditor.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::message::{End, Kind, Message};
use super::transcript::{Side, Transcript};

const BACKLOG: u32 = 128;

/// Behaviour of the model.
#[derive(Debug)]
pub(crate) enum Script {
    /// Refuses connections.
    Down,
    /// Answers each request with these bytes, and closes the connection.
    Say(Vec<u8>),
    /// Answers the first connection with these bytes, and closes it without an answer when it is used again. Answers others as
    /// [`Say`](Self::Say) with the second bytes: none stays open, for the next check not to reuse it while it is closed.
    Once(Vec<u8>, Vec<u8>),
    /// Answers the first request with these pieces as they come, and then closes the connection.
    Pieces(UnboundedReceiver<Vec<u8>>),
}

impl Script {
    /// Returns a script of pieces, with their sender.
    pub(crate) fn pieces() -> (UnboundedSender<Vec<u8>>, Self) {
        let (sender, pieces) = unbounded_channel();
        (sender, Self::Pieces(pieces))
    }
}

/// A model on one address, whose script changes.
#[derive(Debug)]
pub(crate) struct Model {
    address: SocketAddr,
    /// Keeps the port while the model is down. It never listens.
    _reserved: TcpSocket,
    seen: Arc<Seen>,
    transcript: Transcript,
    serving: Option<JoinHandle<()>>,
}

/// The connections since the script began.
#[derive(Debug)]
struct Seen {
    connections: Mutex<Vec<Connection>>,
    changed: watch::Sender<()>,
}

/// A connection of the auditor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) received: Vec<u8>,
    pub(crate) is_closed: bool,
}

impl Model {
    /// Reserves an address. Port 0 selects a free port.
    pub(crate) fn bind(address: SocketAddr, transcript: Transcript) -> io::Result<Self> {
        let reserved = socket(address)?;
        let address = reserved.local_addr()?;
        let seen = Seen { connections: Mutex::default(), changed: watch::Sender::new(()) };
        Ok(Self { address, _reserved: reserved, seen: Arc::new(seen), transcript, serving: None })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections, and follows `script` from now on.
    pub(crate) async fn play(&mut self, script: Script) -> io::Result<()> {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
        let seen = Seen { connections: Mutex::default(), changed: watch::Sender::new(()) };
        self.seen = Arc::new(seen);
        if matches!(script, Script::Down) {
            return Ok(());
        }
        let listener = socket(self.address)?.listen(BACKLOG)?;
        let (seen, transcript) = (Arc::clone(&self.seen), self.transcript.clone());
        self.serving = Some(tokio::spawn(async move {
            let script = Arc::new(Mutex::new(script));
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let served =
                    Served { index: seen.open(), seen: Arc::clone(&seen), transcript: transcript.clone() };
                connections.spawn(served.serve(stream, Arc::clone(&script)));
            }
        }));
        Ok(())
    }

    /// Returns the requests since the script began, complete or not.
    pub(crate) fn requests(&self) -> Vec<Message> {
        self.seen.get(|connections| connections.iter().flat_map(Connection::requests).collect())
    }

    /// Waits until `holds` returns `true`, for `patience` at most. Returns the last result.
    pub(crate) async fn until(&self, patience: Duration, holds: impl Fn(&[Connection]) -> bool) -> bool {
        let mut changes = self.seen.changed.subscribe();
        let waiting = async {
            while !self.seen.get(&holds) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(patience, waiting).await;
        self.seen.get(&holds)
    }
}

/// Returns a socket that is bound to `address`, which others of this program can share.
fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

impl Connection {
    /// Returns the requests on this connection, of which the last may be incomplete.
    pub(crate) fn requests(&self) -> Vec<Message> {
        let (mut requests, mut position) = (Vec::new(), 0);
        while let Some(request) = Message::read(&self.received[position..], Kind::Request, self.is_closed) {
            position += request.length;
            let is_whole = request.end == End::Whole;
            requests.push(request);
            if !is_whole {
                break;
            }
        }
        requests
    }
}

impl Seen {
    fn get<T>(&self, read: impl FnOnce(&[Connection]) -> T) -> T {
        read(&self.connections.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn open(&self) -> usize {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.push(Connection::default());
        connections.len() - 1
    }

    /// Records bytes; no bytes are the end of the connection.
    fn receive(&self, index: usize, bytes: &[u8]) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections[index].received.extend_from_slice(bytes);
        connections[index].is_closed = bytes.is_empty();
        drop(connections);
        self.changed.send_replace(());
    }
}

/// A connection that is being served.
struct Served {
    index: usize,
    seen: Arc<Seen>,
    transcript: Transcript,
}

impl Served {
    async fn serve(self, mut stream: TcpStream, script: Arc<Mutex<Script>>) {
        let _ = stream.set_nodelay(true);
        let _ = self.answer(&mut stream, &script).await;
        // Requests after the answer are recorded as well.
        while self.receive(&mut stream).await {}
    }

    async fn answer(&self, stream: &mut TcpStream, script: &Mutex<Script>) -> io::Result<()> {
        let mut answered = 0;
        loop {
            while self.seen.get(|connections| whole_requests(&connections[self.index])) <= answered {
                if !self.receive(stream).await {
                    return Ok(());
                }
            }
            answered += 1;
            let (said, pieces) = {
                let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
                match &mut *script {
                    Script::Pieces(pieces) => (None, Some(std::mem::replace(pieces, unbounded_channel().1))),
                    Script::Say(bytes) => (Some((bytes.clone(), true)), None),
                    Script::Once(_, others) if self.index > 0 => (Some((others.clone(), true)), None),
                    Script::Once(..) if answered > 1 => (Some((Vec::new(), true)), None),
                    Script::Once(bytes, _) => (Some((bytes.clone(), false)), None),
                    Script::Down => (None, None),
                }
            };
            if let Some((bytes, closes)) = said {
                self.send(stream, &bytes).await?;
                if closes {
                    return stream.shutdown().await;
                }
                continue;
            }
            let Some(mut pieces) = pieces else { return Ok(()) };
            loop {
                tokio::select! {
                    piece = pieces.recv() => match piece {
                        Some(piece) => self.send(stream, &piece).await?,
                        None => return stream.shutdown().await,
                    },
                    is_open = self.receive(stream) => if !is_open { return Ok(()) },
                }
            }
        }
    }

    /// Records the next bytes. Returns `false` once the connection is closed.
    async fn receive(&self, stream: &mut TcpStream) -> bool {
        let mut bytes = vec![0; 64 * 1024];
        let count = stream.read(&mut bytes).await.unwrap_or_default();
        self.transcript.record(Side::ModelReceived, &bytes[..count]);
        self.seen.receive(self.index, &bytes[..count]);
        count > 0
    }

    async fn send(&self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        self.transcript.record(Side::ModelSent, bytes);
        stream.write_all(bytes).await
    }
}

fn whole_requests(connection: &Connection) -> usize {
    connection.requests().iter().filter(|request| request.end == End::Whole).count()
}
