//! One kept-alive connection to a server: HTTP/1.1 over TLS 1.3, without waiting for anything.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

/// Go's HTTP client collects this much before it first writes.
const FIRST_WRITE: usize = 4096;
/// After that it writes one TLS record at a time.
const RECORD: usize = 16 * 1024;

/// Why a call failed. The names go into the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// No connection came about.
    Dial,
    /// The connection ended before the answer; a POST is not sent twice.
    Broken,
    /// 429 or 5xx with `Retry-After`, after which kube-apiserver retries.
    Busy(u8),
    /// Another HTTP status than 200.
    Status,
    /// Another verdict than expected, or another uid.
    WrongAnswer,
    /// No answer within the time that the API server waits.
    Timeout,
}

impl Failure {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dial => "dial failed",
            Self::Broken => "connection lost",
            Self::Busy(_) => "busy",
            Self::Status => "not HTTP 200",
            Self::WrongAnswer => "wrong answer",
            Self::Timeout => "timeout",
        }
    }
}

/// Answer that counts as right.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) allowed: bool,
    /// The uid of the request is in the answer.
    pub(crate) uid: bool,
}

/// A request on its way.
pub(crate) struct Exchange {
    /// When it was to be sent; its latency counts from here.
    pub(crate) scheduled: Instant,
    uid: [u8; 36],
    expected: Expected,
    sent: usize,
    response: Vec<u8>,
}

/// Progress of a connection.
pub(crate) enum Progress {
    Pending,
    /// The handshake is done and no request on its way.
    Idle,
    Answered {
        outcome: Result<(), Failure>,
        keep: bool,
    },
    Ended,
}

pub(crate) struct Connection {
    stream: TcpStream,
    tls: ClientConnection,
    pub(crate) dialled: Instant,
    pub(crate) established: bool,
    pub(crate) exchange: Option<Exchange>,
}

impl Connection {
    pub(crate) fn dial(
        address: SocketAddr,
        tls: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let tls = ClientConnection::new(tls, name).map_err(io::Error::other)?;
        Ok(Self { stream, tls, dialled: Instant::now(), established: false, exchange: None })
    }

    /// Begins the request with this uid.
    pub(crate) fn begin(
        &mut self,
        scheduled: Instant,
        uid: [u8; 36],
        expected: Expected,
        request: &[u8],
    ) -> io::Result<()> {
        self.exchange = Some(Exchange { scheduled, uid, expected, sent: 0, response: Vec::new() });
        self.write(request)
    }

    /// Returns `true` while `request` is not completely written.
    pub(crate) fn sending(&self, request: &[u8]) -> bool {
        self.tls.wants_write() || self.exchange.as_ref().is_some_and(|exchange| exchange.sent < request.len())
    }

    /// Writes and reads as far as that goes. `closing` says that the peer will send nothing more.
    pub(crate) fn advance(&mut self, request: &[u8], closing: bool) -> Progress {
        let driven = self.drive(request, closing);
        if let Some(exchange) = &self.exchange
            && let Some((outcome, keep)) = read_answer(&exchange.response, &exchange.uid, exchange.expected)
        {
            return Progress::Answered { outcome, keep: keep && driven.is_ok() && !self.sending(request) };
        }
        if driven.is_err() {
            return Progress::Ended;
        }
        if self.established || self.tls.is_handshaking() || self.tls.wants_write() {
            return Progress::Pending;
        }
        self.established = true;
        match self.stream.set_nodelay(true) {
            Ok(()) => Progress::Idle,
            Err(_) => Progress::Ended,
        }
    }

