//! `cargo xtask bench chain`.

use std::process::Command;

use clap::{Args, ValueEnum};
use lucid_e2e::Error;
use serde::Deserialize;

use super::build;
use super::server::CORE;
use crate::report::{Output, Percentiles, Report, bytes, output, time};

#[derive(Args)]
pub(crate) struct Chain {
    /// Parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Pods, Part::Init])]
    part: Vec<Part>,
    /// Duration of planning and patching per pod, in milliseconds.
    #[arg(long, default_value_t = 500)]
    milliseconds: u64,
    /// Number of network namespaces that get their rules, per tool.
    #[arg(long, default_value_t = 50)]
    namespaces: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Planning and patching, from the bytes of a pod to the bytes of its patch.
    Pods,
    /// lucid-init in a network namespace. Needs root, nft and iptables.
    Init,
}

pub(super) fn run(chain: &Chain) -> Result<(), Error> {
    let mut report = Report::new("bench/Cargo.lock")?;
    if chain.part.contains(&Part::Pods) {
        pods(chain.milliseconds, &mut report)?;
    }
    if chain.part.contains(&Part::Init) {
        init(chain.namespaces, &mut report)?;
    }
    report.print(chain.output)
}

/// Output of bench-chain for one pod.
#[derive(Deserialize)]
struct Pod {
    name: String,
    bytes: u64,
    us: Percentiles,
}

fn pods(milliseconds: u64, report: &mut Report) -> Result<(), Error> {
    let program = build::build("bench-chain")?;
    let counter = program.with_file_name("bench-chain-allocations");
    eprintln!("bench: pods");
    let mut timing = lucid_testbed::command("taskset");
    timing.args(["--cpu-list", CORE]).arg(program).args(["--milliseconds", &milliseconds.to_string()]);
    let pods: Vec<Pod> = build::figures(&mut timing)?;
    let allocations: Vec<u64> = build::figures(&mut Command::new(counter))?;
    for (Pod { name, bytes: size, us }, allocations) in pods.iter().zip(allocations) {
        let cells = [("measured", name.clone()), ("size", bytes(*size))];
        let cells = cells.into_iter().chain(us.cells());
        report.row(cells.chain([("allocations", allocations.to_string())]));
    }
    for (name, goal, most) in
        [("10 KB, two auditors", "under 50 µs", 50.0), ("2,000 variables", "under 1 ms", 1000.0)]
    {
        if let Some(Pod { us, .. }) = pods.iter().find(|pod| pod.name == name) {
            report.goal(format!("{name}: {goal}"), time(us.p50), us.p50 < most);
        }
    }
    Ok(())
}

/// Configuration that the operator writes for two auditors.
const REDIRECT: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":true,"outbound":[]}"#;

/// Resolves users from files only, as in an image: nft looks up the names of the users in the rules, and the lookup services of
/// this machine may use the network.
const INSIDE: &str =
    "f=$(mktemp) && echo 'passwd: files' > $f && mount --bind $f /etc/nsswitch.conf && rm $f && exec \"$@\"";

/// Output of bench-init.
#[derive(Deserialize)]
struct Run {
    milliseconds: f64,
    /// Resident bytes of the largest process.
    rss: u64,
}

fn init(namespaces: usize, report: &mut Report) -> Result<(), Error> {
    if output("id", &["--user"]) != "0" {
        eprintln!("bench: lucid-init is left out: network namespaces need root");
        return Ok(());
    }
    let program = build::build_own("lucid-init")?;
    let bench = build::build("bench-init")?;
    for (tool, command) in [("nft", "nft"), ("iptables", "iptables-restore")] {
        if output(command, &["--version"]).is_empty() {
            eprintln!("bench: lucid-init with {tool} is left out: there is no {command}");
            continue;
        }
        eprintln!("bench: lucid-init, {tool}");
        let mut runs = Vec::new();
        for _ in 0..namespaces.max(1) {
            let mut command = lucid_testbed::command("unshare");
            command.args(["--net", "--mount", "--", "sh", "-c", INSIDE, "sh"]).arg(&bench).arg(&program);
            command.env("LUCID_REDIRECT", REDIRECT).env("LUCID_INIT_BACKEND", tool);
            runs.push(build::figures::<Run>(&mut command)?);
        }
        let rss = runs.iter().map(|run| run.rss).max().unwrap_or_default();
        let durations = runs.iter().map(|run| std::time::Duration::from_secs_f64(run.milliseconds / 1e3));
        let us = Percentiles::of(durations.collect());
        let cells = [("measured", format!("lucid-init with {tool} in a new pod"))];
        report.row(cells.into_iter().chain(us.cells()).chain([("largest process", bytes(rss))]));
        if tool == "nft" {
            report.goal("lucid-init with nft: p99 under 20 ms", time(us.p99), us.p99 < 20_000.0);
            report.goal("lucid-init with nft: under 5 MB of memory", bytes(rss), rss < 5_000_000);
        }
    }
    Ok(())
}
