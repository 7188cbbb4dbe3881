//! Messages that servers may read differently, and ways around the auditor.

use futures::FutureExt;

use super::Check;
use crate::auditor::bench::{Bench, Outcome, answer, ensure, get};
use crate::auditor::model::Script;

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "transfer-coding",
        "Requests with another transfer coding than chunked are refused",
        |bench| transfer_coding(bench).boxed(),
    ),
    Check::new(
        "transfer-coding-answer",
        "Answers with another transfer coding than chunked do not pass",
        |bench| transfer_coding_of_answer(bench).boxed(),
    ),
    Check::new(
        "two-lengths",
        "A request with contradictory lengths reaches the model with one, or not at all",
        |bench| two_lengths(bench).boxed(),
    ),
    Check::new("hidden-request", "A request in the body of another one does not reach the model", |bench| {
        hidden_request(bench).boxed()
    }),
    Check::new("connect", "CONNECT is refused", |bench| connect(bench).boxed()),
    Check::new("websocket", "An upgrade to WebSocket, which is not judged, does not succeed", |bench| {
        websocket(bench).boxed()
    }),
    Check::new("unasked-upgrade", "The model cannot change to another protocol", |bench| {
        unasked(bench).boxed()
    }),
];

async fn transfer_coding(bench: &mut Bench) -> Outcome {
    for coding in ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "chunked, chunked"] {
        bench
            .refuse(format!(
                "POST /v1/chat HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: {coding}\r\n\r\n\
                 5\r\nhello\r\n0\r\n\r\n"
            ))
            .await?;
    }
    Ok(())
}

async fn transfer_coding_of_answer(bench: &mut Bench) -> Outcome {
    for said in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: gzip\r\n\r\nhello",
    ] {
        bench.play(Script::Say(said.into())).await?;
        let answer = bench.exchange(get("/", "")).await?;
        ensure(answer.status() >= 500, "a status from 500 to 599")?;
    }
    Ok(())
}

async fn two_lengths(bench: &mut Bench) -> Outcome {
    for lines in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Transfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: chunked\r\n Content-Length: 5",
        "X: a\0b",
        "X: a\rb",
    ] {
        bench.play(Script::Say(answer("text/plain", "fine"))).await?;
        let mut caller = bench.connect().await?;
        let head = format!("POST /v1/chat HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n\r\n");
        caller.send(format!("{head}5\r\nhello\r\n0\r\n\r\n")).await;
        caller.answer().await;
        let requests = bench.model.requests();
        ensure(requests.len() <= 1, "one request at the model at most")?;
        let ambiguity = requests.iter().find_map(|request| request.ambiguity());
        let found = ambiguity.unwrap_or_default();
        ensure(found.is_empty(), format!("an unambiguous request at the model, or none; found {found}"))?;
    }
    Ok(())
}

async fn hidden_request(bench: &mut Bench) -> Outcome {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let length = hidden.len();
    for (lines, body) in [
        // The connection is closed after such a request (RFC 9112, section 6.1).
        (
            format!("Content-Length: {}\r\nTransfer-Encoding: chunked", length + 5),
            format!("0\r\n\r\n{hidden}"),
        ),
        (format!("Content-Length: 0\r\nContent-Length: {length}"), hidden.to_owned()),
        (format!("Connection: close\r\nContent-Length: {length}"), hidden.to_owned()),
    ] {
        bench.play(Script::Say(answer("text/plain", "fine"))).await?;
        let mut caller = bench.connect().await?;
        caller.send(format!("POST /v1/chat HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n{body}")).await;
        caller.end().await;
        let is_there = bench.model.requests().iter().any(|request| request.start.starts_with("GET /hidden"));
        ensure(!is_there, "no request GET /hidden at the model")?;
    }
    Ok(())
}

async fn connect(bench: &mut Bench) -> Outcome {
    let port = bench.model.address.port();
    bench
        .refuse(format!(
            "CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n"
        ))
        .await
}

const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi";

async fn websocket(bench: &mut Bench) -> Outcome {
    bench.play(Script::Say(SWITCHED.into())).await?;
    let request = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let answer = bench.exchange(request).await?;
    ensure(answer.status() != 101, "another status than 101")
}

async fn unasked(bench: &mut Bench) -> Outcome {
    bench.play(Script::Say(SWITCHED.into())).await?;
    let answer = bench.exchange(get("/", "")).await?;
    ensure(answer.status() >= 500, "a status from 500 to 599")
}
