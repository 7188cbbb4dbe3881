//! Requests and answers pass unchanged, except for what belongs to a hop.

use std::net::SocketAddr;

use super::checks;
use super::contract::own_address;
use crate::auditor::bench::{self, Bench, JSON, Outcome, PLAIN, Problem, ensure, get, post};
use crate::auditor::codings::encode;
use crate::auditor::message::{End, Message};

checks! {
    "request", "Method, path, query, Host and other headers reach the model unchanged" => request();
    "body", "Allowed bodies reach the model byte by byte" => bodies(&[
        ("/v1/chat", JSON, "{ \"messages\" :\t[{\"role\":\"user\",\"content\":\"Gr\\u00fc\\u00DFe \u{1f600}\\n\"}],\r\n\"n\":1.0e0 }\n"),
        ("/v1/chat", PLAIN, "one\r\ntwo\n\nthree "),
        ("/v1/chat", PLAIN, ""),
        ("/v1/files", "Content-Type: application/jsonl\r\n", "{\"n\": 1 }\n{ \"n\":2}\r\n\n{\"n\":3}"),
    ]);
    "opaque", "Signatures, encrypted contents and identifiers reach the model byte by byte" => bodies(&[
        ("/v1/messages", JSON, r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"EqQB/$MASKED/W7=="}]}]}"#),
        ("/v1/messages", JSON, r#"{"messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"EqQB/$MASKED/W7=="}]}]}"#),
        ("/v1/responses", JSON, r#"{"input":[{"type":"reasoning","id":"rs_$MASKED","summary":[],"encrypted_content":"gAAA/$MASKED/W7=="}]}"#),
    ]);
    "chunked", "Chunked requests are forwarded" => chunked();
    "answer", "Status, repeated headers and body of the model reach the caller" => answer();
    "trailers", "Trailers are forwarded in both directions" => trailers();
    "hop-by-hop", "Hop-by-hop headers and those named by Connection are removed" => hop_by_hop();
    "protected-headers", "Connection does not remove headers by which the next hop judges" => protected();
    "client-address", "The last address in X-Forwarded-For is the caller's" => client_address();
    "client-address-aliases", "Other spellings of X-Forwarded-For are removed" => client_address_aliases();
    "identity", "The model is asked for uncompressed answers" => identity();
    "request-codings", "A body in gzip, deflate, br or zstd reaches the model, or gets the status 415 with Accept-Encoding" => codings();
}

const PATH: &str = "/v1/a%20b//c?x=1&x=2&y";

async fn request(bench: &mut Bench) -> Outcome {
    let headers = "Authorization: Bearer a\r\nX-Many: one\r\nX-Many: two\r\nX-Empty:\r\n";
    for method in ["GET", "DELETE", "PUT", "PATCH"] {
        let (received, _) = bench.pass(get(PATH, headers).replacen("GET", method, 1)).await?;
        let expected = format!("{method} {PATH} HTTP/1.1");
        ensure(received.start == expected, format!("the request line {expected} at the model"))?;
        for (name, values) in [
            ("host", "model.test:5000"),
            ("authorization", "Bearer a"),
            ("x-many", "one, two"),
            ("x-empty", ""),
        ] {
            let found = received.headers(name);
            let is_there = !found.is_empty() && found.join(", ") == values;
            ensure(is_there, format!("the header {name}: {values} at the model"))?;
        }
    }
    Ok(())
}

async fn bodies(bench: &mut Bench, requests: &[(&str, &str, &str)]) -> Outcome {
    for (path, content_type, body) in requests {
        let body = bench.fill(body);
        let (received, _) = bench.pass(post(path, content_type, &body)).await?;
        let found = received.header("content-type").map(|it| format!("Content-Type: {it}\r\n"));
        let is_same = received.body == body.as_bytes() && found.as_deref() == Some(content_type);
        ensure(is_same, format!("the body {body:?} with {} at the model", content_type.trim()))?;
    }
    Ok(())
}

