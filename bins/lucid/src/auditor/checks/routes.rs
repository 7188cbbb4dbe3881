//! Several model ports.

use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{Check, contract, requests};
use crate::auditor::bench::{Bench, Outcome, Problem, answer, ensure, post_with};
use crate::auditor::model::Script;
use crate::auditor::process::START_LIMIT;

/// Time from the first to the last listener of an auditor that is not known to serve routes.
const BIND_LIMIT: Duration = Duration::from_secs(1);

pub(super) const CHECKS: &[Check] = &[Check::new(
    "routes",
    "With LUCID_ROUTES, each port has the contract of the first, and forwards to its own next hop",
    |bench| routes(bench).boxed(),
)];

async fn routes(bench: &mut Bench) -> Outcome {
    bench.process()?;
    bench.play(Script::Down).await?;
    let second = bench.second_auditor;
    // The first port listens already.
    let limit = if bench.needs_routes { START_LIMIT } else { BIND_LIMIT };
    let begin = Instant::now();
    while TcpStream::connect(second).await.is_err() {
        if begin.elapsed() < limit {
            sleep(Duration::from_millis(50)).await;
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
    contract::health(bench).await?;
    contract::audit(bench).await?;
    contract::all_addresses(bench).await?;
    requests::refuse_plain(bench).await?;
    // Answers, so that a request that arrives there is complete.
    bench.second_model.play(Script::Say(answer("application/json", "{}"))).await?;
    bench.pass(post_with("/v1/chat/completions", "", "{}")).await?;
    ensure(bench.second_model.requests().is_empty(), "no request at the model of another port")
}
