//! `cargo xtask test`: all checks required before a change is merged, in one list.

use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use lucid_e2e::Error;
use lucid_testbed::{Binaries, Component, node};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::sleep;

use crate::command::{cargo, succeed};
use crate::testbed::shutdown_signal;

/// Time limit of a check. Only a hanging test reaches it.
const LIMIT: Duration = Duration::from_mins(40);

/// One command of the list.
struct Check {
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

/// Checks that need no programs of the test bed. They run while those are built, since neither uses both processors all the
/// time.
const SOURCES: &[Check] = &[
    Check { name: "format", arguments: &["fmt", "--all", "--check"], environment: &[] },
    Check {
        name: "clippy",
        arguments: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        environment: &[],
    },
    // Each library with no features and with each of its features; then packaged.
    Check { name: "libraries alone", arguments: &["xtask", "crates"], environment: &[] },
    Check {
        name: "the programs without OpenTelemetry",
        arguments: &[
            "check",
            "--package",
            "lucid-operator",
            "--package",
            "lucid-validator",
            "--no-default-features",
            "--locked",
        ],
        environment: &[],
    },
    Check {
        name: "documentation",
        arguments: &["doc", "--workspace", "--all-features", "--no-deps", "--locked"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
    },
    // Separate workspaces, which share compiled dependencies. Fuzz targets need a nightly compiler, so only their format is
    // checked.
    Check {
        name: "format of the benchmarks",
        arguments: &["fmt", "--manifest-path", "bench/Cargo.toml", "--all", "--check"],
        environment: &[],
    },
    Check {
        name: "format of the fuzz targets",
        arguments: &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"],
        environment: &[],
    },
    Check {
        name: "clippy of the benchmarks",
        arguments: &[
            "clippy",
            "--manifest-path",
            "bench/Cargo.toml",
            "--workspace",
            "--all-targets",
            "--locked",
            "--target-dir",
            "target",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
    },
    Check {
        name: "tests of the benchmarks' load",
        arguments: &[
            "test",
            "--manifest-path",
            "bench/Cargo.toml",
            "--package",
            "bench-load",
            "--locked",
            "--target-dir",
            "target",
        ],
        environment: &[],
    },
];

/// Most tests spend half of their time waiting for a cluster.
const AT_ONCE: &[(&str, &str)] = &[("RUST_TEST_THREADS", "4")];

const TESTS: &[Check] = &[
    // Programs come first: the end-to-end tests start them.
    Check { name: "programs", arguments: &["build", "--workspace", "--bins", "--locked"], environment: &[] },
    // Programs for nodes run from images. Their dependencies are already built.
    Check { name: "images", arguments: &["xtask", "images", "--profile", "dev"], environment: &[] },
    Check {
        name: "unit, documentation and end-to-end tests",
        arguments: &["test", "--workspace", "--locked"],
        environment: AT_ONCE,
    },
    // The first command of the README.
    Check { name: "demo", arguments: &["xtask", "demo", "--once"], environment: &[] },
    // A build of the smallest image from scratch at two paths.
    Check {
        name: "an image comes out the same twice",
        arguments: &["xtask", "images", "example-model", "--twice"],
        environment: &[],
    },
    // With the whole workspace, so that nothing is rebuilt with other features.
    Check {
        name: "tests that take their time",
        arguments: &["test", "--workspace", "--test", "it", "--locked", "--", "--ignored", "slow"],
        environment: AT_ONCE,
    },
];

/// Tests on a node, run alone: their timing must not depend on concurrent tests.
const NODE: &[Check] = &[
    Check {
        name: "operations on a node",
        arguments: &[
            "test",
            "--workspace",
            "--test",
            "it",
            "--locked",
            "--",
            "--ignored",
            "node::operations",
        ],
        environment: &[],
    },
    Check { name: "demo on a node", arguments: &["xtask", "demo", "--node", "--once"], environment: &[] },
];

const SOAKS: &[Check] =
    &[Check { name: "soaks in their quick form", arguments: &["xtask", "soak", "quick"], environment: &[] }];

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
        table.add_rows(NODE.iter().map(|check| [check.name, "skipped: no node can run here"]));
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
    for check in checks {
        let begin = Instant::now();
        run_check(check).await?;
        table.add_row([check.name.to_owned(), seconds(begin.elapsed())]);
    }
    Ok(())
}

async fn run_check(check: &Check) -> Result<(), Error> {
    let line = check.arguments.join(" ");
    eprintln!("\nxtask: {} (cargo {line})", check.name);
    let shutdown_signal = shutdown_signal()?;
    let mut command = cargo();
    // A process group of its own, to end the tests together with Cargo.
    let command = command.args(check.arguments).envs(check.environment.iter().copied()).process_group(0);
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
    Err(format!("{} failed: cargo {line}: {failure}", check.name).into())
}

/// `cargo xtask deny`: the rules of deny.toml except advisories, which need the network.
pub(crate) fn deny() -> Result<(), Error> {
    const ARGUMENTS: &[&str] = &["deny", "--offline", "check", "bans", "licenses", "sources"];
    succeed(cargo().args(ARGUMENTS))
        .map_err(|error| format!("{error}; it needs `cargo install --locked cargo-deny`").into())
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}
