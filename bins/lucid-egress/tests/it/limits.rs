//! Limits of what a caller can hold open.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use http_body_util::Empty;
use hyper::{Request, body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    network::Namespace,
    pod::{APP, PATIENCE, Pod, SETTINGS, Tool, get, request, server},
    traffic::ok,
};

/// Limits in `lucid-egress` of connections to one listener from the pod and from outside.
const CONNECTIONS: usize = 1024;
const FOREIGN_CONNECTIONS: usize = 512;

/// Limit of concurrent requests on a connection by HTTP/2.
const STREAMS: usize = 16;

#[test]
fn connections_without_a_request_are_closed() {
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    let (closed, are_closed) = mpsc::channel();
    let are_closed = Mutex::new(are_closed);
    pod.network.node.serve(APP, "10.0.0.1:8000", move |mut stream: TcpStream| {
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
        let mut response = String::new();
        slow.read_to_string(&mut response).unwrap();
        assert!(response.ends_with("OK"), "{response}");
    });
}

#[test]
fn the_number_of_connections_is_limited() {
    raise_descriptor_limit();
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    server(&pod.network.node, "10.0.0.1:8000", "ONE");
    let streams = open_connections(&pod.network.pod, "10.0.0.1:8000", CONNECTIONS + 100);
    wait_for_descriptors(&pod, CONNECTIONS);
    // The exit has its own.
    assert!(pod.get(20002, "127.0.0.1:8083", "/health", "x").unwrap().starts_with("200 "));
    assert!(pod.descriptors() < CONNECTIONS + 50, "{} open files", pod.descriptors());
    drop(streams);
    assert_eq!(pod.get(APP, "10.0.0.1:8000", "/", "a"), ok("ONE a/ AUD1 AUD2"));
}

#[test]
fn callers_outside_the_pod_do_not_keep_it_waiting() {
    raise_descriptor_limit();
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    server(&pod.network.node, "10.0.0.1:8000", "ONE");
    server(&pod.network.pod, "[::]:5000", "MODEL");
    let streams = open_connections(&pod.network.node, "10.0.0.2:5000", CONNECTIONS + 100);
    wait_for_descriptors(&pod, FOREIGN_CONNECTIONS);
    assert_eq!(pod.get(APP, "10.0.0.1:8000", "/", "a"), ok("ONE a/ AUD1 AUD2"));
    assert!(pod.descriptors() < FOREIGN_CONNECTIONS + 50, "{} open files", pod.descriptors());
    drop(streams);
    let begin = Instant::now();
    let call = || get(&pod.network.node, APP, "10.0.0.2:5000", "GET / HTTP/1.1\r\nHost: a\r\n");
    while call() != ok("MODEL a/ AUD1 AUD2") {
        assert!(begin.elapsed() < PATIENCE, "{:?}", call());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends `GET /slow` 100 times on one connection by HTTP/2, beside `others` open connections. Returns the number of requests that
/// reach the host at the same time, and the number of those that are refused.
fn concurrent_requests(others: usize, arrive: usize, refused: usize) -> Option<(usize, usize)> {
    raise_descriptor_limit();
    let pod = Pod::start(Tool::Nft, SETTINGS, &[])?;
    let arrived = Arc::new(AtomicUsize::new(0));
    let arrivals = Arc::clone(&arrived);
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    pod.network.node.serve(APP, "10.0.0.1:8000", move |mut stream: TcpStream| {
        let (first, _) = request(&stream);
        if first.contains("slow") {
            arrivals.fetch_add(1, Relaxed);
            // Fails when the test ends.
            let _ = released.lock().unwrap().recv();
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK")
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let streams = open_connections(&pod.network.pod, "10.0.0.1:8000", others);
    wait_for_descriptors(&pod, others);
    let refusals = pod.network.pod.as_user(APP, || {
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect("10.0.0.1:8000").await.unwrap();
            let (mut sender, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let get =
                |path: &str| Request::get(format!("http://10.0.0.1:8000/{path}")).body(Empty::<Bytes>::new());
            // The limit of streams is known after the first response.
            assert_eq!(sender.send_request(get("").unwrap()).await.unwrap().status(), 200);
            let (answered, mut responses) = tokio::sync::mpsc::unbounded_channel();
            for _ in 0..100 {
                let (mut sender, answered, request) =
                    (sender.clone(), answered.clone(), get("slow").unwrap());
                tokio::spawn(async move {
                    if let Ok(response) = sender.send_request(request).await {
                        answered.send(response.status().as_u16()).unwrap();
                    }
                });
            }
            let mut refusals = 0;
            let begin = Instant::now();
            while arrived.load(Relaxed) < arrive || refusals < refused {
                assert!(begin.elapsed() < PATIENCE, "{} arrived, {refusals} refused", arrived.load(Relaxed));
                if let Ok(status) = responses.try_recv() {
                    assert_eq!(status, 503);
                    refusals += 1;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            refusals
        })
    });
    drop(streams);
    // A later call does not overtake an earlier one.
    assert_eq!(pod.get(APP, "10.0.0.1:8000", "/", "a"), Ok("200 OK".to_owned()));
    drop(release);
    Some((arrived.load(Relaxed), refusals))
}

#[test]
fn concurrent_requests_on_a_connection_are_limited() {
    let Some(counts) = concurrent_requests(0, STREAMS, 0) else { return };
    assert_eq!(counts, (STREAMS, 0));
}

#[test]
fn concurrent_requests_count_as_connections() {
    let Some((arrived, refused)) = concurrent_requests(CONNECTIONS - 5, 4, 95) else { return };
    // The connection that is accepted next may have a slot already.
    assert!(matches!(arrived, 4 | 5) && refused >= 95, "{arrived} arrived, {refused} refused");
}

fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn wait_for_descriptors(pod: &Pod, number: usize) {
    let begin = Instant::now();
    while pod.descriptors() <= number {
        assert!(begin.elapsed() < PATIENCE, "{} open files", pod.descriptors());
        thread::sleep(Duration::from_millis(10));
    }
}

fn open_connections(inside: &Namespace, address: &str, number: usize) -> Vec<TcpStream> {
    inside.as_user(APP, || (0..number).map(|_| TcpStream::connect(address).unwrap()).collect())
}
