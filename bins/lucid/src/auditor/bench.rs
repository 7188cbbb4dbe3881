//! The auditor under test between a caller and the scripted model.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use super::caller::Caller;
use super::codings::encode;
use super::message::{End, Message, find};
use super::model::{Model, Script};
use super::process::Process;
use super::transcript::Transcript;

pub(crate) const JSON: &str = "Content-Type: application/json\r\n";
pub(crate) const PLAIN: &str = "Content-Type: text/plain\r\n";
pub(crate) const CHUNKED: &str = "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n";

/// Reason why a check did not succeed.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The requirement is not met; with what was expected.
    Failed(String),
    /// The check does not apply; with the reason.
    Skipped(&'static str),
    Broken(std::io::Error),
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error)
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Problem>;

/// Fails with `expected` unless `holds`.
pub(crate) fn ensure(holds: bool, expected: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(Problem::Failed(expected.into())) }
}

#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) auditor: SocketAddr,
    pub(crate) model: Model,
    /// Second port of the auditor, if the kit has started it.
    pub(crate) second_auditor: SocketAddr,
    /// The model behind `second_auditor`.
    pub(crate) second_model: Model,
    pub(crate) needs_routes: bool,
    pub(crate) transcript: Transcript,
    /// The auditor, if the kit has started it.
    pub(crate) process: Option<Process>,
    pub(crate) refused: String,
    pub(crate) masked: Option<String>,
    pub(crate) patience: Duration,
}

impl Bench {
    /// Begins an exchange with another behaviour of the model.
    pub(crate) async fn play(&mut self, script: Script) -> Outcome {
        self.transcript.clear();
        Ok(self.model.play(script).await?)
    }

    pub(crate) async fn say(&mut self, answer: impl Into<Vec<u8>>) -> Outcome {
        self.play(Script::Say(answer.into())).await
    }

    pub(crate) fn swap_routes(&mut self) {
        std::mem::swap(&mut self.auditor, &mut self.second_auditor);
        std::mem::swap(&mut self.model, &mut self.second_model);
    }

    pub(crate) async fn connect(&self) -> Outcome<Caller> {
        self.connect_to(self.auditor).await
    }

    pub(crate) async fn connect_to(&self, address: SocketAddr) -> Outcome<Caller> {
        let connecting = Caller::connect(address, self.transcript.clone(), self.patience).await;
        connecting.map_err(|error| Problem::Failed(format!("a connection to {address}, found: {error}")))
    }

    pub(crate) async fn exchange(&self, request: impl AsRef<[u8]>) -> Outcome<Message> {
        let mut caller = self.connect().await?;
        caller.send(request).await;
        caller.answer().await.ok_or_else(|| Problem::Failed("an answer".to_owned()))
    }

    /// Waits for a request at the model, complete or not.
    pub(crate) async fn asked(&self) -> Outcome {
        let is_asked = |all: &[_]| all.iter().any(|it: &super::model::Connection| !it.requests().is_empty());
        ensure(self.model.until(self.patience, is_asked).await, "the request at the model")
    }

    /// Sends a request that is to be refused before the model sees any of it. Returns the refusal.
    pub(crate) async fn refuse(&mut self, request: impl AsRef<[u8]>) -> Outcome<Message> {
        self.say(answer(JSON, "{}")).await?;
        let answer = self.exchange(request).await?;
        ensure(self.model.requests().is_empty(), "no request at the model")?;
        // JSON-RPC has no statuses.
        let is_error = serde_json::from_slice::<Value>(&answer.body).is_ok_and(|it| it["error"].is_object());
        let is_refusal = match answer.status() {
            200 => is_error,
            status => (400..500).contains(&status) || status == 501,
        };
        let expected = "a refusal: a complete answer with a status from 400 to 499, or 501";
        ensure(is_refusal && answer.end == End::Whole, expected)?;
        Ok(answer)
    }

