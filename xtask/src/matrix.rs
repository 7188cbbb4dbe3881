//! `cargo xtask matrix`: the end-to-end tests on each minor version of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;

use clap::Args;
use comfy_table::{Table, presets};
use lucid_e2e::Error;
use lucid_testbed::Cluster;
use serde_json::Value;

use crate::command::{ROOT, cargo, output};

/// Oldest minor version of Kubernetes 1.
pub(crate) const OLDEST: u32 = 30;

/// Install, inject, refuse, rotate, and the backstop.
const SMOKE: &[&str] = &[
    "manifests::printed_manifests_install_an_operator_in_any_namespace",
    "injection::pods_are_injected_by_their_annotations_and_the_catalogue",
    "validation::strict_notarization_denies_unnotarized_images",
    "certificates::own::rotation_of_the_authority_does_not_deny_pods",
    "backstop::the_default_policy_denies_pods_without_their_chain",
];

/// Runs the end-to-end tests that need no node on several minor versions of Kubernetes, and prints the results as a Markdown
/// table.
#[derive(Args)]
pub(crate) struct Matrix {
    /// Minor versions, such as 1.31 [default: every version of the test bed; with --smoke the oldest]
    versions: Vec<String>,
    /// Run only a few tests: install, inject, refuse, rotate, and the backstop.
    #[arg(long)]
    smoke: bool,
}

pub(crate) fn run(options: &Matrix) -> Result<(), Error> {
    if std::env::var_os("KUBEBUILDER_ASSETS").is_some_and(|folder| !folder.is_empty()) {
        return Err(
            "failed to select a version: KUBEBUILDER_ASSETS names the programs of one; unset it".into()
        );
    }
    let mut versions = options.versions.clone();
    if versions.is_empty() {
        versions.push(format!("1.{OLDEST}"));
        let newer = (OLDEST + 1..).map(|minor| format!("1.{minor}"));
        let newer = newer.take_while(|version| Cluster::builder().kubernetes(version).check().is_ok());
        versions.extend(newer.take(if options.smoke { 0 } else { usize::MAX }));
    }
    for version in &versions {
        Cluster::builder().kubernetes(version).check()?;
    }
    let tests = tests()?;
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(["Kubernetes", "passed", "skipped", "failed"]);
    let mut failures = Vec::new();
    for version in &versions {
        let results = run_tests(&tests, version, options.smoke)?;
        table.add_row(results.row(version));
        failures.extend(results.failed.iter().map(|test| format!("{test} on {version}")));
        if options.smoke {
            failures.extend(results.missing(SMOKE).map(|test| format!("{test} on {version}: not found")));
        }
    }
    println!("{table}");
    if failures.is_empty() { Ok(()) } else { Err(format!("tests failed: {}", failures.join(", ")).into()) }
}

/// Builds the program of the end-to-end tests.
fn tests() -> Result<PathBuf, Error> {
    let mut build = cargo();
    // With the whole workspace, so that nothing is rebuilt with other features.
    build.args(["test", "--workspace", "--test", "it", "--no-run", "--locked"]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = output(build.stderr(Stdio::inherit()))?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter_map(|message| {
        let is_ours = message["package_id"].as_str().is_some_and(|id| id.contains("#lucid-e2e@"));
        message["executable"].as_str().filter(|_| is_ours).map(PathBuf::from)
    });
    programs.next().ok_or_else(|| "failed to find the program of the end-to-end tests".into())
}

fn run_tests(tests: &Path, version: &str, smoke: bool) -> Result<Results, Error> {
    let mut command = Command::new(tests);
    command.current_dir(Path::new(ROOT).join("e2e")).args(["--test-threads", "4"]);
    command.env("LUCID_TESTBED_KUBERNETES", version).stdout(Stdio::piped()).stderr(Stdio::piped());
    if smoke {
        command.arg("--exact").args(SMOKE);
    } else {
        // A test is skipped on versions that lack what it needs.
        command.args(["--skip", "node::"]).env_remove("LUCID_NEED_ALL");
    }
    let mut child = command.spawn()?;
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        send_lines(stdout, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        send_lines(stderr, sender);
    }
    let mut results = Results::default();
    for line in lines {
        eprintln!("{version}: {line}");
        results.read(&line);
    }
    let status = child.wait()?;
    if status.success() || !results.failed.is_empty() {
        Ok(results)
    } else {
        Err(format!("failed to run the tests on {version}: {status}").into())
    }
}

fn send_lines(output: impl Read + Send + 'static, sender: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
}

/// Results by the names of the tests.
#[derive(Debug, Default)]
struct Results {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// With the reason.
    skipped: BTreeMap<String, String>,
}

impl Results {
    /// Reads a line of libtest or of `lucid_e2e::skip`.
    fn read(&mut self, line: &str) {
        if let Some((test, reason)) =
            line.strip_prefix("testbed: skipped ").and_then(|line| line.split_once(": "))
        {
            self.skipped.insert(test.to_owned(), reason.to_owned());
        } else if let Some((test, result)) =
            line.strip_prefix("test ").and_then(|line| line.split_once(" ... "))
        {
            match result {
                "ok" => self.passed.insert(test.to_owned()),
                "FAILED" => self.failed.insert(test.to_owned()),
                _ => false,
            };
        }
    }

    fn missing<'a>(&self, tests: &'a [&str]) -> impl Iterator<Item = &'a str> {
        tests.iter().copied().filter(|test| !self.passed.contains(*test) && !self.failed.contains(*test))
    }

    fn row(&self, version: &str) -> [String; 4] {
        let passed = self.passed.iter().filter(|test| !self.skipped.contains_key(*test)).count();
        let reasons: BTreeSet<_> = self.skipped.values().map(String::as_str).collect();
        let skipped = match self.skipped.len() {
            0 => "0".to_owned(),
            count => format!("{count}: {}", Vec::from_iter(reasons).join("; ")),
        };
        [version.to_owned(), passed.to_string(), skipped, self.failed.len().to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::Results;

    #[test]
    fn results_are_read_from_the_output_of_the_tests() {
        let mut results = Results::default();
        for line in [
            "running 5 tests",
            "test backstop::denies ... ok",
            "testbed: skipped auditor::volumes: Kubernetes 1.30 has no image volumes",
            "test auditor::volumes ... ok",
            "test injection::injects has been running for over 60 seconds",
            "test injection::injects ... FAILED",
            "test slow::rotates ... ignored, slow",
            "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 8 filtered out",
        ] {
            results.read(line);
        }
        assert_eq!(results.row("1.30"), ["1.30", "1", "1: Kubernetes 1.30 has no image volumes", "1"]);
        let tests = ["backstop::denies", "injection::injects", "slow::rotates", "renamed"];
        assert_eq!(Vec::from_iter(results.missing(&tests)), ["slow::rotates", "renamed"]);
    }
}