    fn drive(&mut self, request: &[u8], closing: bool) -> io::Result<()> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        self.write(request)?;
        self.read(request, closing)
    }

    fn write(&mut self, request: &[u8]) -> io::Result<()> {
        loop {
            if self.tls.wants_write() {
                match self.tls.write_tls(&mut self.stream) {
                    Ok(_) => continue,
                    Err(error) if is_not_yet(&error) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            let Some(exchange) = self.exchange.as_mut().filter(|exchange| exchange.sent < request.len())
            else {
                return Ok(());
            };
            let size = if exchange.sent == 0 { FIRST_WRITE } else { RECORD };
            let end = request.len().min(exchange.sent + size);
            exchange.sent += self.tls.writer().write(&request[exchange.sent..end])?;
        }
    }

    fn read(&mut self, request: &[u8], closing: bool) -> io::Result<()> {
        loop {
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if is_not_yet(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.tls.process_new_packets().map_err(io::Error::other)?;
            self.write(request)?;
            let mut plain = [0; 4096];
            loop {
                match self.tls.reader().read(&mut plain) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(length) => match &mut self.exchange {
                        Some(exchange) => exchange.response.extend_from_slice(&plain[..length]),
                        None => return Err(io::Error::other("an answer to nothing")),
                    },
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            // The rest of a whole answer is nothing: spare the call that would say so.
            let answered = self.exchange.as_ref().is_some_and(|exchange| !exchange.response.is_empty());
            if answered && !closing {
                return Ok(());
            }
        }
    }
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::Interrupted)
}

/// Parses a complete response. The flag is `true` if the connection can be reused.
fn read_answer(bytes: &[u8], uid: &[u8; 36], expected: Expected) -> Option<(Result<(), Failure>, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let start = match head.parse(bytes) {
        Ok(httparse::Status::Complete(start)) => start,
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return Some((Err(Failure::WrongAnswer), false)),
    };
    let value = |name: &str| head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    let text = |name: &str| value(name).and_then(|header| std::str::from_utf8(header.value).ok());
    let Some(length) = text("content-length").and_then(|text| text.parse().ok()) else {
        return Some((Err(Failure::WrongAnswer), false));
    };
    let body = bytes[start..].get(..length)?;
    let keep = !value("connection").is_some_and(|header| header.value.eq_ignore_ascii_case(b"close"));
    let contains = |text: &[u8]| memchr::memmem::find(body, text).is_some();
    let verdict: &[u8] = if expected.allowed { b"\"allowed\":true" } else { b"\"allowed\":false" };
    let outcome = match head.code {
        Some(200) if contains(verdict) && (!expected.uid || contains(uid)) => Ok(()),
        Some(200) => Err(Failure::WrongAnswer),
        Some(429 | 500..) => {
            let seconds = text("retry-after").and_then(|text| text.parse().ok());
            Err(seconds.map_or(Failure::Status, Failure::Busy))
        }
        _ => Err(Failure::Status),
    };
    Some((outcome, keep))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Expected = Expected { allowed: true, uid: true };

    fn answer(status: u16, headers: &str, body: &str) -> Vec<u8> {
        format!("HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    #[test]
    fn only_the_whole_right_answer_counts() {
        let uid = [b'7'; 36];
        let right = format!(r#"{{"uid":"{}","allowed":true}}"#, "7".repeat(36));
        for (bytes, expected) in [
            (answer(200, "", &right), (Ok(()), true)),
            (answer(200, "Connection: close\r\n", &right), (Ok(()), false)),
            (answer(200, "", r#"{"uid":"8","allowed":true}"#), (Err(Failure::WrongAnswer), true)),
            (answer(200, "", &right.replace("true", "false")), (Err(Failure::WrongAnswer), true)),
            (answer(429, "", &right), (Err(Failure::Status), true)),
            (answer(429, "Retry-After: 1\r\n", ""), (Err(Failure::Busy(1)), true)),
            (answer(404, "Retry-After: 1\r\n", &right), (Err(Failure::Status), true)),
        ] {
            assert_eq!(read_answer(&bytes, &uid, ANSWER), Some(expected));
            assert_eq!(read_answer(&bytes[..bytes.len() - 1], &uid, ANSWER), None);
        }
        let denied = answer(200, "", &right.replace("true", "false"));
        let expected = Expected { allowed: false, ..ANSWER };
        assert_eq!(read_answer(&denied, &uid, expected), Some((Ok(()), true)));
        let outcome = read_answer(b"HTTP/1.1 200 OK\r\n\r\n", &uid, ANSWER);
        assert_eq!(outcome, Some((Err(Failure::WrongAnswer), false)));
    }
}
