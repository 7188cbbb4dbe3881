//! Calls reach the host that the application meant, or are refused.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{Arc, Mutex, mpsc},
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

use super::pod::{APP, PATIENCE, Pod, SETTINGS, Tool, get, request, respond, server};

/// Settings of `lucid-egress` with further members.
pub(crate) fn with(members: &str) -> String {
    format!("{},{members}}}", SETTINGS.strip_suffix('}').unwrap())
}

pub(crate) fn ok(body: &str) -> Result<String, String> {
    Ok(format!("200 {body}"))
}

#[test]
fn each_call_reaches_the_host_that_it_was_sent_to() {
    for tool in [Tool::Nft, Tool::Iptables] {
        let Some(pod) = Pod::start(tool, SETTINGS, &[]) else { return };
        for (address, name) in [
            ("10.0.0.1:8000", "ONE"),
            ("10.0.0.3:8000", "TWO"),
            ("[fd00::1]:8000", "SIX"),
            ("10.0.0.1:8001", "OTHER"),
        ] {
            server(&pod.network.node, address, name);
        }
        server(&pod.network.pod, "[::]:5000", "MODEL");
        for (address, name) in [("10.0.0.1:8000", "ONE"), ("10.0.0.3:8000", "TWO"), ("[fd00::1]:8000", "SIX")]
        {
            for uid in [APP, 0] {
                let body = format!("{name} llm.models.svc:8000/v1 AUD1 AUD2");
                assert_eq!(
                    pod.get(uid, address, "/v1", "llm.models.svc:8000"),
                    ok(&body),
                    "{tool:?} {address}"
                );
            }
        }
        assert_eq!(pod.get(APP, "10.0.0.1:8001", "/", "a"), ok("OTHER a/ "));
        // Callers of the first auditor mean the model, as do those of its later hops, which cannot skip it.
        for address in ["127.0.0.1:8081", "[::1]:8082", "10.0.0.2:8083", "127.0.0.1:5000", "[fd00::2]:5000"] {
            assert_eq!(pod.get(APP, address, "/", "a"), ok("MODEL a/ AUD1 AUD2"), "{tool:?} {address}");
        }
        for address in ["10.0.0.2:5000", "[fd00::2]:8081", "10.0.0.2:8083"] {
            let response = get(&pod.network.node, APP, address, "GET / HTTP/1.1\r\nHost: a\r\n");
            assert_eq!(response, ok("MODEL a/ AUD1 AUD2"), "{tool:?} {address}");
        }
    }
}

#[test]
fn a_call_without_a_known_destination_is_refused() {
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    server(&pod.network.node, "10.0.0.1:8000", "ONE");
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forget: yes\r\n";
    let response = get(&pod.network.pod, APP, "10.0.0.1:8000", head).unwrap();
    assert!(response.starts_with("421 ") && response.contains("an auditor did not forward it"), "{response}");
    // Only the last auditor reaches the exit, and it cannot invent a destination.
    let head = "GET / HTTP/1.1\r\nHost: a\r\nLucid-Route: 00000000000000000000000000000000\r\n";
    let response = get(&pod.network.pod, 20002, "127.0.0.1:8083", head).unwrap();
    assert!(response.starts_with("421 ") && response.contains("forged"), "{response}");
    // A header of the application is replaced.
    assert_eq!(get(&pod.network.pod, APP, "10.0.0.1:8000", head), ok("ONE a/ AUD1 AUD2"));
    // A caller cannot hide headers from the auditors as hop-by-hop.
    let hidden =
        [("content-type", "a/b"), ("content-encoding", "br"), ("traceparent", "00-1"), ("lucid-other", "1")];
    for (name, value) in
        hidden.into_iter().chain([("host", ""), ("lucid-route", ""), ("Transfer-Encoding", "")])
    {
        let line =
            if value.is_empty() { "X: 1".to_owned() } else { format!("{name}: {value}\r\nX-Echo: {name}") };
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, {name}\r\n{line}\r\n");
        let response = get(&pod.network.pod, APP, "10.0.0.1:8000", &head);
        assert_eq!(response, ok(&format!("ONE a/ AUD1 AUD2{value}")), "{name}");
    }
    // No server listens.
    let response = pod.get(APP, "10.0.0.3:8000", "/", "a").unwrap();
    assert!(response.starts_with("502 ") && response.contains("http://10.0.0.3:8000"), "{response}");
}

