//! Health, verdicts, addresses, ports and the end.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::time::Instant;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Duration, sleep};

use super::forwarding::pass;
use super::{Check, checks};
use crate::auditor::bench::{
    Bench, JSON, Outcome, PLAIN, Problem, answer, chunks, ensure, get, own_address, post, stream_head,
};
use crate::auditor::caller::Caller;
use crate::auditor::message::End;
use crate::auditor::model::Script;
use crate::auditor::process::START_LIMIT;

const POLL: Duration = Duration::from_millis(100);
/// Time from the first to the last listener of an auditor that is not known to serve routes.
const BIND_LIMIT: Duration = Duration::from_secs(1);

/// Time in which callers may still connect, until they learn that a pod ends.
const NOTICE: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(30);

checks! {
    "health", "GET /health returns 200 while the model is down" => health();
    "model-down", "A request gets a status from 500 to 599 while the model is down" => model_down();
    "audit", "POST /audit returns a verdict, and the model gets no request" => audit();
    "all-addresses", "The auditor listens on all addresses, IPv4 and IPv6" => all_addresses();
    "routes", "With LUCID_ROUTES, each port has the contract of the first, and forwards to its own next hop" => routes();
}

/// Ends the auditor.
pub(super) const LAST: Check = Check {
    name: "sigterm",
    requirement: "After SIGTERM the auditor serves with Connection: close, finishes open requests, and exits with 0 within 30 s",
    run: |bench| Box::pin(sigterm(bench)),
};

async fn health(bench: &mut Bench) -> Outcome {
    let begin = Instant::now();
    loop {
        bench.play(Script::Down).await?;
        match bench.exchange(get("/health", "")).await {
            Ok(answer) if answer.status() == 200 => return Ok(()),
            _ if begin.elapsed() > bench.patience => return ensure(false, "the status 200"),
            _ => sleep(POLL).await,
        }
    }
}

async fn model_down(bench: &mut Bench) -> Outcome {
    bench.play(Script::Down).await?;
    let answer = bench.exchange(get("/v1/models", "")).await?;
    ensure((500..600).contains(&answer.status()), "a status from 500 to 599")
}

async fn audit(bench: &mut Bench) -> Outcome {
    for (text, is_allowed) in [("Hello".to_owned(), true), (bench.refused.clone(), false)] {
        bench.say(answer(PLAIN, "the model")).await?;
        let answer = bench.exchange(post("/audit", PLAIN, text)).await?;
        let verdict = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
        let expected = format!("the status 200 and JSON with \"allowed\":{is_allowed}");
        ensure(answer.status() == 200 && verdict["allowed"] == is_allowed, expected)?;
        ensure(bench.model.requests().is_empty(), "no request at the model")?;
    }
    Ok(())
}

async fn all_addresses(bench: &mut Bench) -> Outcome {
    bench.process()?;
    let mut addresses = vec![bench.auditor.ip()];
    addresses.extend(own_address());
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        addresses.push(Ipv6Addr::LOCALHOST.into());
    }
    for address in addresses {
        bench.play(Script::Down).await?;
        let mut caller = bench.connect_to(SocketAddr::new(address, bench.auditor.port())).await?;
        caller.send(get("/health", "")).await;
        let is_good = caller.answer().await.is_some_and(|answer| answer.status() == 200);
        ensure(is_good, format!("the status 200 at {address}"))?;
    }
    Ok(())
}

async fn routes(bench: &mut Bench) -> Outcome {
    bench.process()?;
    bench.play(Script::Down).await?;
    let second = bench.second_auditor;
    // The first port listens already.
    let limit = if bench.needs_routes { START_LIMIT } else { BIND_LIMIT };
    let begin = Instant::now();
    while TcpStream::connect(second).await.is_err() {
        if begin.elapsed() < limit {
            sleep(POLL).await;
            continue;
        }
        return Err(match bench.needs_routes {
            true => Problem::Failed(format!("a listener on {second}, the second port of LUCID_ROUTES")),
            false => Problem::Skipped("listens on its first port only; leave `routes` out of its entry"),
        });
    }
    for port in ["first", "second"] {
        let outcome = route(bench).await;
        bench.swap_routes();
        outcome.map_err(|problem| match problem {
            Problem::Failed(expected) => {
                Problem::Failed(format!("{expected}, with the {port} port of LUCID_ROUTES"))
            }
            other => other,
        })?;
    }
    Ok(())
}

async fn route(bench: &mut Bench) -> Outcome {
    health(bench).await?;
    audit(bench).await?;
    all_addresses(bench).await?;
    bench.refuse(post("/v1/chat", PLAIN, &bench.refused)).await?;
    // Answers, so that a request that arrives there is complete.
    bench.second_model.play(Script::Say(answer(JSON, "{}"))).await?;
    pass(bench, false, &[("POST /v1/chat/completions", "", "{}", &[])]).await?;
    ensure(bench.second_model.requests().is_empty(), "no request at the model of another port")
}

async fn sigterm(bench: &mut Bench) -> Outcome {
    bench.process()?;
    let (sender, script) = Script::pieces();
    bench.play(script).await?;
    let mut open = bench.connect().await?;
    open.send(get("/v1/models", "")).await;
    bench.asked().await?;

    let begin = Instant::now();
    bench.process()?.terminate()?;
    sleep(NOTICE).await;
    let answer = bench.exchange(get("/health", "").replace("Connection: close\r\n", "")).await?;
    let is_last = answer.headers("connection").join(",").to_lowercase().contains("close");
    let is_served = answer.status() == 200 && (is_last || answer.start.starts_with("HTTP/1.0"));
    ensure(is_served, "the status 200 of /health with Connection: close, 1 s after SIGTERM")?;
    while Caller::connect(bench.auditor, bench.transcript.clone(), POLL).await.is_ok() {
        ensure(begin.elapsed() < GRACE, "no more connections before 30 s")?;
        sleep(POLL).await;
    }

    let _ = sender.send([stream_head("text/plain"), chunks(["fine"])].concat());
    drop(sender);
    let answer = open.answer().await;
    let is_whole = answer.is_some_and(|answer| answer.body == b"fine" && answer.end == End::Whole);
    ensure(is_whole, "the answer to the open request")?;
    let left = GRACE.saturating_sub(begin.elapsed());
    let ended = bench.process()?.end(left).await?;
    ensure(ended.is_some_and(|status| status.success()), "the exit code 0 within 30 s")
}
