//! `cargo xtask test`: all checks required before a change is merged, in one list.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Table, presets};
use lucid_e2e::Error;
use lucid_testbed::Cluster;
use lucid_webhook::shutdown_signal;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::sleep;
use xtask_start::{Package, install_command, needs_all};

use crate::api;
use crate::command::{cargo, succeed};
use crate::matrix::OLDEST;
use crate::testbed::{CONTROL_PLANE, NODE, build_all};

/// Time limit of a check. Only a hanging test reaches it.
const LIMIT: Duration = Duration::from_mins(40);

struct Check {
    name: &'static str,
    line: &'static str,
    /// Packages that it needs, by a name in `.ci/packages`. Tests skip themselves instead.
    needs: &'static [&'static str],
    /// `true` if it needs what a node needs.
    on_node: bool,
}

const fn check(name: &'static str, line: &'static str) -> Check {
    Check { name, line, needs: &[], on_node: false }
}

impl Check {
    const fn needing(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    const fn on_node(self) -> Self {
        Self { on_node: true, ..self }
    }

    fn reason(&self, machine: &Machine) -> Option<String> {
        let missing: Vec<_> = self.needs.iter().copied().filter(|need| machine.lacks(need)).collect();
        match &machine.no_node {
            _ if !missing.is_empty() => Some(format!("needs {}", missing.join(", "))),
            Some(reason) if self.on_node => Some(reason.clone()),
            _ => None,
        }
    }
}

struct Machine {
    missing: Vec<Package>,
    /// Reason why no node runs.
    no_node: Option<String>,
}

impl Machine {
    fn examine() -> Self {
        Self {
            missing: Package::missing(),
            no_node: Cluster::builder().nodes(1).check().err().map(|error| error.to_string()),
        }
    }

    fn lacks(&self, name: &str) -> bool {
        self.missing.iter().any(|package| package.names.split(' ').any(|known| known == name))
    }
}

const FORMAT: &[&str] = &["rustup:rustfmt"];
const CLIPPY: &[&str] = &["rustup:clippy"];
/// Images contain certificates and programs of Debian packages.
const IMAGES: &[&str] = &["buildah", "ca-certificates", "nftables", "iptables"];
/// Pods contain a static busybox.
const PODS: &[&str] = &["buildah", "ca-certificates", "nftables", "iptables", "busybox-static"];

/// Checks that need no programs of the test bed. They run while those are built, since neither uses both processors all the
/// time.
const SOURCES: &[Check] = &[
    check("format", "fmt --all --check").needing(FORMAT),
    check("clippy", "clippy --workspace --all-targets --locked -- -D warnings").needing(CLIPPY),
    // Each library with no features and with each of its features; then packaged.
    check("libraries alone", "xtask crates"),
    check(
        "the programs without OpenTelemetry",
        "check --package lucid-operator --package lucid-validator --no-default-features --locked",
    ),
    check("documentation", api::DOC),
    check("public items", "xtask api --check"),
    // Separate workspaces, which share compiled dependencies. Fuzz targets need a nightly compiler, so only their format is
    // checked.
    check("format of the benchmarks", "fmt --manifest-path bench/Cargo.toml --all --check").needing(FORMAT),
    check("format of the fuzz targets", "fmt --manifest-path fuzz/Cargo.toml --check").needing(FORMAT),
    check(
        "clippy of the benchmarks",
        "clippy --manifest-path bench/Cargo.toml --workspace --all-targets --all-features --locked --target-dir target -- -D warnings",
    )
    .needing(CLIPPY),
    check(
        "tests of the load generator",
        "test --manifest-path bench/Cargo.toml --package bench-load --locked --target-dir target",
    ),
];

/// Most tests spend half of their time waiting for a cluster, so that four run at a time.
const TESTS: &[Check] = &[
    // Programs come first: the end-to-end tests start them.
    check("programs", "build --workspace --bins --locked"),
    // Programs for nodes run from images. Their dependencies are already built.
    check("images", "xtask images --profile dev").needing(IMAGES),
    check("unit, documentation and end-to-end tests", "test --workspace --locked -- --test-threads 4"),
    check("the oldest Kubernetes", "xtask matrix --smoke"),
];

/// They wait most of the time, so that they run beside [`BESIDE`].
const SLOW: &[Check] = &[
    // With the whole workspace, so that nothing is rebuilt with other features.
    check(
        "tests that take their time",
        "test --workspace --test it --locked -- --ignored slow --test-threads 4",
    ),
];

const BESIDE: &[Check] = &[
    // The first command of the README.
    check("demo", "xtask demo --once"),
    // Compares with the committed counts. Time would depend on the machine.
    check("instructions per request", "xtask bench instructions --check").needing(&["valgrind"]),
    // A build of the smallest image from scratch at two paths.
    check("an image comes out the same twice", "xtask images example-model --twice")
        .needing(&["buildah", "git"]),
];

/// On a node, alone: their timing must not depend on concurrent tests.
const ON_NODE: &[Check] = &[
    check("operations on a node", "test --workspace --test it --locked -- --ignored node::operations")
        .needing(PODS)
        .on_node(),
    check("demo on a node", "xtask demo --node --once").needing(PODS).on_node(),
    // They mount disks and limit memory.
    check("soaks in their quick form", "xtask soak quick").needing(&["e2fsprogs"]).on_node(),
];

fn all() -> impl Iterator<Item = &'static Check> {
    [SOURCES, TESTS, SLOW, BESIDE, ON_NODE].into_iter().flatten()
}