#[test]
fn hosts_that_are_the_pod_itself_are_refused() {
    // Without `Via`, which an auditor may drop.
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forget: yes\r\n";
    let refused = |pod: &Pod, upstream: &str| {
        let response = get(&pod.network.pod, APP, "127.0.0.1:8081", head).unwrap();
        assert!(response.starts_with("508 ") && response.contains("is this pod"), "{upstream}: {response}");
    };
    for upstream in ["http://10.0.0.2:8081", "http://[fd00::2]:8082", "http://pod.models.svc:8083"] {
        let settings = format!(r#"{{"first":8081,"exit":8083,"model":5000,"upstream":"{upstream}"}}"#);
        let Some(pod) = Pod::start(Tool::None, &settings, &[]) else { return };
        refused(&pod, upstream);
    }
    for upstream in ["http://10.0.0.2:8082", "https://[::ffff:10.0.0.2]:8084", "http://pod.models.svc:8081"] {
        let settings = with(&format!(r#""upstream":"{upstream}""#));
        let Some(pod) = Pod::start(Tool::Nft, &settings, &[]) else { return };
        let response = pod.get(APP, "127.0.0.1:8081", "/", "a").unwrap();
        assert!(response.starts_with("508 ") && response.contains("is this pod"), "{upstream}: {response}");
    }
}

#[test]
fn a_request_that_comes_back_through_another_host_is_refused() {
    for (tool, status, part) in [(Tool::None, "508 ", "came back"), (Tool::Nft, "403 ", "is not in this pod")]
    {
        let settings = match tool {
            Tool::None => {
                r#"{"first":8081,"exit":8083,"model":5000,"upstream":"http://api.example.com:9000"}"#
                    .to_owned()
            }
            _ => with(r#""upstream":"http://api.example.com:9000""#),
        };
        let Some(pod) = Pod::start(tool, &settings, &[]) else { return };
        // A load balancer.
        pod.network.node.serve(APP, "10.0.0.1:9000", |mut stream: TcpStream| {
            let mut forward = TcpStream::connect("10.0.0.2:8081")?;
            let (mut from, mut to) = (stream.try_clone()?, forward.try_clone()?);
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::io::copy(&mut forward, &mut stream).map(drop)
        });
        let response = pod.get(APP, "127.0.0.1:8081", "/", "a").unwrap();
        assert!(response.starts_with(status) && response.contains(part), "{tool:?}: {response}");
    }
}

/// The kernel cannot redirect them: they carry their interface.
#[test]
fn link_local_hosts_do_not_respond() {
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    server(&pod.network.node, "[::]:8000", "SIX");
    let interfaces = pod.network.pod.run("cat /proc/net/if_inet6");
    let eth0 = interfaces.lines().find(|line| line.ends_with("eth0")).unwrap();
    let index = u32::from_str_radix(eth0.split(' ').nth(1).unwrap(), 16).unwrap();
    assert_eq!(
        pod.get(APP, &format!("[fe80::1%{index}]:8000"), "/", "a"),
        Err("connection timed out".to_owned())
    );
    assert_eq!(pod.get(APP, "[fd00::1]:8000", "/", "a"), ok("SIX a/ AUD1 AUD2"));
}

#[test]
fn hosts_outside_the_allow_list_are_refused() {
    let settings = with(r#""allowedHosts":"10.0.0.9, *.models.svc:8000""#);
    let Some(pod) = Pod::start(Tool::Nft, &settings, &[]) else { return };
    server(&pod.network.node, "10.0.0.1:8000", "ONE");
    server(&pod.network.node, "10.0.0.3:8000", "TWO");
    pod.network.node.run("ip address add 10.0.0.9/24 dev pod");
    server(&pod.network.node, "10.0.0.9:8000", "NINE");
    server(&pod.network.pod, "[::]:8000", "OWN");
    assert_eq!(pod.get(APP, "10.0.0.9:8000", "/", "anything"), ok("NINE anything/ AUD1 AUD2"));
    let response = pod.get(APP, "10.0.0.1:8000", "/", "other.example").unwrap();
    assert!(response.starts_with("403 ") && response.contains("other.example"), "{response}");
    // An allowed name leads to the addresses of this name, not to the address that the caller chose.
    assert_eq!(pod.get(APP, "10.0.0.1:8000", "/", "llm.models.svc"), ok("TWO llm.models.svc/ AUD1 AUD2"));
    let response = pod.get(APP, "10.0.0.1:8000", "/", "pod.models.svc").unwrap();
    assert!(response.starts_with("508 ") && response.contains("10.0.0.2 is this pod"), "{response}");
}

#[test]
fn calls_to_the_first_auditor_reach_the_upstream_by_tls() {
    let key = rcgen::generate_simple_self_signed(["api.example.com".to_owned()]).unwrap();
    let config = ServerConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![key.cert.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der())),
        );
    let config = Arc::new(config.unwrap());
    let settings = with(r#""upstream":"https://api.example.com:8443/v1""#);
    let pem = key.cert.pem();
    // The file of the system's authorities, readable by the user of lucid-egress.
    let system = std::env::temp_dir().join(format!("lucid-egress-{}.crt", std::process::id()));
    std::fs::write(&system, &pem).unwrap();
    let system_file = system.to_str().unwrap();
    for (variables, is_trusted) in [
        (&[("LUCID_UPSTREAM_CA", pem.as_str())][..], true),
        (&[("SSL_CERT_FILE", system_file)][..], true),
        (&[][..], false),
    ] {
        let Some(pod) = Pod::start(Tool::Nft, &settings, variables) else { return };
        let config = Arc::clone(&config);
        pod.network.node.serve(APP, "10.0.0.1:8443", move |stream: TcpStream| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            let (first, headers) = request(&mut stream);
            respond(&mut stream, "UPSTREAM", &first, &headers)?;
            stream.conn.send_close_notify();
            stream.flush()
        });
        let response = pod.get(APP, "127.0.0.1:8081", "/v1/chat", "localhost:8081");
        match is_trusted {
            true => assert_eq!(response, ok("UPSTREAM api.example.com:8443/v1/chat AUD1 AUD2")),
            false => assert!(response.as_ref().unwrap().starts_with("502 "), "{response:?}"),
        }
        // Other pods cannot use the upstream in the name of this one.
        for address in ["10.0.0.2:8081", "10.0.0.2:8083"] {
            let response =
                get(&pod.network.node, APP, address, "GET /v1/chat HTTP/1.1\r\nHost: a\r\n").unwrap();
            assert!(response.starts_with("403 ") && response.contains("not in this pod"), "{response}");
        }
        // Other hosts are still reached.
        server(&pod.network.node, "10.0.0.1:8000", "ONE");
        assert_eq!(pod.get(APP, "10.0.0.1:8000", "/", "a"), ok("ONE a/ AUD1 AUD2"));
    }
    std::fs::remove_file(system).unwrap();
}

#[test]
fn responses_are_streamed() {
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    let (seen, is_seen) = mpsc::channel();
    let is_seen = Mutex::new(is_seen);
    pod.network.node.serve(APP, "10.0.0.1:8000", move |mut stream: TcpStream| {
        request(&stream);
        write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")?;
        // The second piece is sent when the caller has the first one.
        is_seen.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        write!(stream, "3\r\ntwo\r\n0\r\n\r\n")
    });
    let mut received = String::new();
    pod.network.pod.as_user(APP, || {
        let mut stream = TcpStream::connect("10.0.0.1:8000").unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut buffer = [0; 512];
        while !received.contains("one") {
            let length = stream.read(&mut buffer).unwrap();
            assert!(length > 0, "{received}");
            received += std::str::from_utf8(&buffer[..length]).unwrap();
        }
        assert!(!received.contains("two"));
        seen.send(()).unwrap();
        stream.read_to_string(&mut received).unwrap();
    });
    assert!(received.contains("two"), "{received}");
}
