//! `cargo xtask test`: all checks required before a change is merged, in one list.

use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use lucid_e2e::Error;
use lucid_testbed::{Binaries, Component, node};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::sleep;

use crate::api;
use crate::command::{cargo, succeed};
use crate::testbed::shutdown_signal;

/// Time limit of a check. Only a hanging test reaches it.
const LIMIT: Duration = Duration::from_mins(40);

/// A name, and the arguments of Cargo.
type Check = (&'static str, &'static str);

/// Checks that need no programs of the test bed. They run while those are built, since neither uses both processors all the
/// time.
const SOURCES: &[Check] = &[
    ("format", "fmt --all --check"),
    ("clippy", "clippy --workspace --all-targets --locked -- -D warnings"),
    // Each library with no features and with each of its features; then packaged.
    ("libraries alone", "xtask crates"),
    (
        "the programs without OpenTelemetry",
        "check --package lucid-operator --package lucid-validator --no-default-features --locked",
    ),
    ("documentation", api::DOC),
    ("public items", "xtask api --check"),
    // Separate workspaces, which share compiled dependencies. Fuzz targets need a nightly compiler, so only their format is
    // checked.
    ("format of the benchmarks", "fmt --manifest-path bench/Cargo.toml --all --check"),
    ("format of the fuzz targets", "fmt --manifest-path fuzz/Cargo.toml --check"),
    (
        "clippy of the benchmarks",
        "clippy --manifest-path bench/Cargo.toml --workspace --all-targets --all-features --locked --target-dir target -- -D warnings",
    ),
    (
        "tests of the load generator",
        "test --manifest-path bench/Cargo.toml --package bench-load --locked --target-dir target",
    ),
];

/// Most tests spend half of their time waiting for a cluster, so that four run at a time.
const TESTS: &[Check] = &[
    // Programs come first: the end-to-end tests start them.
    ("programs", "build --workspace --bins --locked"),
    // Programs for nodes run from images. Their dependencies are already built.
    ("images", "xtask images --profile dev"),
    ("unit, documentation and end-to-end tests", "test --workspace --locked -- --test-threads 4"),
    // The first command of the README.
    ("demo", "xtask demo --once"),
    // A build of the smallest image from scratch at two paths.
    ("an image comes out the same twice", "xtask images example-model --twice"),
    // With the whole workspace, so that nothing is rebuilt with other features.
    ("tests that take their time", "test --workspace --test it --locked -- --ignored slow --test-threads 4"),
];

/// Tests on a node, run alone: their timing must not depend on concurrent tests.
const NODE: &[Check] = &[
    ("operations on a node", "test --workspace --test it --locked -- --ignored node::operations"),
    ("demo on a node", "xtask demo --node --once"),
];

const SOAKS: &[Check] = &[("soaks in their quick form", "xtask soak quick")];

pub(crate) fn run() -> Result<(), Error> {
    tokio::runtime::Runtime::new()?.block_on(run_all())
}

async fn run_all() -> Result<(), Error> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(["check", "time"]);
    let has_node = node::check().is_ok();
    eprintln!("\nxtask: the programs of the test bed, beside what follows");
    let test_bed = tokio::spawn(build_test_bed(has_node));
    run_each(SOURCES, &mut table).await?;
    let begin = Instant::now();
    test_bed.await??;
    table.add_row(["waiting for the test bed".to_owned(), seconds(begin.elapsed())]);
    run_each(TESTS, &mut table).await?;
    if has_node {
        run_each(NODE, &mut table).await?;
    } else {
        node::can_run();
        table.add_rows(NODE.iter().map(|(name, _)| [name, "skipped: no node can run here"]));
    }
    run_each(SOAKS, &mut table).await?;
    eprintln!("\n{table}\nxtask: all checks passed");
    Ok(())
}

/// Builds the missing programs that tests start.
async fn build_test_bed(has_node: bool) -> Result<(), Error> {
    let mut components = Component::CONTROL_PLANE.to_vec();
    components.extend([Component::Kubectl, Component::Helm]);
    components.extend(Component::CERT_MANAGER);
    if has_node {
        components.extend(Component::NODE);
    }
    Ok(Binaries::from_env()?.ensure_async(&components).await?)
}

async fn run_each(checks: &[Check], table: &mut Table) -> Result<(), Error> {
    for (name, line) in checks {
        let begin = Instant::now();
        run_check(name, line).await?;
        table.add_row([(*name).to_owned(), seconds(begin.elapsed())]);
    }
    Ok(())
}

async fn run_check(name: &str, line: &str) -> Result<(), Error> {
    eprintln!("\nxtask: {name} (cargo {line})");
    let shutdown_signal = shutdown_signal()?;
    let mut command = cargo();
    // A process group of its own, to end the tests together with Cargo.
    let command = command.args(line.split(' ')).process_group(0);
    let mut child = command.spawn()?;
    let ended = async {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok::<_, Error>(status);
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let failure = tokio::select! {
        status = ended => match status? {
            status if status.success() => return Ok(()),
            status => status.to_string(),
        },
        () = sleep(LIMIT) => format!("not ended within {} minutes", LIMIT.as_secs() / 60),
        () = shutdown_signal => "interrupted".to_owned(),
    };
    if let Some(group) = Pid::from_raw(child.id().try_into()?) {
        // Fails if the group has ended.
        let _ = kill_process_group(group, Signal::TERM);
    }
    Err(format!("{name} failed: cargo {line}: {failure}").into())
}

/// `cargo xtask deny`: the rules of deny.toml except advisories, which need the network.
pub(crate) fn deny() -> Result<(), Error> {
    let deny = ["deny", "--offline", "check", "bans", "licenses", "sources"];
    let checked = succeed(cargo().args(deny));
    checked.map_err(|error| format!("{error}; it needs `cargo install --locked cargo-deny`").into())
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}
