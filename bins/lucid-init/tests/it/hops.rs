//! Auditors, a model and their clients. Each server prepends its name to the response of the next.

use std::{
    fmt::Debug,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::network::{Namespace, Network};

pub(crate) const FIRST: u32 = 20001;
pub(crate) const SECOND: u32 = 20002;
pub(crate) const APP: u32 = 1000;

/// Response to a request that passed the whole chain.
pub(crate) const CHAIN: &str = "AUD1 -> AUD2 -> MODEL";

/// Generous timeout for busy machines.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn start_model(network: &Network) {
    serve(&network.pod, APP, 5000, "MODEL", None);
}

/// Starts the auditors of the pod, on the ports 8090 and 8093.
pub(crate) fn start_auditors(network: &Network) {
    serve(&network.pod, SECOND, 8093, "AUD2", Some("127.0.0.1:5000"));
    serve(&network.pod, FIRST, 8090, "AUD1", Some("127.0.0.1:8093"));
}

/// Starts a server named `name` that forwards requests to `next`. It runs as long as the tests.
pub(crate) fn serve(inside: &Namespace, uid: u32, port: u16, name: &'static str, next: Option<&'static str>) {
    // Dual-stack.
    inside.serve(uid, ("::", port), move |stream| respond(stream, name, next));
}

fn respond(mut stream: TcpStream, name: &str, next: Option<&str>) -> io::Result<()> {
    let request = request(&stream)?;
    let rest = match next {
        Some(next) => format!(" -> {}", exchange(next.parse().unwrap(), &request)?),
        None => String::new(),
    };
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{name}{rest}")
}

fn request(stream: &TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    Ok(lines.map(|line| line + "\r\n").collect::<String>() + "\r\n")
}

fn exchange(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    ask(&mut stream, request)
}

pub(crate) fn ask(stream: &mut TcpStream, request: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response.split_once("\r\n\r\n").map_or(response.as_str(), |(_, body)| body).to_owned())
}

/// Sends `GET path` to `address` from a process with the UID `uid` inside the namespace.
pub(crate) fn get(inside: &Namespace, uid: u32, address: &str, path: &str) -> Result<String, String> {
    let address = address.parse().unwrap_or_else(|error| panic!("{address}: {error}"));
    let request = format!("GET {path} HTTP/1.1\r\nHost: pod\r\nUser-Agent: kube-probe/1.35\r\n\r\n");
    inside.as_user(uid, || exchange(address, &request).map_err(|error| error.to_string()))
}

/// Asserts the response to `GET /`; `what` is part of the message.
#[track_caller]
pub(crate) fn expect(
    what: impl Debug,
    inside: &Namespace,
    uid: u32,
    address: &str,
    response: Result<&str, &str>,
) {
    let found = get(inside, uid, address, "/");
    assert_eq!(found.as_deref().map_err(String::as_str), response, "{what:?}: uid {uid}, {address}");
}
