//! The process over HTTP.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use lucid_notary::client::{HttpVerifier, Verifier as Client};
use lucid_notary::{Digest, NotaryVerdict};
use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::server::{PATIENCE, Verifier, command, folder_with, registry_of, serving, sha256};

#[tokio::test]
async fn only_listed_digests_are_notarized() {
    let (_folder, verifier) = serving(&['a', 'b']);
    let answer =
        |notarized| json!({ "digest": sha256(if notarized { 'a' } else { 'c' }), "notarized": notarized });
    for (query, notarized) in [
        (format!("digest={}", sha256('a')), true),
        (format!("digest={}", sha256('c')), false),
        (format!("digest={}", sha256('a').replace(':', "%3A")), true),
        (format!("digest={}", sha256('a').replace('a', "%61")), true),
        (format!("%64igest={}", sha256('a')), true),
        (format!("from=test&digest={}&", sha256('a')), true),
    ] {
        let got = verifier.get(&format!("/registry/check?{query}")).await;
        assert_eq!(got, (StatusCode::OK, answer(notarized)), "{query}");
    }
}

#[tokio::test]
async fn the_notary_client_accepts_the_responses() {
    let (_folder, verifier) = serving(&['a']);
    let client = Client::builder(HttpVerifier::builder(&verifier.url).build().unwrap()).build();
    let digests: Vec<Digest> = ['a', 'b'].map(|digit| sha256(digit).parse().unwrap()).into();
    let verdicts = client.check_all(digests.clone(), Instant::now() + PATIENCE).await;
    assert_eq!(verdicts[&digests[0]].verdict, NotaryVerdict::Notarized);
    assert_eq!(verdicts[&digests[1]].verdict, NotaryVerdict::NotNotarized);
}

