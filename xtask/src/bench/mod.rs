//! `cargo xtask bench`: benchmarks of lucid-webhook and comparable servers, of lucid-certs, of injection, of image trust and of
//! the decision log. See docs/benchmarks.md for methods and reasons.

mod audit;
pub(crate) mod build;
mod chain;
mod change;
mod handshake;
mod load;
mod restart;
mod scale;
mod server;
mod trust;
mod webhook;
mod worst;

use clap::Subcommand;
use lucid_e2e::Error;

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Throughput, latency, CPU and memory of admission webhook servers.
    Webhook(webhook::Webhook),
    /// Rolling restarts of three replicas behind one address under load: number of failed calls.
    Restart(restart::Restart),
    /// Injection: planning and patching of pods, calls of the operator's webhook, and lucid-init.
    Chain(chain::Chain),
    /// Image trust: cached verdicts, coalesced requests, an open circuit breaker, and calls of the validator's webhook.
    Trust(trust::Trust),
    /// Thousands of pods in a hundred namespaces with three replicas of the operator. Needs root and the test bed.
    Scale(scale::Scale),
    /// Delay until new pods reflect a change of the catalogue, a chain or an Auditor. Needs the test bed.
    Change(change::Change),
    /// TLS handshakes with the resolver of lucid-certs and with a fixed certificate.
    Handshake(handshake::Handshake),
    /// Decision log: throughput and latency of records, by flush mode.
    Audit(audit::Audit),
    /// Worst-case pods of 1.5 MB: CPU time and memory of planning and evaluation.
    Worst(worst::Worst),
}

pub(crate) fn run(task: &Task) -> Result<(), Error> {
    match task {
        Task::Webhook(webhook) => webhook::run(webhook),
        Task::Restart(restart) => restart::run(restart),
        Task::Chain(chain) => chain::run(chain),
        Task::Trust(trust) => trust::run(trust),
        Task::Scale(scale) => scale::run(scale),
        Task::Change(change) => change::run(change),
        Task::Handshake(handshake) => handshake::run(handshake),
        Task::Audit(audit) => audit::run(audit),
        Task::Worst(worst) => worst::run(worst),
    }
}