    pub(crate) fn fill(&self, template: &str) -> String {
        let (text, masked) = (&*self.refused, self.masked.as_deref());
        let escaped = || text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
        let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        // Beginning of the last word.
        let word = text.rfind(' ').map_or(halves(text).0.len(), |space| space + 1);
        // An undecided text, and its end.
        let (held, _) = halves(masked.unwrap_or(text));
        let tail = || held.char_indices().nth_back(2).map_or(held, |(at, _)| &held[at..]);
        let variables: [(&str, &dyn Fn() -> String); _] = [
            ("$TEXT", &|| text.to_owned()),
            ("$MANY", &|| format!("{text} ").repeat(20)),
            ("$MASKED", &|| masked.unwrap_or_default().to_owned()),
            ("$CODE", &|| masked.filter(|text| is_code(text)).unwrap_or("4111111111111111").to_owned()),
            ("$FIRST", &|| halves(text).0.to_owned()),
            ("$SECOND", &|| halves(text).1.to_owned()),
            ("$LEFT", &|| text.split_at(word).0.to_owned()),
            ("$RIGHT", &|| text.split_at(word).1.to_owned()),
            ("$HELD", &|| held.to_owned()),
            ("$TAIL", &|| tail().to_owned()),
            ("$ESCAPED", &escaped),
            ("$DOUBLE", &|| escaped().replace('\\', "\\\\")),
            ("$PERCENT", &|| percent(text)),
            ("$TWICE", &|| percent(&percent(text))),
            ("$BOLD", &|| format!("**{}**", text.replace(' ', "** **"))),
            ("$LISTED", &|| text.replace(' ', ", ")),
            ("$WORDS", &|| "word ".repeat(200)),
            ("$OPEN", &|| "[".repeat(200)),
            ("$CLOSE", &|| "]".repeat(200)),
            // Longer than bodies that auditors accept.
            ("$NUMBERS", &|| "-0.0123456789,".repeat(200_000)),
            ("$VECTORS", &|| {
                let vector = format!(r#"{{"object":"embedding","embedding":"{}"}}"#, "C2/QPA41".repeat(1000));
                vec![vector; 300].join(",")
            }),
        ];
        let used = variables.iter().filter(|(name, _)| template.contains(name));
        used.fold(template.to_owned(), |text, (name, value)| text.replace(name, &value()))
    }

    pub(crate) fn masked(&self) -> Outcome<String> {
        self.masked.clone().ok_or(Problem::Skipped("only with --masked TEXT"))
    }

    pub(crate) fn process(&mut self) -> Outcome<&mut Process> {
        self.process.as_mut().ok_or(Problem::Skipped("only with -- COMMAND"))
    }
}

/// Returns `true` for text that can be part of a signature or an identifier.
fn is_code(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

pub(crate) fn halves(text: &str) -> (&str, &str) {
    let middle = text.char_indices().map(|(at, _)| at).find(|at| *at >= text.len() / 2);
    text.split_at(middle.unwrap_or_default())
}

pub(crate) fn get(path: &str, headers: &str) -> String {
    String::from_utf8_lossy(&request(&format!("GET {path}"), headers, "")).into_owned()
}

pub(crate) fn post(path: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    request(&format!("POST {path}"), headers, body)
}

pub(crate) fn request(line: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let head = format!("{line} HTTP/1.1\r\nHost: model.test:5000\r\nConnection: close\r\n{headers}");
    if line.starts_with("POST") {
        message(head, body.as_ref())
    } else {
        [&head, "\r\n"].concat().into_bytes()
    }
}

pub(crate) fn answer(headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    answer_of("200 OK", headers, body)
}

pub(crate) fn answer_of(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    message(format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}"), body.as_ref())
}

/// Returns a message whose body has the coding and the framing that its head names.
fn message(head: String, body: &[u8]) -> Vec<u8> {
    let coding = head.split_once("Content-Encoding: ").and_then(|(_, coding)| coding.lines().next());
    let body = encode(coding.unwrap_or_default(), body);
    let (first, second) = body.split_at(body.len() / 2);
    let (line, body) = match head.contains("Transfer-Encoding: ") {
        true => {
            let mut chunks = chunks([first, second]);
            // An extension, which is ignored.
            let line = find(&chunks, b"\r\n").unwrap_or_default();
            chunks.splice(line..line, *b";x=y");
            (String::new(), chunks)
        }
        false => (format!("Content-Length: {}\r\n", body.len()), body),
    };
    [head.as_bytes(), line.as_bytes(), b"\r\n", &body].concat()
}

pub(crate) fn stream_head(content_type: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nContent-Type: ";
    format!("{head}{content_type}\r\n\r\n").into_bytes()
}

/// Returns a chunk of a body. The empty one is the last.
pub(crate) fn chunk(data: impl AsRef<[u8]>) -> Vec<u8> {
    let data = data.as_ref();
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

pub(crate) fn chunks<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>) -> Vec<u8> {
    pieces.into_iter().flat_map(chunk).chain(chunk("")).collect()
}

pub(crate) fn own_address() -> Option<IpAddr> {
    // Sends nothing; the kernel selects the address for a route.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}
