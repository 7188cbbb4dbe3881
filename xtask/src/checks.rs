//! `cargo xtask test`: all checks required before a change is merged, in one list.

use lucid_e2e::Error;
use std::thread;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use lucid_testbed::{Binaries, Component, node};

use crate::command::cargo;
use crate::soak;

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
    // Separate workspaces. Fuzz targets need a nightly compiler, so only their format is checked.
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
            "target/bench",
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
            "target/bench",
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
    Check {
        name: "images",
        arguments: &["run", "--quiet", "--package", "xtask", "--", "images", "--profile", "dev"],
        environment: &[],
    },
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

pub(crate) fn run() -> Result<(), Error> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(["check", "time"]);

    eprintln!("\nxtask: the programs of the test bed, beside what follows");
    let test_bed = thread::spawn(test_bed);
    run_all(SOURCES, &mut table)?;
    let begin = Instant::now();
    test_bed.join().map_err(|_| "building the programs of the test bed panicked")??;
    table.add_row(["waiting for the test bed".to_owned(), seconds(begin.elapsed())]);
    run_all(TESTS, &mut table)?;
    if node::can_run() {
        run_all(NODE, &mut table)?;
    } else {
        table.add_rows(NODE.iter().map(|check| [check.name, "skipped: no node can run here"]));
    }

    let begin = Instant::now();
    eprintln!("\nxtask: soaks in their quick form");
    soak::quick()?;
    table.add_row(["soaks".to_owned(), seconds(begin.elapsed())]);
    eprintln!("\n{table}\nxtask: all checks passed");
    Ok(())
}

/// Builds the missing programs that tests start.
fn test_bed() -> Result<(), Error> {
    let binaries = Binaries::from_env()?;
    binaries.ensure(&Component::CONTROL_PLANE)?;
    binaries.ensure(&[Component::Kubectl, Component::Helm])?;
    binaries.ensure(&Component::CERT_MANAGER)?;
    if node::check().is_ok() {
        binaries.ensure(&Component::NODE)?;
    }
    Ok(())
}

fn run_all(checks: &[Check], table: &mut Table) -> Result<(), Error> {
    for check in checks {
        let begin = Instant::now();
        run_check(check)?;
        table.add_row([check.name.to_owned(), seconds(begin.elapsed())]);
    }
    Ok(())
}

fn run_check(check: &Check) -> Result<(), Error> {
    let line = check.arguments.join(" ");
    eprintln!("\nxtask: {} (cargo {line})", check.name);
    let mut command = cargo();
    let status = command.args(check.arguments).envs(check.environment.iter().copied()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{} failed: cargo {line}", check.name).into()) }
}

/// `cargo xtask deny`: the rules of deny.toml except advisories, which need the network.
pub(crate) fn deny() -> Result<(), Error> {
    const ARGUMENTS: &[&str] = &["deny", "--offline", "check", "bans", "licenses", "sources"];
    run_check(&Check { name: "dependencies", arguments: ARGUMENTS, environment: &[] })
        .map_err(|error| format!("{error}; it needs `cargo install --locked cargo-deny`").into())
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}
