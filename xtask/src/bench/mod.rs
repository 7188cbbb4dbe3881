//! `cargo xtask bench`: benchmarks of lucid-webhook and comparable servers, of lucid-certs, of injection, of image trust and of
//! the decision log. See docs/benchmarks.md for methods and reasons.

mod audit;
pub(crate) mod build;
mod chain;
mod load;
mod operator;
mod restart;
mod scale;
mod server;
mod trust;
mod webhook;

use clap::Subcommand;
use lucid_e2e::Error;

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Throughput, latency, CPU and memory of admission webhook servers.
    Webhook(webhook::Webhook),
    /// Calls of the released lucid-operator and lucid-validator, and of webhooks on controller-runtime. Needs the test bed.
    Operator(operator::Webhooks),
    /// Rolling restarts of three replicas behind one address under load: number of failed calls.
    Restart(restart::Restart),
    /// Injection: planning and patching of pods, and lucid-init.
    Chain(chain::Chain),
    /// Image trust: cached verdicts, coalesced requests, and an open circuit breaker.
    Trust(trust::Trust),
    /// Thousands of pods in a hundred namespaces with three replicas of the operator. Needs root and the test bed.
    Scale(scale::Scale),
    /// Decision log: throughput and latency of records, by flush mode.
    Audit(audit::Audit),
}

pub(crate) fn run(task: &Task) -> Result<(), Error> {
    match task {
        Task::Webhook(webhook) => webhook::run(webhook),
        Task::Operator(webhooks) => operator::run(webhooks),
        Task::Restart(restart) => restart::run(restart),
        Task::Chain(chain) => chain::run(chain),
        Task::Trust(trust) => trust::run(trust),
        Task::Scale(scale) => scale::run(scale),
        Task::Audit(audit) => audit::run(audit),
    }
}
