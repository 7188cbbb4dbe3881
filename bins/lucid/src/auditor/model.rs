//! The scripted model behind the auditor.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::message::{End, Message};
use super::transcript::{Side, Transcript};

const BACKLOG: u32 = 128;

#[derive(Debug)]
pub(crate) enum Script {
    Down,
    /// Answers the first request of each connection with these bytes, and closes it.
    Say(Vec<u8>),
    /// Answers the first connection with the first bytes, and closes it without an answer when it is used again. Answers others as
    /// [`Say`](Self::Say) with the second bytes: none stays open, so that the next check does not reuse it.
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
    pub(crate) address: SocketAddr,
    /// Keeps the port while the model is down. It never listens.
    _reserved: TcpSocket,
    /// The connections since the script began.
    seen: watch::Sender<Vec<Connection>>,
    transcript: Transcript,
    serving: JoinSet<()>,
}

#[derive(Debug, Default)]
pub(crate) struct Connection {
    received: Vec<u8>,
    pub(crate) is_closed: bool,
}

impl Model {
    /// Reserves an address. Port 0 selects a free port.
    pub(crate) fn bind(address: SocketAddr, transcript: Transcript) -> io::Result<Self> {
        let reserved = socket(address)?;
        let (address, seen) = (reserved.local_addr()?, watch::Sender::default());
        Ok(Self { address, _reserved: reserved, seen, transcript, serving: JoinSet::new() })
    }

    /// Closes all connections, and follows `script` from now on.
    pub(crate) async fn play(&mut self, script: Script) -> io::Result<()> {
        self.serving.shutdown().await;
        self.seen = watch::Sender::default();
        if matches!(script, Script::Down) {
            return Ok(());
        }
        let listener = socket(self.address)?.listen(BACKLOG)?;
        let (seen, transcript) = (self.seen.clone(), self.transcript.clone());
        let script = Arc::new(Mutex::new(script));
        self.serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let index = seen.borrow().len();
                seen.send_modify(|connections| connections.push(Connection::default()));
                let (seen, transcript, script) = (seen.clone(), transcript.clone(), Arc::clone(&script));
                connections.spawn(async move {
                    let mut served = Served { stream, index, seen, transcript };
                    let _ = served.answer(&script).await;
                    // Requests after the answer are recorded as well.
                    while served.receive().await {}
                });
            }
        });
        Ok(())
    }

    /// Returns the requests since the script began, complete or not.
    pub(crate) fn requests(&self) -> Vec<Message> {
        self.seen.borrow().iter().flat_map(Connection::requests).collect()
    }

    /// Waits until `holds` returns `true`, for `patience` at most. Returns the last result.
    pub(crate) async fn until(&self, patience: Duration, holds: impl Fn(&[Connection]) -> bool) -> bool {
        let mut changes = self.seen.subscribe();
        timeout(patience, changes.wait_for(|seen| holds(seen))).await.is_ok()
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

impl Connection {
    /// Returns the requests on this connection, of which the last may be incomplete.
    pub(crate) fn requests(&self) -> Vec<Message> {
        let (mut requests, mut position) = (Vec::new(), 0);
        while let Some(request) = Message::read(&self.received[position..], self.is_closed) {
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

struct Served {
    stream: TcpStream,
    index: usize,
    seen: watch::Sender<Vec<Connection>>,
    transcript: Transcript,
}

impl Served {
    async fn answer(&mut self, script: &Mutex<Script>) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        self.request(1).await?;
        let (sender, said) = unbounded_channel();
        let (mut pieces, bytes, stays) = match &mut *script.lock().unwrap_or_else(PoisonError::into_inner) {
            Script::Pieces(pieces) => (std::mem::replace(pieces, said), Vec::new(), false),
            Script::Once(bytes, _) if self.index == 0 => (said, bytes.clone(), true),
            Script::Say(bytes) | Script::Once(_, bytes) => (said, bytes.clone(), false),
            Script::Down => return Ok(()),
        };
        let _ = sender.send(bytes);
        drop(sender);
        loop {
            tokio::select! {
                piece = pieces.recv() => match piece {
                    Some(piece) => {
                        self.transcript.record(Side::ModelSent, &piece);
                        self.stream.write_all(&piece).await?;
                    }
                    None => break,
                },
                is_open = self.receive() => if !is_open { return Ok(()) },
            }
        }
        if stays {
            self.request(2).await?;
        }
        self.stream.shutdown().await
    }

    /// Receives until there are `count` complete requests.
    async fn request(&mut self, count: usize) -> io::Result<()> {
        let is_whole = |request: &Message| request.end == End::Whole;
        loop {
            let requests = self.seen.borrow()[self.index].requests();
            if requests.iter().filter(|request| is_whole(request)).count() >= count {
                return Ok(());
            }
            if !self.receive().await {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Records the next bytes. Returns `false` once the connection is closed.
    async fn receive(&mut self) -> bool {
        let mut bytes = vec![0; 64 * 1024];
        let count = self.stream.read(&mut bytes).await.unwrap_or_default();
        self.transcript.record(Side::ModelReceived, &bytes[..count]);
        self.seen.send_modify(|connections| {
            let connection = &mut connections[self.index];
            connection.received.extend_from_slice(&bytes[..count]);
            connection.is_closed = count == 0;
        });
        count > 0
    }
}
