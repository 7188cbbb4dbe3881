//! `cargo xtask bench`: figures of lucid-webhook and its peers, of lucid-certs, of injection, of image trust and of the record.
//! docs/benchmarks.md tells how and why.

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
    /// Three replicas behind one address, restarted in turn under load: how many calls fail.
    Restart(restart::Restart),
    /// Injection: planning and patching pods, a call of the operator's webhook, and lucid-init.
    Chain(chain::Chain),
    /// Image trust: verdicts from the cache, asks at the same time, an open breaker, and a call of the validator's webhook.
    Trust(trust::Trust),
    /// Thousands of pods in a hundred namespaces with three replicas of the operator. It needs root and the test bed.
    Scale(scale::Scale),
    /// How soon pods have what was changed in the catalogue, in a chain, or in an Auditor. It needs the test bed.
    Change(change::Change),
    /// TLS handshakes with lucid-certs' resolver and with a certificate that stays.
    Handshake(handshake::Handshake),
    /// The record of decisions: how many are kept a second, and how long each takes, by when the disk has to have it.
    Audit(audit::Audit),
    /// The most expensive pods of 1.5 MB: CPU time and memory of planning and judging.
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
