//! `cargo xtask bench`: benchmarks of lucid-webhook and comparable servers, of injection, of image trust, of the decision log
//! and of auditors. See docs/benchmarks.md for methods and reasons.

mod auditor;
mod fleet;
mod instructions;
mod libraries;
mod load;
mod operator;
pub(crate) mod programs;
mod proxy;
mod restart;
mod scale;
mod sdk;
mod server;
mod webhook;
mod weight;

use clap::{Args, Subcommand};
use lucid_e2e::Error;

use crate::report::{Output, Report};

#[derive(Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    task: Task,
    /// Output format.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Subcommand)]
enum Task {
    /// Throughput, latency, CPU and memory of admission webhook servers.
    Webhook(webhook::Webhook),
    /// Calls of the released lucid-operator and lucid-validator, and of webhooks on controller-runtime. Needs the test bed.
    Operator(operator::Webhooks),
    /// Instructions per request of lucid-operator and lucid-validator, by function. Needs the test bed and valgrind.
    Instructions(instructions::Instructions),
    /// Rolling restarts of three replicas behind one address under load: number of failed calls.
    Restart,
    /// Injection: planning and patching of pods, and lucid-init.
    Chain(libraries::Chain),
    /// Image trust: cached verdicts, coalesced requests, and an open circuit breaker.
    Trust,
    /// Thousands of pods in a hundred namespaces with three replicas of the operator. Needs root and the test bed.
    Scale(scale::Scale),
    /// Thousands of running pods: time until changes are known, memory, CPU time and API requests. Needs the test bed.
    Fleet(fleet::Fleet),
    /// Crates, binary size and build time that lucid-webhook and lucid-certs add to a program on axum and kube.
    Weight(weight::Weight),
    /// Decision log: throughput and latency of records, by flush mode.
    Audit,
    /// Auditors: CPU time, precision and recall of judges, and costs of a hop. Needs haproxy and nginx.
    Auditor(auditor::Auditor),
}

pub(crate) fn run(bench: &Bench) -> Result<(), Error> {
    let lock = match bench.task {
        Task::Operator(_) | Task::Instructions(_) | Task::Scale(_) | Task::Fleet(_) => "Cargo.lock",
        _ => "bench/Cargo.lock",
    };
    let mut report = Report::new(lock)?;
    match &bench.task {
        Task::Webhook(options) => webhook::run(options, &mut report),
        Task::Operator(options) => {
            operator::run(options, &mut report).and_then(|()| match instructions::can_run() {
                true => instructions::run(&instructions::Instructions::default(), &mut report),
                false => Ok(()),
            })
        }
        Task::Instructions(options) => instructions::run(options, &mut report),
        Task::Restart => restart::run(&mut report),
        Task::Chain(options) => libraries::chain(options, &mut report),
        Task::Trust => libraries::trust(&mut report),
        Task::Scale(options) => scale::run(options, &mut report),
        Task::Fleet(options) => fleet::run(options, &mut report),
        Task::Weight(options) => weight::run(options, &mut report),
        Task::Audit => libraries::audit(&mut report),
        Task::Auditor(options) => auditor::run(options, &mut report),
    }?;
    report.print(bench.output)
}
