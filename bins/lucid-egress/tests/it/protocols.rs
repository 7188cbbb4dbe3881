//! Protocols of callers: HTTP/1.1 and HTTP/2 pass the chain, others are refused.

use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, Version, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use super::{
    pod::{APP, Pod, SETTINGS, Tool, get, server},
    traffic::ok,
};

#[test]
fn http_2_with_prior_knowledge_passes_the_chain() {
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    server(&pod.network.node, "10.0.0.1:8000", "ONE");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let body = pod.network.pod.as_user(APP, || {
        runtime.block_on(async {
            let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
            let request = Request::get("http://10.0.0.1:8000/v1").body(Empty::<Bytes>::new()).unwrap();
            let response = client.request(request).await.unwrap();
            assert_eq!(response.version(), Version::HTTP_2);
            response.into_body().collect().await.unwrap().to_bytes()
        })
    });
    assert_eq!(body, "ONE 10.0.0.1:8000/v1 AUD1 AUD2");
}

#[test]
fn protocols_that_auditors_cannot_check_are_refused() {
    let Some(pod) = Pod::start(Tool::Nft, SETTINGS, &[]) else { return };
    server(&pod.network.node, "10.0.0.1:8000", "ONE");
    let send = |head: &str| get(&pod.network.pod, APP, "10.0.0.1:8000", head);
    let answer = send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n").unwrap();
    assert!(answer.starts_with("501 ") && answer.contains(r#"upgrade to \"websocket\""#), "{answer}");
    let answer = send("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n").unwrap();
    assert!(answer.starts_with("501 ") && answer.contains("CONNECT"), "{answer}");
    // The last auditor cannot open a tunnel either.
    let answer = get(&pod.network.pod, 20002, "127.0.0.1:8083", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n");
    assert!(answer.as_ref().unwrap().starts_with("501 "), "{answer:?}");
    // Clients that only offer HTTP/2, such as Java's, go on with HTTP/1.1.
    assert_eq!(send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n"), ok("ONE a/ AUD1 AUD2"));
}
