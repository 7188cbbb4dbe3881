//! Requests and answers pass unchanged, except for what belongs to a hop.

use std::net::SocketAddr;

use futures::FutureExt;

use super::Check;
use super::contract::own_address;
use crate::auditor::bench::{self, Bench, Outcome, Problem, ensure, get, post, post_with};
use crate::auditor::message::{End, Message};
use crate::auditor::model::Script;

pub(super) const CHECKS: &[Check] = &[
    Check::new("request", "Method, path, query, Host and other headers reach the model unchanged", |bench| {
        request(bench).boxed()
    }),
    Check::new("body", "Allowed bodies reach the model byte by byte", |bench| body(bench).boxed()),
    Check::new("chunked", "Chunked requests are forwarded", |bench| chunked(bench).boxed()),
    Check::new("answer", "Status, repeated headers and body of the model reach the caller", |bench| {
        answer(bench).boxed()
    }),
    Check::new("trailers", "Trailers are forwarded in both directions", |bench| trailers(bench).boxed()),
    Check::new("hop-by-hop", "Hop-by-hop headers and those named by Connection are removed", |bench| {
        hop_by_hop(bench).boxed()
    }),
    Check::new("client-address", "The last address in X-Forwarded-For is the caller's", |bench| {
        client_address(bench).boxed()
    }),
    Check::new("client-address-aliases", "Other spellings of X-Forwarded-For are removed", |bench| {
        client_address_aliases(bench).boxed()
    }),
    Check::new("identity", "The model is asked for uncompressed answers", |bench| identity(bench).boxed()),
];

const PATH: &str = "/v1/a%20b//c?x=1&x=2&y";

async fn request(bench: &mut Bench) -> Outcome {
    let headers = "Authorization: Bearer a\r\nX-Many: one\r\nX-Many: two\r\nX-Empty:\r\n";
    for method in ["GET", "DELETE", "PUT", "PATCH"] {
        let request = get(PATH, headers).replacen("GET", method, 1);
        let (received, _) = bench.pass(request).await?;
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

async fn body(bench: &mut Bench) -> Outcome {
    let json = "{ \"messages\" :\t[{\"role\":\"user\",\"content\":\"Gr\\u00fc\\u00DFe \u{1f600}\\n\"}],\r\n\"n\":1.0e0 }\n";
    for (content_type, body) in
        [("application/json", json), ("text/plain", "one\r\ntwo\n\nthree "), ("text/plain", "")]
    {
        let request = post_with("/v1/chat", &format!("Content-Type: {content_type}\r\n"), body);
        let (received, _) = bench.pass(request).await?;
        let is_same =
            received.body == body.as_bytes() && received.header("content-type") == Some(content_type);
        ensure(is_same, format!("the body {body:?} of type {content_type} at the model"))?;
    }
    Ok(())
}

async fn chunked(bench: &mut Bench) -> Outcome {
    let request = "POST /v1/chat HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nHello\r\n6;x=y\r\n there\r\n0\r\n\r\n";
    let (received, _) = bench.pass(request).await?;
    ensure(received.body == b"Hello there", "the body \"Hello there\" at the model")
}

async fn answer(bench: &mut Bench) -> Outcome {
    let said = "HTTP/1.1 418 I'm a teapot\r\nConnection: close\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Model: yes\r\n\
                Content-Type: text/plain\r\nContent-Length: 15\r\n\r\nshort and stout";
    bench.play(Script::Say(said.into())).await?;
    let answer = bench.exchange(get("/tea", "")).await?;
    ensure(answer.status() == 418, "the status 418")?;
    ensure(answer.headers("set-cookie") == ["a=1", "b=2"], "two headers Set-Cookie")?;
    ensure(answer.header("x-model") == Some("yes"), "the header X-Model")?;
    ensure(answer.body == b"short and stout" && answer.end == End::Whole, "the body \"short and stout\"")
}

async fn trailers(bench: &mut Bench) -> Outcome {
    let said = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nTrailer: X-Echo\r\n\
                Transfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\nX-Echo: 8\r\n\r\n";
    bench.play(Script::Say(said.into())).await?;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close, TE\r\nTE: trailers\r\nTrailer: X-Sum\r\n\
                   Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n";
    let answer = bench.exchange(request).await?;
    let requests = bench.model.requests();
    let has = |message: &Message, name: &str, value: &str| {
        message.trailers.iter().any(|it| it.0.eq_ignore_ascii_case(name) && it.1 == value)
    };
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

async fn client_address(bench: &mut Bench) -> Outcome {
    let mut addresses = vec![bench.auditor];
    if bench.process.is_some() {
        addresses.extend(own_address().map(|own| SocketAddr::new(own, bench.auditor.port())));
    }
    for address in addresses {
        for before in ["", "X-Forwarded-For: 203.0.113.7\r\n"] {
            bench.play(Script::Say(bench::answer("text/plain", "fine"))).await?;
            let mut caller = bench.connect_to(address).await?;
            let own = caller.address()?;
            if own.is_loopback() && !before.is_empty() {
                // From within the pod: the first auditor has appended the address.
                continue;
            }
            caller.send(get("/", before)).await;
            caller.answer().await;
            let requests = bench.model.requests();
            let request =
                requests.first().ok_or_else(|| Problem::Failed("the request at the model".to_owned()))?;
            let found = request.headers("x-forwarded-for").join(", ");
            let expected = match before {
                "" => own.to_string(),
                _ => format!("203.0.113.7, {own}"),
            };
            ensure(
                found.replace(", ", ",") == expected.replace(", ", ","),
                format!("X-Forwarded-For: {expected} at the model"),
            )?;
        }
    }
    Ok(())
}

async fn client_address_aliases(bench: &mut Bench) -> Outcome {
    let headers = "X_Forwarded_For: 203.0.113.7\r\nX-Forwarded_For: 203.0.113.8\r\n";
    bench.play(Script::Say(bench::answer("text/plain", "fine"))).await?;
    bench.exchange(get("/", headers)).await?;
    let requests = bench.model.requests();
    let has_other = requests.iter().flat_map(|request| &request.fields).any(|(name, _)| {
        name.contains('_') && name.replace('_', "-").eq_ignore_ascii_case("x-forwarded-for")
    });
    ensure(!has_other, "no header X_Forwarded_For or X-Forwarded_For at the model")
}

async fn identity(bench: &mut Bench) -> Outcome {
    let request = post_with("/v1/chat", "Accept-Encoding: gzip, br\r\nContent-Type: text/plain\r\n", "Hello");
    let (received, _) = bench.pass(request).await?;
    let accepted = received.headers("accept-encoding").join(",").to_lowercase();
    ensure(
        accepted.is_empty() || accepted == "identity",
        "Accept-Encoding: identity, or none, at the model",
    )?;
    // Also where the caller names none.
    let (received, _) = bench.pass(post("/v1/chat", "{}")).await?;
    let accepted = received.headers("accept-encoding").join(",").to_lowercase();
    ensure(accepted.is_empty() || accepted == "identity", "Accept-Encoding: identity, or none, at the model")
}