#[tokio::test]
async fn a_missing_repeated_or_malformed_digest_is_a_bad_request() {
    let (_folder, verifier) = serving(&['a']);
    let a = sha256('a');
    for (query, reason) in [
        (String::new(), "the parameter digest is missing"),
        ("?".to_owned(), "the parameter digest is missing"),
        (format!("?Digest={a}"), "the parameter digest is missing"),
        (format!("?digest={a}&digest={a}"), "the parameter digest is repeated"),
        (format!("?digest={a}&%64igest="), "the parameter digest is repeated"),
        ("?digest".to_owned(), "has no ':'"),
        ("?digest=".to_owned(), "has no ':'"),
        ("?digest=latest".to_owned(), "digest \"latest\" has no ':'"),
        (format!("?digest={}", &a[..70]), "has 63 hexadecimal digits; expected 64"),
        (format!("?digest={a}a"), "has 65 hexadecimal digits"),
        (format!("?digest={}", a.to_uppercase()), "an algorithm that is not supported"),
        (format!("?digest=sha256:{}", "A".repeat(64)), "has 'A' at byte 7"),
        (format!("?digest=md5:{}", "a".repeat(32)), "expected sha256 or sha512"),
        (format!("?digest={a}%00"), "has '\\0' at byte 71"),
        (format!("?digest={a}%0A"), "has '\\n' at byte 71"),
        (format!("?digest={a}%FF"), "has '\u{fffd}' at byte 71"),
        (format!("?digest={}%zz", &a[..69]), "has '%' at byte 69"),
        (format!("?digest=+{a}"), "an algorithm that is not supported"),
    ] {
        let (status, answer) = verifier.get(&format!("/registry/check{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(reason), "{query}: {answer}");
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_rejected() {
    let (_folder, verifier) = serving(&['a']);
    for path in ["/", "/registry", "/registry/check/", "/registry/Check", "//registry/check", "/healthz/"] {
        let (status, answer) = verifier.get(path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {answer}");
        assert_eq!(answer["error"], "no such path, expected /registry/check or /healthz");
    }
    let client = reqwest::Client::new();
    for (method, path) in
        [(Method::POST, "/registry/check"), (Method::PUT, "/healthz"), (Method::DELETE, "/healthz")]
    {
        let response =
            client.request(method, format!("{}{path}", verifier.url)).body("x").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()["allow"], "GET, HEAD");
    }
    let health = reqwest::get(format!("{}/healthz", verifier.url)).await.unwrap();
    assert_eq!(health.status(), StatusCode::OK);
    assert_eq!(health.text().await.unwrap(), "ok");
}

/// Returns head and body of the raw response, without the date and with header fields in alphabetical order.
fn raw(url: &str, method: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: verifier\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, fields) = head.split_once("\r\n").unwrap();
    let mut head: Vec<_> = fields.lines().filter(|line| !line.starts_with("date:")).collect();
    head.sort_unstable();
    head.insert(0, status);
    (head.join("\n"), body.to_owned())
}

#[test]
fn head_equals_get_without_the_body() {
    let (_folder, verifier) = serving(&['a']);
    let check = format!("/registry/check?digest={}", sha256('a'));
    for (path, status) in [(check.as_str(), 200), ("/registry/check", 400), ("/healthz", 200), ("/", 404)] {
        let (get, body) = raw(&verifier.url, "GET", path);
        assert!(get.starts_with(&format!("HTTP/1.1 {status} ")) && !body.is_empty(), "{get}");
        assert_eq!(raw(&verifier.url, "HEAD", path), (get, String::new()), "{path}");
    }
}

/// Updates a mounted ConfigMap as the kubelet does: writes the new version to a separate directory, atomically
/// swaps the link `..data` to it, and removes the old directory.
fn update_config_map(mount: &Path, version: &str, digests: &[char]) {
    let old = fs::read_link(mount.join("..data"));
    fs::create_dir(mount.join(version)).unwrap();
    fs::write(mount.join(version).join("registry.yaml"), registry_of(digests)).unwrap();
    symlink(version, mount.join("..data_tmp")).unwrap();
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    match old {
        Ok(old) => fs::remove_dir_all(mount.join(old)).unwrap(),
        Err(_) => symlink("..data/registry.yaml", mount.join("registry.yaml")).unwrap(),
    }
}

#[tokio::test]
async fn every_update_of_a_mounted_config_map_is_reloaded() {
    let mount = TempDir::new().unwrap();
    update_config_map(mount.path(), "..2026_01_01", &['a']);
    let verifier = Verifier::start(&mount.path().join("registry.yaml"));
    assert!(verifier.is_notarized(&sha256('a')).await);
    for (version, digit) in [("..2026_01_02", 'b'), ("..2026_01_03", 'c'), ("..2026_01_04", 'd')] {
        update_config_map(mount.path(), version, &[digit]);
        verifier.notarizes_soon(&sha256(digit)).await;
        assert!(!verifier.is_notarized(&sha256('a')).await, "what is gone from the file is not notarized");
    }
}

#[tokio::test]
async fn an_invalid_version_is_logged_once_and_ignored() {
    let (folder, verifier) = serving(&['a']);
    let file = folder.path().join("registry.yaml");

    fs::write(&file, format!("notarized:\n- {}\n- digest: sha256:abc\n", sha256('b'))).unwrap();
    let fault =
        "line 3, column 11, key `notarized[1].digest`: digest \"sha256:abc\" has 3 hexadecimal digits";
    verifier.logs_soon(fault).await;
    // Longer than one poll interval.
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    assert_eq!(verifier.log().matches(fault).count(), 1, "{}", verifier.log());
    assert!(verifier.log().contains(&format!("failed to parse registry file {}", file.display())));
    assert!(verifier.is_notarized(&sha256('a')).await);
    assert!(!verifier.is_notarized(&sha256('b')).await);

    fs::remove_file(&file).unwrap();
    verifier.logs_soon("No such file or directory").await;
    assert!(verifier.is_notarized(&sha256('a')).await);

    fs::write(&file, registry_of(&['c'])).unwrap();
    verifier.notarizes_soon(&sha256('c')).await;
}

#[tokio::test]
async fn sigterm_and_sigint_shut_down_cleanly() {
    let folder = folder_with(&['a']);
    for signal in [Signal::TERM, Signal::INT] {
        let mut verifier = Verifier::start(&folder.path().join("registry.yaml"));
        // An open connection must not delay the shutdown.
        let client = reqwest::Client::new();
        client.get(format!("{}/healthz", verifier.url)).send().await.unwrap().text().await.unwrap();
        let started = Instant::now();
        kill_process(Pid::from_child(&verifier.child), signal).unwrap();
        let status = verifier.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{status}: {}", verifier.log());
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}

#[tokio::test]
async fn idle_connections_are_limited_and_do_not_block_clients() {
    let (_folder, verifier) = serving(&['a']);
    let address = verifier.url.strip_prefix("http://").unwrap();
    let idle: Vec<_> = (0..4400).map(|_| TcpStream::connect(address).unwrap()).collect();
    let answer = tokio::time::timeout(PATIENCE, verifier.is_notarized(&sha256('a'))).await;
    assert!(answer.expect("idle connections keep callers out"));
    let sockets = || {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", verifier.child.id())).unwrap();
        let targets = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    };
    // Includes the listener and the runtime's own sockets.
    assert!((4080..4130).contains(&sockets()), "{}", sockets());
    drop(idle);
    assert!(verifier.is_notarized(&sha256('a')).await);
}

#[tokio::test]
async fn a_variable_is_the_fallback_for_the_flag() {
    let folder = folder_with(&['a']);
    let mut command = command();
    command
        .args(["serve", "--registry"])
        .arg(folder.path().join("registry.yaml"))
        .env("LUCID_LISTEN", "[::1]:0");
    let verifier = Verifier::start_command(command);
    assert!(verifier.url.starts_with("http://[::1]:"), "{}", verifier.url);
    assert!(verifier.is_notarized(&sha256('a')).await);
}

#[test]
fn invalid_settings_are_rejected_with_the_expected_values() {
    let folder = folder_with(&['a']);
    let broken = folder.path().join("broken.yaml");
    fs::write(&broken, "notarised: []").unwrap();
    let good = folder.path().join("registry.yaml");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let missing = folder.path().join("missing.yaml");
    let free = "127.0.0.1:0";

    for (registry, listen, code, texts) in [
        (&missing, free, 1, vec!["missing.yaml", "No such file", "expected YAML with the list `notarized`"]),
        (&broken, free, 1, vec!["broken.yaml", "line 1, column 1, key `notarised`", "expected the key"]),
        (&good, taken.as_str(), 1, vec!["failed to listen on", taken.as_str(), "Address already in use"]),
        (&good, "localhost", 2, vec!["LUCID_LISTEN", "expected an IP address and a port"]),
    ] {
        let Output { status, stderr, stdout } = command()
            .args(["serve", "--registry"])
            .arg(registry)
            .env("LUCID_LISTEN", listen)
            .output()
            .unwrap();
        let message = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(code), "{message}");
        assert!(stdout.is_empty());
        for text in texts {
            assert!(message.contains(text), "{text:?} is not in {message}");
        }
    }
}

#[test]
fn help_documents_every_setting() {
    let mut help = String::new();
    let mut child = command().args(["serve", "--help"]).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_to_string(&mut help).unwrap();
    assert!(child.wait().unwrap().success());
    for text in ["--registry <FILE>", "--listen <ADDRESS>", "LUCID_LISTEN", "0.0.0.0:8080", "LUCID_LOG"] {
        assert!(help.contains(text), "{text:?} is not in:\n{help}");
    }
}