async fn chunked(bench: &mut Bench) -> Outcome {
    let headers = [PLAIN, "Transfer-Encoding: chunked\r\n"].concat();
    let request = post("/v1/chat", &headers, "Hello there");
    let request = String::from_utf8_lossy(&request).replace("\r\n6\r\n", "\r\n6;x=y\r\n");
    let (received, _) = bench.pass(request).await?;
    ensure(received.body == b"Hello there", "the body \"Hello there\" at the model")
}

async fn answer(bench: &mut Bench) -> Outcome {
    let headers = "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Model: yes\r\nContent-Type: text/plain\r\n";
    let said = String::from_utf8_lossy(&bench::answer(headers, "short and stout")).into_owned();
    bench.say(said.replace("200 OK", "418 I'm a teapot")).await?;
    let answer = bench.exchange(get("/tea", "")).await?;
    ensure(answer.status() == 418, "the status 418")?;
    ensure(answer.headers("set-cookie") == ["a=1", "b=2"], "two headers Set-Cookie")?;
    ensure(answer.header("x-model") == Some("yes"), "the header X-Model")?;
    ensure(answer.body == b"short and stout" && answer.end == End::Whole, "the body \"short and stout\"")
}

async fn trailers(bench: &mut Bench) -> Outcome {
    let with = |trailer: &str, message: Vec<u8>| {
        let message = message.strip_suffix(b"\r\n").map(<[u8]>::to_vec).unwrap_or_default();
        [&message, trailer.as_bytes(), b"\r\n\r\n"].concat()
    };
    let chunked = [PLAIN, "Transfer-Encoding: chunked\r\n"].concat();
    let headers = [&*chunked, "Trailer: X-Echo\r\n"].concat();
    bench.say(with("X-Echo: 8", bench::answer(&headers, "fine"))).await?;
    let headers = [&*chunked, "Connection: TE\r\nTE: trailers\r\nTrailer: X-Sum\r\n"].concat();
    let answer = bench.exchange(with("X-Sum: 7", post("/", &headers, "hello"))).await?;
    let has = |message: &Message, name: &str, value: &str| {
        message.trailers.iter().any(|it| it.0.eq_ignore_ascii_case(name) && it.1 == value)
    };
    let requests = bench.model.requests();
    ensure(requests.iter().any(|it| has(it, "x-sum", "7")), "the trailer X-Sum at the model")?;
    ensure(has(&answer, "x-echo", "8"), "the trailer X-Echo at the caller")
}

async fn hop_by_hop(bench: &mut Bench) -> Outcome {
    let headers = "Connection: X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: deflate\r\n";
    let (received, _) = bench.pass(get("/", headers)).await?;
    for name in ["x-mine", "keep-alive", "proxy-connection", "te"] {
        ensure(received.header(name).is_none(), format!("no header {name} at the model"))?;
    }
    Ok(())
}

async fn protected(bench: &mut Bench) -> Outcome {
    for (name, value) in [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Content-Disposition", "attachment"),
        ("Content-Language", "en"),
        ("Content-Length", "3"),
        ("Transfer-Encoding", "chunked"),
        ("Host", "model.test:5000"),
        ("Via", "1.1 proxy"),
        ("X-Forwarded-For", "203.0.113.7"),
        // An auditor may append a span of its own.
        ("Traceparent", "00-0af7651916cd43dd8448eb211c80319c"),
        ("Lucid-Test", "1"),
    ] {
        let line = match name {
            "Host" | "Content-Length" => String::new(),
            "Traceparent" => format!("{name}: {value}-b7ad6b7169203331-01\r\n"),
            _ => format!("{name}: {value}\r\n"),
        };
        bench.say(bench::answer(PLAIN, "fine")).await?;
        let answer =
            bench.exchange(post("/v1/chat", &format!("Connection: {name}\r\n{line}"), "a=b")).await?;
        let requests = bench.model.requests();
        let is_refused = requests.is_empty() && answer.status() >= 400;
        let is_there = |it: &Message| {
            // The framing may change, as long as the body is whole.
            let is_framing = matches!(name, "Content-Length" | "Transfer-Encoding");
            it.body == b"a=b" && (is_framing || it.headers(name).join(", ").contains(value))
        };
        let expected = format!("a refusal, or a whole request with {name}: {value} at the model");
        ensure(is_refused || requests.first().is_some_and(is_there), expected)?;
    }
    Ok(())
}

