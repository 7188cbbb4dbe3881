//! Connections: messages that servers may read differently, ways around the auditor, and ends.

use tokio::time::{Duration, sleep};

use super::checks;
use super::requests::refuse;
use crate::auditor::bench::{Bench, JSON, Outcome, PLAIN, answer, chunk, ensure, get, post, stream_head};
use crate::auditor::model::{Connection, Script};

checks! {
    "transfer-coding", "Requests with another transfer coding than chunked are refused" => refuse(&[
        ("/v1/chat", "Transfer-Encoding: gzip, chunked\r\n", "hello"),
        ("/v1/chat", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", "hello"),
        ("/v1/chat", "Transfer-Encoding: chunked, chunked\r\n", "hello")]);
    "transfer-coding-answer", "Answers with another transfer coding than chunked do not pass" => fail(&[
        "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: gzip\r\n\r\nhello"]);
    "two-lengths", "A request with contradictory lengths reaches the model with one, or not at all" => two_lengths(&[
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
        "X: a\rb"]);
    "hidden-request", "A request in the body of another one does not reach the model" => hidden_request();
    "connect", "CONNECT is refused" => connect();
    "websocket", "An upgrade to WebSocket, which is not judged, does not succeed" => websocket();
    "unasked-upgrade", "The model cannot change to another protocol" => fail(&[SWITCHED]);
    "idle-connection", "A request after 2 s does not fail because the model closes idle connections" => idle_connection();
    "caller-leaves", "The model's connection is closed when the caller leaves during an answer" => caller_leaves(true);
    "caller-gives-up", "The model's connection is closed when the caller leaves before an answer" => caller_leaves(false);
}

/// Idle time after which model servers close connections, at the earliest (gunicorn).
const IDLE: Duration = Duration::from_secs(2);

const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi";

/// Expects an error in place of these answers.
async fn fail(bench: &mut Bench, answers: &[&str]) -> Outcome {
    for said in answers {
        bench.say(*said).await?;
        let answer = bench.exchange(get("/", "")).await?;
        ensure(answer.status() >= 500, "a status from 500 to 599")?;
    }
    Ok(())
}

async fn two_lengths(bench: &mut Bench, lines: &[&str]) -> Outcome {
    for lines in lines {
        bench.say(answer(PLAIN, "fine")).await?;
        let mut caller = bench.connect().await?;
        let head = format!("POST /v1/chat HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n\r\n");
        caller.send(format!("{head}5\r\nhello\r\n0\r\n\r\n")).await;
        caller.answer().await;
        let requests = bench.model.requests();
        ensure(requests.len() <= 1, "one request at the model at most")?;
        let found = requests.iter().find_map(|request| request.ambiguity()).unwrap_or_default();
        ensure(found.is_empty(), format!("an unambiguous request at the model, or none; found {found}"))?;
    }
    Ok(())
}

async fn hidden_request(bench: &mut Bench) -> Outcome {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let length = hidden.len();
    let both = format!("Content-Length: {}\r\nTransfer-Encoding: chunked", length + 5);
    for (lines, body) in [
        // The connection is closed after such a request (RFC 9112, section 6.1).
        (both, format!("0\r\n\r\n{hidden}")),
        (format!("Content-Length: 0\r\nContent-Length: {length}"), hidden.to_owned()),
        (format!("Connection: close\r\nContent-Length: {length}"), hidden.to_owned()),
    ] {
        bench.say(answer(PLAIN, "fine")).await?;
        let mut caller = bench.connect().await?;
        caller.send(format!("POST /v1/chat HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n{body}")).await;
        caller.end().await;
        let is_there = bench.model.requests().iter().any(|request| request.start.starts_with("GET /hidden"));
        ensure(!is_there, "no request GET /hidden at the model")?;
    }
    Ok(())
}

async fn connect(bench: &mut Bench) -> Outcome {
    let host = format!("localhost:{}", bench.model.address.port());
    let request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    bench.refuse(request).await.map(drop)
}

async fn websocket(bench: &mut Bench) -> Outcome {
    bench.say(SWITCHED).await?;
    let request = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let answer = bench.exchange(request).await?;
    ensure(answer.status() != 101, "another status than 101")
}

async fn idle_connection(bench: &mut Bench) -> Outcome {
    let said = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
    bench.play(Script::Once(said.into(), answer(PLAIN, "ok"))).await?;
    for idle in [Duration::ZERO, IDLE] {
        sleep(idle).await;
        let answer = bench.exchange(post("/v1/chat", JSON, "{}")).await?;
        ensure(answer.status() == 200 && answer.body == b"ok", "two answers with the status 200")?;
    }
    Ok(())
}

async fn caller_leaves(bench: &mut Bench, is_answered: bool) -> Outcome {
    let (pieces, script) = Script::pieces();
    bench.play(script).await?;
    let mut caller = bench.connect().await?;
    caller.send(get("/v1/models", "")).await;
    bench.asked().await?;
    if is_answered {
        let text = chunk("word ".repeat(1000));
        let _ = pieces.send([&stream_head("text/plain"), &text[..], &text].concat());
        let has_begun = caller.until(|answer| answer.has("word")).await.is_some_and(|it| it.has("word"));
        ensure(has_begun, "the beginning of the answer at the caller")?;
    }
    drop(caller);
    let is_closed = |it: &Connection| it.is_closed || it.requests().is_empty();
    let are_closed = bench.model.until(bench.patience, |all| all.iter().all(is_closed)).await;
    ensure(are_closed, "the end of the model's connection")
}
