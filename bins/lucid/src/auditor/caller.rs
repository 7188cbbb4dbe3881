//! The caller in front of the auditor.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::message::{End, Message};
use super::transcript::{Side, Transcript};

#[derive(Debug)]
pub(crate) struct Caller {
    stream: TcpStream,
    received: Vec<u8>,
    is_closed: bool,
    transcript: Transcript,
    patience: Duration,
}

impl Caller {
    pub(crate) async fn connect(
        address: SocketAddr,
        transcript: Transcript,
        patience: Duration,
    ) -> io::Result<Self> {
        let stream = timeout(patience, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::new(), is_closed: false, transcript, patience })
    }

    /// Address of the caller, as the auditor sees it.
    pub(crate) fn address(&self) -> io::Result<IpAddr> {
        Ok(self.stream.local_addr()?.ip())
    }

    /// Sends bytes. An auditor may respond and close before it has read all of them, so errors are ignored.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.transcript.record(Side::CallerSent, bytes.as_ref());
        let _ = timeout(self.patience, self.stream.write_all(bytes.as_ref())).await;
    }

    /// Receives more bytes. Returns `false` once the connection is closed.
    async fn receive(&mut self) -> bool {
        let mut bytes = vec![0; 64 * 1024];
        let count = self.stream.read(&mut bytes).await.unwrap_or_default();
        self.transcript.record(Side::CallerReceived, &bytes[..count]);
        self.received.extend_from_slice(&bytes[..count]);
        self.is_closed = count == 0;
        count > 0
    }

    /// Receives until `holds` is `true` for the response, the response ends, or the time is up. Returns the response if
    /// its head has arrived. Informational responses are skipped.
    pub(crate) async fn until(&mut self, holds: impl Fn(&Message) -> bool) -> Option<Message> {
        let patience = self.patience;
        let waiting = async {
            while !self.answered().is_some_and(|it| it.end != End::Open || holds(&it)) && self.receive().await
            {
            }
        };
        let _ = timeout(patience, waiting).await;
        self.answered()
    }

    /// Receives a complete response, or the part of it that arrives.
    pub(crate) async fn answer(&mut self) -> Option<Message> {
        self.until(|_| false).await
    }

    pub(crate) async fn end(&mut self) {
        let _ = timeout(self.patience, async { while self.receive().await {} }).await;
    }

    fn answered(&mut self) -> Option<Message> {
        loop {
            let answer = Message::read(&self.received, self.is_closed)?;
            if !(100..200).contains(&answer.status()) || answer.status() == 101 {
                return Some(answer);
            }
            self.received.drain(..answer.length);
        }
    }
}