async fn client_address(bench: &mut Bench) -> Outcome {
    let mut addresses = vec![bench.auditor];
    if bench.process.is_some() {
        addresses.extend(own_address().map(|own| SocketAddr::new(own, bench.auditor.port())));
    }
    for address in addresses {
        for before in ["", "203.0.113.7"] {
            bench.say(bench::answer(PLAIN, "fine")).await?;
            let mut caller = bench.connect_to(address).await?;
            let own = caller.address()?;
            if own.is_loopback() && !before.is_empty() {
                // From within the pod: the first auditor has appended the address.
                continue;
            }
            let (line, expected) = match before {
                "" => (String::new(), own.to_string()),
                _ => (format!("X-Forwarded-For: {before}\r\n"), format!("{before}, {own}")),
            };
            caller.send(get("/", &line)).await;
            caller.answer().await;
            let requests = bench.model.requests();
            let request = requests.first();
            let request = request.ok_or_else(|| Problem::Failed("the request at the model".to_owned()))?;
            let found = request.headers("x-forwarded-for").join(", ").replace(", ", ",");
            let expected_at_model = format!("X-Forwarded-For: {expected} at the model");
            ensure(found == expected.replace(", ", ","), expected_at_model)?;
        }
    }
    Ok(())
}

async fn client_address_aliases(bench: &mut Bench) -> Outcome {
    bench.say(bench::answer(PLAIN, "fine")).await?;
    bench.exchange(get("/", "X_Forwarded_For: 203.0.113.7\r\nX-Forwarded_For: 203.0.113.8\r\n")).await?;
    let requests = bench.model.requests();
    let has_other = requests.iter().flat_map(|request| &request.fields).any(|(name, _)| {
        name.contains('_') && name.replace('_', "-").eq_ignore_ascii_case("x-forwarded-for")
    });
    ensure(!has_other, "no header X_Forwarded_For or X-Forwarded_For at the model")
}

async fn identity(bench: &mut Bench) -> Outcome {
    // Also where the caller names none.
    for headers in ["Accept-Encoding: gzip, br\r\n", ""] {
        let (received, _) = bench.pass(post("/v1/chat", &[PLAIN, headers].concat(), "Hello")).await?;
        let accepted = received.headers("accept-encoding").join(",").to_lowercase();
        let is_good = accepted.is_empty() || accepted == "identity";
        ensure(is_good, "Accept-Encoding: identity, or none, at the model")?;
    }
    Ok(())
}

async fn codings(bench: &mut Bench) -> Outcome {
    let body = r#"{"messages":[{"role":"user","content":"Hello there"}]}"#;
    for coding in ["gzip", "deflate", "br", "zstd"] {
        bench.say(bench::answer(PLAIN, "fine")).await?;
        let headers = format!("{JSON}Content-Encoding: {coding}\r\n");
        let answer = bench.exchange(post("/v1/chat/completions", &headers, body)).await?;
        let is_offered = answer.status() == 415 && answer.header("accept-encoding").is_some();
        let plain = |it: &Message| it.body == body.as_bytes() && it.header("content-encoding").is_none();
        let same = |it: &Message| {
            let is_same = it.body == encode(coding, body.as_bytes());
            is_same && it.header("content-encoding") == Some(coding)
        };
        let requests = bench.model.requests();
        let is_there = requests.iter().any(|it| plain(it) || same(it));
        ensure(
            is_offered || is_there,
            format!("the {coding} body at the model, or a 415 with Accept-Encoding"),
        )?;
    }
    Ok(())
}
