//! Health, verdicts and addresses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Instant;

use futures::FutureExt;
use serde_json::Value;
use tokio::time::{Duration, sleep};

use super::Check;
use crate::auditor::bench::{Bench, Outcome, Problem, answer, ensure, get, post_with};
use crate::auditor::model::Script;

const POLL: Duration = Duration::from_millis(100);

pub(super) const CHECKS: &[Check] = &[
    Check::new("health", "GET /health returns 200 while the model is down", |bench| health(bench).boxed()),
    Check::new("model-down", "A request gets a status from 500 to 599 while the model is down", |bench| {
        model_down(bench).boxed()
    }),
    Check::new("audit", "POST /audit returns a verdict, and the model gets no request", |bench| {
        audit(bench).boxed()
    }),
    Check::new("all-addresses", "The auditor listens on all addresses, IPv4 and IPv6", |bench| {
        all_addresses(bench).boxed()
    }),
];

pub(super) async fn health(bench: &mut Bench) -> Outcome {
    let begin = Instant::now();
    loop {
        bench.play(Script::Down).await?;
        let answer = bench.exchange(get("/health", "")).await;
        match answer {
            Ok(answer) if answer.status() == 200 => return Ok(()),
            _ if begin.elapsed() > bench.patience => {
                return Err(Problem::Failed("the status 200".to_owned()));
            }
            _ => sleep(POLL).await,
        }
    }
}

async fn model_down(bench: &mut Bench) -> Outcome {
    bench.play(Script::Down).await?;
    let answer = bench.exchange(get("/v1/models", "")).await?;
    ensure((500..600).contains(&answer.status()), "a status from 500 to 599")
}

pub(super) async fn audit(bench: &mut Bench) -> Outcome {
    for (text, is_allowed) in [("Hello".to_owned(), true), (bench.refused.clone(), false)] {
        bench.play(Script::Say(answer("text/plain", "the model"))).await?;
        let answer = bench.exchange(post_with("/audit", "Content-Type: text/plain\r\n", text)).await?;
        let allowed =
            serde_json::from_slice::<Value>(&answer.body).ok().and_then(|it| it["allowed"].as_bool());
        let expected = format!("the status 200 and JSON with \"allowed\":{is_allowed}");
        ensure(answer.status() == 200 && allowed == Some(is_allowed), expected)?;
        ensure(bench.model.requests().is_empty(), "no request at the model")?;
    }
    Ok(())
}

pub(super) async fn all_addresses(bench: &mut Bench) -> Outcome {
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

/// Returns an address of this machine that is not a loopback address.
pub(super) fn own_address() -> Option<IpAddr> {
    // Sends nothing; the kernel selects the address for a route.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}