/// Runs every check: format, clippy, documentation, unit and end-to-end tests. Checks that need a missing program are skipped,
/// unless LUCID_NEED_ALL=1.
#[derive(Args)]
pub(crate) struct Test {
    /// List the checks, with the reason of each that would be skipped here, and run none.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(options: &Test) -> Result<(), Error> {
    let machine = Machine::examine();
    if options.list {
        println!("{}", list(&machine));
        return Ok(());
    }
    if needs_all()
        && let Some((name, reason)) = all().filter_map(|it| Some((it.name, it.reason(&machine)?))).next()
    {
        return Err(format!("failed to run every check, as LUCID_NEED_ALL demands: {name}: {reason}").into());
    }
    tokio::runtime::Runtime::new()?.block_on(run_all(&machine))
}

fn table(header: [&str; 2]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    table
}

fn list(machine: &Machine) -> Table {
    let mut table = table(["check", "here"]);
    table.add_rows(all().map(|check| {
        let reason = check.reason(machine).map(|reason| skipped(&reason));
        [check.name.to_owned(), reason.unwrap_or_else(|| "runs".to_owned())]
    }));
    table
}

fn skipped(reason: &str) -> String {
    format!("skipped: {reason}")
}

async fn run_all(machine: &Machine) -> Result<(), Error> {
    let mut table = table(["check", "time"]);
    eprintln!("\nxtask: the programs of the test bed, beside what follows");
    let test_bed = tokio::spawn(build_test_bed(machine.no_node.is_none()));
    table.add_rows(run_each(SOURCES, machine).await?);
    let begin = Instant::now();
    test_bed.await??;
    table.add_row(["waiting for the test bed".to_owned(), seconds(begin.elapsed())]);
    table.add_rows(run_each(TESTS, machine).await?);
    let (slow, beside) = tokio::join!(run_each(SLOW, machine), run_each(BESIDE, machine));
    table.add_rows(slow?).add_rows(beside?).add_rows(run_each(ON_NODE, machine).await?);
    let is_complete = all().all(|check| check.reason(machine).is_none());
    let outcome = match machine.missing.is_empty() {
        true if is_complete => "all checks passed".to_owned(),
        true => "all checks passed that can run here; see above for the others".to_owned(),
        false => {
            let line = install_command(&machine.missing);
            format!(
                "all checks passed that can run here; for the others, and for tests that were skipped:\n{line}"
            )
        }
    };
    eprintln!("\n{table}\nxtask: {outcome}");
    Ok(())
}

async fn build_test_bed(has_node: bool) -> Result<(), Error> {
    // For the smoke test of the oldest version. First, while this program is still in its place.
    let mut oldest = Command::new(std::env::current_exe()?);
    oldest
        .args(["testbed", "build", "kube-apiserver"])
        .env("LUCID_TESTBED_KUBERNETES", format!("1.{OLDEST}"));
    tokio::task::spawn_blocking(move || succeed(&mut oldest)).await??;
    let others = ["helm", "cert-manager", "cert-manager-kinds.yaml"];
    build_all(&[CONTROL_PLANE, &others, if has_node { NODE } else { &[] }].concat()).await
}

/// Returns name and outcome of each check.
async fn run_each(checks: &[Check], machine: &Machine) -> Result<Vec<[String; 2]>, Error> {
    let mut rows = Vec::new();
    for check in checks {
        let begin = Instant::now();
        let outcome = match check.reason(machine) {
            Some(reason) => skipped(&reason),
            None => {
                run_check(check.name, check.line).await?;
                seconds(begin.elapsed())
            }
        };
        rows.push([check.name.to_owned(), outcome]);
    }
    Ok(rows)
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

pub(crate) fn deny() -> Result<(), Error> {
    let deny = ["deny", "--offline", "check", "bans", "licenses", "sources"];
    let checked = succeed(cargo().args(deny));
    checked.map_err(|error| format!("{error}; it needs `cargo install --locked cargo-deny`").into())
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_skipped_if_a_package_or_the_node_is_missing() {
        let machine = |missing, no_node| Machine { missing, no_node };
        let reasons = |machine: &Machine| {
            all().filter_map(|check| Some((check.name, check.reason(machine)?))).collect::<Vec<_>>()
        };
        assert_eq!(reasons(&machine(Vec::new(), None)), []);
        let bare =
            machine(Package::all().collect(), Some("failed to run a node: that needs root".to_owned()));
        let reasons = reasons(&bare);
        for (name, expected) in [
            ("format", "needs rustup:rustfmt"),
            ("images", "needs buildah, ca-certificates, nftables, iptables"),
            ("an image comes out the same twice", "needs buildah, git"),
            ("soaks in their quick form", "needs e2fsprogs"),
        ] {
            assert!(reasons.contains(&(name, expected.to_owned())), "{name}: {reasons:?}");
            assert!(list(&bare).to_string().contains(&format!("skipped: {expected}")));
        }
        for name in ["programs", "unit, documentation and end-to-end tests", "demo", "libraries alone"] {
            assert!(reasons.iter().all(|(skipped, _)| *skipped != name), "{name}");
        }
    }

    #[test]
    fn every_package_that_a_check_needs_is_in_the_list() {
        let machine = Machine { missing: Package::all().collect(), no_node: None };
        for check in all() {
            assert!(check.needs.iter().all(|need| machine.lacks(need)), "{}: {:?}", check.name, check.needs);
        }
    }
}
