//! Limits of what a caller can hold open.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    pod::{APP, PATIENCE, Pod, SETTINGS, Tool, request, serve, server},
    traffic::ok,
};

/// Limit in `lucid-egress` of connections to one listener.
const CONNECTIONS: usize = 1024;

#[test]
fn connections_without_a_request_are_closed() {
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    let (closed, are_closed) = mpsc::channel();
    let are_closed = Mutex::new(are_closed);
    serve(&pod.network.node, APP, "10.0.0.1:8000", move |mut stream: TcpStream| {
        let (first, _) = request(&stream);
        if first.contains("slow") {
            are_closed.lock().unwrap().recv().unwrap();
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK")
    });
    pod.network.pod.as_user(APP, || {
        let open = |beginning: &str| {
            let mut stream = TcpStream::connect("10.0.0.1:8000").unwrap();
            // Longer than the limit.
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.write_all(beginning.as_bytes()).unwrap();
            stream
        };
        // A request in progress may take longer.
        let mut slow = open("GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let streams = [
            "",
            "P",
            "GET / HTTP/1.1\r\nHost: a\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            // A connection of HTTP/2 with an empty SETTINGS frame.
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0",
        ]
        .map(open);
        for mut stream in streams {
            // Ends at the end of the connection.
            stream.read_to_end(&mut Vec::new()).unwrap();
        }
        closed.send(()).unwrap();
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("OK"), "{answer}");
    });
}

#[test]
fn the_number_of_connections_is_limited() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    server(&pod.network.node, "10.0.0.1:8000", "ONE");
    let streams: Vec<_> = pod.network.pod.as_user(APP, || {
        (0..CONNECTIONS + 100).map(|_| TcpStream::connect("10.0.0.1:8000").unwrap()).collect()
    });
    let begin = Instant::now();
    while pod.descriptors() < CONNECTIONS {
        assert!(begin.elapsed() < PATIENCE, "{} open files", pod.descriptors());
        thread::sleep(Duration::from_millis(10));
    }
    // The exit has its own.
    assert!(pod.get(20002, "127.0.0.1:8083", "/health", "x").unwrap().starts_with("200 "));
    assert!(pod.descriptors() < CONNECTIONS + 50, "{} open files", pod.descriptors());
    drop(streams);
    assert_eq!(pod.get(APP, "10.0.0.1:8000", "/", "a"), ok("ONE a/ AUD1 AUD2"));
}
