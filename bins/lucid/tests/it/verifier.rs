//! Failures of the Verifier, tested with `lucid validate` as a process, which uses the same client as the
//! webhook.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::run_command;

const DIGEST: &str = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
const OTHER: &str = "sha256:d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35";

/// Maximum duration of a review while the Verifier does not respond. Its own deadline is 10 s.
const DEADLINE: Duration = Duration::from_secs(10);

type Fault = fn(&mut TcpStream, usize);

/// Starts a Verifier that handles each numbered request by `fault`, until the process ends.
fn verifier(fault: Fault) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counted) = (stream.unwrap(), Arc::clone(&counted));
            thread::spawn(move || {
                let mut request = [0; 4096];
                if stream.read(&mut request).is_ok_and(|length| length > 0) {
                    fault(&mut stream, counted.fetch_add(1, Ordering::SeqCst));
                }
            });
        }
    });
    (address, requests)
}

fn respond(stream: &mut TcpStream, status: &str, header: &str, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{header}\r\n");
    // A client may close the connection early.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}

fn verdict(stream: &mut TcpStream, digest: &str, notarized: bool) {
    respond(stream, "200 OK", "", &format!(r#"{{"digest":"{digest}","notarized":{notarized}}}"#));
}

fn hang(_: &mut TcpStream, _: usize) {
    thread::sleep(Duration::from_secs(60));
}

fn drip(stream: &mut TcpStream, _: usize) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n");
    while stream.write_all(b" ").is_ok() {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a review of a pod with one auditor. Returns exit code, standard output and standard error.
fn review(arguments: &[&str]) -> (i32, String, String) {
    let image = format!("ghcr.io/lucid/lucid-toxicity-auditor@{DIGEST}");
    let pod = format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "spec": {{"containers": [
            {{"name": "lucid-toxicity-auditor", "image": "{image}"}}]}}}}"#
    );
    run_command("validate", &[&["--admission-mode=enforce", "--tier-label="], arguments].concat(), &pod)
}

#[test]
fn an_unavailable_verifier_denies_only_in_strict_mode() {
    let faults: [(&str, Fault, &str); 8] = [
        ("slow", drip, "no response within 1.5s"),
        ("hanging", hang, "no response within 1.5s"),
        ("closed", |_, _| {}, "failed to query the Verifier"),
        (
            "500",
            |stream, _| respond(stream, "500 Internal Server Error", "", "no"),
            "500 Internal Server Error",
        ),
        ("garbage", |stream, _| respond(stream, "200 OK", "", "<html>"), "failed to parse the response"),
        (
            "redirect",
            |stream, _| respond(stream, "302 Found", "location: http://127.0.0.1:1/\r\n", ""),
            "302 Found",
        ),
        ("wrong digest", |stream, _| verdict(stream, OTHER, true), "rejected the response"),
        (
            "huge",
            |stream, _| respond(stream, "200 OK", "", &" ".repeat(10 << 20)),
            "the response is longer than",
        ),
    ];
    thread::scope(|scope| {
        for (name, fault, reason) in faults {
            scope.spawn(move || {
                let (address, _) = verifier(fault);
                let url = format!("--verifier-url=http://{address}");
                let begun = Instant::now();
                let (code, output, _) = review(&["--strict-notarization", &url]);
                assert!(code == 1 && output.contains("refused"), "{name}: {code} {output}");
                assert!(output.contains("unknown: ") && output.contains(reason), "{name}: {output}");
                assert!(
                    begun.elapsed() < DEADLINE + Duration::from_secs(35),
                    "{name}: {:?}",
                    begun.elapsed()
                );
                let (code, output, _) = review(&[&url]);
                assert!(code == 0 && output.contains("allowed with warnings"), "{name}: {code} {output}");
                assert!(output.contains(reason), "{name}: {output}");
            });
        }
    });
}

#[test]
fn flapping_next_hops_are_checked_again() {
    let (address, requests) = verifier(|stream, request| match request {
        0 => respond(stream, "503 Service Unavailable", "", ""),
        1 => {}
        _ => verdict(stream, DIGEST, true),
    });
    let url = format!("--verifier-url=http://{address}");
    let (code, output, _) = review(&["--strict-notarization", &url]);
    assert!(code == 0 && output.contains("notarized\nallowed"), "{output}");
    assert!(requests.load(Ordering::SeqCst) >= 3);
}

#[test]
fn the_allowlist_and_the_token_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let (list, token) = (folder.path().join("list"), folder.path().join("token"));
    fs::write(&list, DIGEST).unwrap();
    fs::write(&token, "secret\n").unwrap();
    let list = format!("--verifier-allowlist-file={}", list.display());
    let (code, output, _) = review(&["--strict-notarization", &list]);
    assert!(code == 0 && output.contains("notarized (allowlist)\nallowed"), "{output}");

    fs::write(folder.path().join("other"), OTHER).unwrap();
    let other = format!("--verifier-allowlist-file={}", folder.path().join("other").display());
    let (code, output, _) = review(&["--strict-notarization", &other]);
    assert!(code == 1 && output.contains("it is not on the allowlist, and no Verifier"), "{output}");

    // Responds to requests with the token, and closes other connections.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("--verifier-url=http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            if String::from_utf8_lossy(&request[..length]).contains("authorization: Bearer secret\r\n") {
                verdict(&mut stream, DIGEST, true);
            }
        }
    });
    let (code, output, _) =
        review(&["--strict-notarization", &url, &format!("--verifier-token-file={}", token.display())]);
    assert!(code == 0 && output.ends_with("notarized\nallowed\n"), "{output}");
}

#[test]
fn options_that_do_not_fit_are_refused_with_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "secret").unwrap();
    let token = format!("--verifier-token-file={}", token.display());
    for (arguments, says) in [
        (vec![token.as_str()], "--verifier-token-file is set without LUCID_VERIFIER_URL"),
        (
            vec![&token, "--verifier-url=http://verifier.example"],
            "failed to use --verifier-token-file: the base URL of the Verifier is plain http",
        ),
        (
            vec!["--verifier-url=https://verifier.example", "--verifier-client-directory=/nonexistent"],
            "failed to use --verifier-client-directory: failed to read /nonexistent/tls.crt",
        ),
        (
            vec!["--verifier-url=https://verifier.example", "--verifier-ca-file=/nonexistent/ca.crt"],
            "failed to use --verifier-ca-file: failed to read /nonexistent/ca.crt",
        ),
        (vec!["--verifier-url=http://verifier.example", "--verifier-ca-file=/x"], "expected https"),
        (vec!["--verifier-allowlist-file=/nonexistent/list"], "LUCID_VERIFIER_ALLOWLIST_FILE"),
        (
            vec!["--signatures-directory=/nonexistent"],
            "LUCID_SIGNATURES_DIRECTORY: failed to read /nonexistent",
        ),
        (vec!["--verifier-url=ftp://verifier.example"], "LUCID_VERIFIER_URL"),
    ] {
        let (code, _, error) = review(&arguments);
        assert!(code == 2 && error.contains(says), "{arguments:?}: {code} {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
