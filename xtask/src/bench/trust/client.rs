//! Benchmark of lucid-notary's client: bench/trust.

use std::process::Stdio;

use lucid_e2e::Error;
use serde::{Deserialize, Serialize};

use super::super::build;
use super::time;
use crate::report::Goal;

/// Number of concurrent callers with the same question.
const CALLERS: usize = 1_000;

/// Output of bench/trust.
#[derive(Deserialize)]
struct Found {
    cached_us: Quantiles,
    pod_us: Quantiles,
    open_us: Quantiles,
    calls: usize,
    callers_us: Quantiles,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
struct Quantiles {
    p50: f64,
    p99: f64,
    max: f64,
}

#[derive(Serialize)]
pub(super) struct Figures {
    what: What,
    microseconds: Quantiles,
    /// Maximum number of calls of the Verifier in one round.
    calls: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Cached,
    Pod,
    Open,
    Callers,
}

pub(super) fn measure(asks: usize, rounds: usize) -> Result<Vec<Figures>, Error> {
    let program = build::build("bench-trust")?;
    eprintln!("bench: client of the Verifier");
    let mut command = lucid_testbed::command(program);
    command.args(["--asks", &asks.to_string(), "--callers", &CALLERS.to_string()]);
    command.args(["--rounds", &rounds.to_string()]).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("bench-trust failed: {}", output.status).into());
    }
    let Found { cached_us, pod_us, open_us, calls, callers_us } = serde_json::from_slice(&output.stdout)?;
    let figures = |what, microseconds, calls| Figures { what, microseconds, calls };
    Ok(vec![
        figures(What::Cached, cached_us, None),
        figures(What::Pod, pod_us, None),
        figures(What::Open, open_us, None),
        figures(What::Callers, callers_us, Some(calls)),
    ])
}

impl Figures {
    pub(super) fn cells(&self) -> Vec<String> {
        let what = match self.what {
            What::Cached => "a cached verdict",
            What::Pod => "four cached verdicts of a pod",
            What::Open => "an ask with the breaker open",
            What::Callers => "1,000 identical asks at once, beyond the Verifier's time",
        };
        let Quantiles { p50, p99, max } = self.microseconds;
        let calls = self.calls.map_or_else(String::new, |calls| calls.to_string());
        vec![what.to_owned(), time(p50), time(p99), time(max), String::new(), calls]
    }
}

pub(super) fn goals(figures: &[Figures]) -> Vec<Goal> {
    let find = |what| figures.iter().find(|figures| figures.what == what);
    let mut goals = Vec::new();
    if let Some(Figures { microseconds: Quantiles { p99, .. }, .. }) = find(What::Cached) {
        let goal = "a cached verdict: p99 under 50 µs";
        goals.push(Goal { goal, found: time(*p99), reached: *p99 < 50.0 });
    }
    if let Some(calls) = find(What::Callers).and_then(|figures| figures.calls) {
        let goal = "1,000 identical asks at once: 1 call of the Verifier";
        goals.push(Goal { goal, found: calls.to_string(), reached: calls == 1 });
    }
    goals
}
