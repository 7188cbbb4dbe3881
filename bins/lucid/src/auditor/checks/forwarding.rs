//! Requests and answers pass unchanged, except for what belongs to a hop.

use std::net::SocketAddr;

use super::checks;
use crate::auditor::bench::{
    self, Bench, CHUNKED, JSON, Outcome, PLAIN, Problem, chunks, ensure, get, own_address, request,
    stream_head,
};
use crate::auditor::codings::encode;
use crate::auditor::message::{End, Fields, Message};

const HEADERS: &str = "Authorization: Bearer a\r\nX-Many: one\r\nX-Many: two\r\nX-Empty:\r\n";
const SAME: &[&str] = &["Host: model.test:5000", "Authorization: Bearer a", "X-Many: one, two", "X-Empty: "];

checks! {
    "request", "Method, path, query, Host and other headers reach the model unchanged" => pass(false, &[
        ("GET /v1/a%20b//c?x=1&x=2&y", HEADERS, "", SAME),
        ("DELETE /v1/a%20b//c?x=1&x=2&y", HEADERS, "", SAME),
        ("PUT /v1/a%20b//c?x=1&x=2&y", HEADERS, "", SAME),
        ("PATCH /v1/a%20b//c?x=1&x=2&y", HEADERS, "", SAME)]);
    "body", "Allowed bodies reach the model byte by byte" => pass(false, &[
        ("POST /v1/chat", JSON, "{ \"messages\" :\t[{\"role\":\"user\",\"content\":\"Gr\\u00fc\\u00DFe \u{1f600}\\n\"}],\r\n\"n\":1.0e0 }\n", &["Content-Type: application/json"]),
        ("POST /v1/chat", PLAIN, "one\r\ntwo\n\nthree ", &["Content-Type: text/plain"]),
        ("POST /v1/chat", PLAIN, "", &["Content-Type: text/plain"]),
        ("POST /v1/files", "Content-Type: application/jsonl\r\n", "{\"n\": 1 }\n{ \"n\":2}\r\n\n{\"n\":3}", &["Content-Type: application/jsonl"])]);
    "opaque", "Signatures, encrypted contents and identifiers reach the model byte by byte" => pass(false, &[
        ("POST /v1/messages", JSON, r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"EqQB/$CODE/W7=="}]}]}"#, &[]),
        ("POST /v1/messages", JSON, r#"{"messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"EqQB/$CODE/W7=="}]}]}"#, &[]),
        ("POST /v1/responses", JSON, r#"{"input":[{"type":"reasoning","id":"rs_$CODE","summary":[],"encrypted_content":"gAAA/$CODE/W7=="}]}"#, &[])]);
    "chunked", "Chunked requests are forwarded" => pass(false, &[("POST /v1/chat", CHUNKED, "Hello there", &[])]);
    "answer", "Status, repeated headers and body of the model reach the caller" => answer();
    "trailers", "Trailers are forwarded in both directions" => trailers();
    "hop-by-hop", "Hop-by-hop headers and those named by Connection are removed" => pass(false, &[
        ("GET /", "Connection: X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: deflate\r\n", "",
            &["X-Mine: none", "Keep-Alive: none", "Proxy-Connection: none", "TE: none"])]);
    "protected-headers", "Connection does not remove headers by which the next hop judges" => pass(true, &[
        ("POST /", "Connection: Content-Type\r\nContent-Type: application/x-www-form-urlencoded\r\n", "a=b", &["Content-Type: application/x-www-form-urlencoded"]),
        ("POST /", "Connection: Content-Disposition\r\nContent-Disposition: inline\r\n", "a=b", &["Content-Disposition: inline"]),
        ("POST /", "Connection: Content-Language\r\nContent-Language: en\r\n", "a=b", &["Content-Language: en"]),
        ("POST /", "Connection: Content-Length\r\n", "a=b", &[]),
        ("POST /", "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", "a=b", &[]),
        ("POST /", "Connection: Host\r\n", "a=b", &["Host: model.test:5000"]),
        ("POST /", "Connection: Via\r\nVia: 1.1 proxy\r\n", "a=b", &["Via: 1.1 proxy…"]),
        ("POST /", "Connection: X-Forwarded-For\r\nX-Forwarded-For: 203.0.113.7\r\n", "a=b", &["X-Forwarded-For: 203.0.113.7…"]),
        // An auditor may add its own span.
        ("POST /", "Connection: Traceparent\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n", "a=b", &["Traceparent: 00-0af7651916cd43dd8448eb211c80319c-…"]),
        ("POST /", "Connection: Lucid-Test\r\nLucid-Test: 1\r\n", "a=b", &["Lucid-Test: 1"])]);
    "client-address", "The last address in X-Forwarded-For is the caller's" => client_address();
    "client-address-aliases", "Other spellings of X-Forwarded-For are removed" => pass(false, &[
        ("GET /", "X_Forwarded_For: 203.0.113.7\r\nX-Forwarded_For: 203.0.113.8\r\n", "", &["X_Forwarded_For: none", "X-Forwarded_For: none"])]);
    "identity", "The model is asked for uncompressed answers" => pass(false, &[
        ("POST /v1/chat", "Accept-Encoding: gzip, br\r\nContent-Type: text/plain\r\n", "Hello", &["Accept-Encoding: none or identity"]),
        ("POST /v1/chat", JSON, "{}", &["Accept-Encoding: none or identity"])]);
    "request-codings", "A body in gzip, deflate, br or zstd reaches the model, or gets the status 415 with Accept-Encoding" => pass(true, &[
        ("POST /v1/chat", "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", "Hello there", &[]),
        ("POST /v1/chat", "Content-Type: text/plain\r\nContent-Encoding: deflate\r\n", "Hello there", &[]),
        ("POST /v1/chat", "Content-Type: text/plain\r\nContent-Encoding: br\r\n", "Hello there", &[]),
        ("POST /v1/chat", "Content-Type: text/plain\r\nContent-Encoding: zstd\r\n", "Hello there", &[])]);
}

/// Sends requests (line, headers and body), and expects them at the model with these headers: `none` is a missing
/// header, and `…` any end of a value.
pub(super) async fn pass(
    bench: &mut Bench,
    may_refuse: bool,
    requests: &[(&str, &str, &str, &[&str])],
) -> Outcome {
    for (line, headers, body, expected) in requests {
        let body = bench.fill(body);
        bench.say(bench::answer(JSON, "{}")).await?;
        let answer = bench.exchange(request(line, headers, &body)).await?;
        let requests = bench.model.requests();
        let is_coded = headers.contains("Content-Encoding: ");
        let explains = !is_coded || answer.status() == 415 && answer.header("accept-encoding").is_some();
        if may_refuse && requests.is_empty() && answer.status() >= 400 && explains {
            continue;
        }
        let received = requests.iter().find(|request| request.end == End::Whole);
        let received = received.ok_or_else(|| Problem::Failed("the request at the model".to_owned()))?;
        let is_answered = answer.status() == 200 && answer.end == End::Whole;
        ensure(is_answered, "the answer of the model, with status 200")?;
        let is_same = received.start.rsplit_once(' ').is_some_and(|(found, _)| found == *line);
        ensure(is_same, format!("the request {line} at the model"))?;
        let coding = received.header("content-encoding").unwrap_or_default();
        let is_same = received.body == encode(coding, body.as_bytes());
        ensure(is_same, format!("the body {body:?} at the model"))?;
        let missing = expected.iter().find(|expected| !has(received, expected)).unwrap_or(&"");
        ensure(missing.is_empty(), format!("{missing} at the model"))?;
    }
    Ok(())
}

/// Returns `true` if a header has the value that is expected, such as `TE: none`.
fn has(message: &Message, expected: &str) -> bool {
    let (name, values) = expected.split_once(": ").unwrap_or((expected, ""));
    let found = message.headers(name);
    values.split(" or ").any(|value| match value.strip_suffix('…') {
        Some(begin) => found.join(", ").starts_with(begin),
        None if value == "none" => found.is_empty(),
        None => !found.is_empty() && found.join(", ") == value,
    })
}

async fn answer(bench: &mut Bench) -> Outcome {
    let headers = "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Model: yes\r\nContent-Type: text/plain\r\n";
    bench.say(bench::answer_of("418 I'm a teapot", headers, "short and stout")).await?;
    let answer = bench.exchange(get("/tea", "")).await?;
    ensure(answer.status() == 418, "the status 418")?;
    ensure(answer.headers("set-cookie") == ["a=1", "b=2"], "two headers Set-Cookie")?;
    ensure(answer.header("x-model") == Some("yes"), "the header X-Model")?;
    ensure(answer.body == b"short and stout" && answer.end == End::Whole, "the body \"short and stout\"")
}

async fn trailers(bench: &mut Bench) -> Outcome {
    let end = |mut message: Vec<u8>, trailer: &str| {
        message.truncate(message.len() - 2);
        [&message, trailer.as_bytes(), b"\r\n\r\n"].concat()
    };
    let head = String::from_utf8_lossy(&stream_head("text/plain"))
        .replace("\r\n\r\n", "\r\nTrailer: X-Echo\r\n\r\n");
    bench.say([head.as_bytes(), &end(chunks(["fine"]), "X-Echo: 8")].concat()).await?;
    let headers = [CHUNKED, "Connection: TE\r\nTE: trailers\r\nTrailer: X-Sum\r\n"].concat();
    let answer = bench.exchange(end(request("POST /", &headers, "hello"), "X-Sum: 7")).await?;
    let has = |trailers: &Fields, name, value| {
        trailers.iter().any(|it| it.0.eq_ignore_ascii_case(name) && it.1 == value)
    };
    let is_there = bench.model.requests().iter().any(|it| has(&it.trailers, "x-sum", "7"));
    ensure(is_there, "the trailer X-Sum at the model")?;
    ensure(has(&answer.trailers, "x-echo", "8"), "the trailer X-Echo at the caller")
}

async fn client_address(bench: &mut Bench) -> Outcome {
    let mut addresses = vec![bench.auditor];
    if bench.process.is_some() {
        addresses.extend(own_address().map(|own| SocketAddr::new(own, bench.auditor.port())));
    }
    for address in addresses {
        for before in ["", "203.0.113.7, "] {
            bench.say(bench::answer(PLAIN, "fine")).await?;
            let mut caller = bench.connect_to(address).await?;
            let own = caller.address()?;
            if own.is_loopback() && !before.is_empty() {
                // From within the pod: the first auditor has appended the address.
                continue;
            }
            let line = before.strip_suffix(", ").map(|it| format!("X-Forwarded-For: {it}\r\n"));
            caller.send(get("/", &line.unwrap_or_default())).await;
            caller.answer().await;
            bench.asked().await?;
            let found = bench.model.requests()[0].headers("x-forwarded-for").join(", ").replace(", ", ",");
            let expected = format!("{before}{own}");
            let is_there = found == expected.replace(", ", ",");
            ensure(is_there, format!("X-Forwarded-For: {expected} at the model"))?;
        }
    }
    Ok(())
}
