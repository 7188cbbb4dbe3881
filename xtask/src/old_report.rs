//! Reports: figures, the environment they were measured in, and goals.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use comfy_table::{Table, presets};
use lucid_e2e::Error;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::command::ROOT;

/// Output format of the figures.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    Table,
    Markdown,
    Json,
}

impl Output {
    /// Table style; none for JSON.
    pub(crate) fn preset(self) -> Option<&'static str> {
        match self {
            Self::Table => Some(presets::UTF8_HORIZONTAL_ONLY),
            Self::Markdown => Some(presets::ASCII_MARKDOWN),
            Self::Json => None,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct Report<R> {
    command: String,
    commit: String,
    machine: Machine,
    versions: Map<String, Value>,
    pub(crate) rows: Vec<R>,
    pub(crate) goals: Vec<Goal>,
    /// Number of failures, such as unanswered calls or denied pods. The task fails if it is not 0, while missed timing goals do
    /// not fail it.
    #[serde(skip)]
    pub(crate) failed: u64,
}

#[derive(Serialize)]
struct Machine {
    cpu: String,
    cores: usize,
    memory_gib: u64,
    kernel: String,
}

/// A goal and the measured value.
#[derive(Serialize)]
pub(crate) struct Goal {
    pub(crate) goal: &'static str,
    pub(crate) found: String,
    pub(crate) reached: bool,
}

/// One table row.
pub(crate) trait Row: Serialize {
    const HEADER: &'static [&'static str];

    fn cells(&self) -> Vec<String>;
}

impl<R: Row> Report<R> {
    /// Creates a report; `versions` are those of the measured software, by name.
    pub(crate) fn new(versions: Map<String, Value>) -> Result<Self, Error> {
        let arguments: Vec<_> = std::env::args().skip(1).collect();
        Ok(Self {
            command: format!("cargo xtask {}", arguments.join(" ")),
            commit: commit(),
            machine: Machine::this()?,
            versions,
            rows: Vec::new(),
            goals: Vec::new(),
            failed: 0,
        })
    }

    /// Prints the report.
    ///
    /// # Errors
    ///
    /// Returns an error if a measured operation failed.
    pub(crate) fn print(&self, output: Output) -> Result<(), Error> {
        match output.preset() {
            Some(preset) => self.print_tables(output, preset),
            None => println!("{}", serde_json::to_string_pretty(self)?),
        }
        match self.failed {
            0 => Ok(()),
            failed => Err(format!("{failed} failed of what was measured; see above").into()),
        }
    }

    fn print_tables(&self, output: Output, preset: &str) {
        let Machine { cpu, cores, memory_gib, kernel } = &self.machine;
        let versions =
            self.versions.iter().map(|(name, version)| match version.as_str().unwrap_or_default() {
                version if version.starts_with(name.as_str()) => version.to_owned(),
                version => format!("{name} {version}"),
            });
        println!("- Command: `{}`", self.command);
        println!("- Commit: {}", self.commit);
        println!("- Machine: {cpu}, {cores} cores, {memory_gib} GiB, Linux {kernel}");
        println!("- Versions: {}\n", versions.collect::<Vec<_>>().join(", "));
        let mut table = Table::new();
        // A Markdown cell is one line.
        let fit = |cell: &str| match output {
            Output::Markdown => cell.replace('\n', " "),
            Output::Table | Output::Json => cell.to_owned(),
        };
        table.load_preset(preset).set_header(R::HEADER.iter().map(|cell| fit(cell)));
        for row in &self.rows {
            table.add_row(row.cells().iter().map(|cell| fit(cell)));
        }
        println!("{table}\n");
        let mut goals = Table::new();
        goals.load_preset(preset).set_header(["goal", "found", "verdict"]);
        for Goal { goal, found, reached } in &self.goals {
            let verdict = if *reached { "reached" } else { "not reached" };
            goals.add_row([*goal, found, verdict]);
        }
        println!("{goals}");
    }
}

impl Machine {
    fn this() -> Result<Self, Error> {
        let info = fs::read_to_string("/proc/cpuinfo")?;
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let memory = fs::read_to_string("/proc/meminfo")?;
        let kilobytes: u64 = memory.split_whitespace().nth(1).ok_or("no MemTotal")?.parse()?;
        Ok(Self {
            cpu: model.map_or("unknown", |(_, name)| name).to_owned(),
            cores: info.lines().filter(|line| line.starts_with("processor")).count(),
            memory_gib: (kilobytes + (1 << 19)) >> 20,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        })
    }
}

/// Measured commit, with `-dirty` if the work tree has changes.
fn commit() -> String {
    let dirty = !output("git", &["status", "--porcelain"]).is_empty();
    format!("{}{}", output("git", &["rev-parse", "--short=12", "HEAD"]), if dirty { "-dirty" } else { "" })
}

/// Standard output of a command; empty if it fails.
pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(ROOT).stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Versions of the compiler and of Rust packages, from the lock file at `lock` in this repository.
pub(crate) fn versions(lock: &str, packages: &[&str]) -> Result<Map<String, Value>, Error> {
    let lock = fs::read_to_string(Path::new(ROOT).join(lock))?;
    let mut versions = Map::new();
    for name in packages {
        let package =
            lock.split("[[package]]").find(|package| package.contains(&format!("name = \"{name}\"\n")));
        let version = package.and_then(|package| package.split("version = \"").nth(1)?.split('"').next());
        versions.insert((*name).to_owned(), version.unwrap_or("unknown").into());
    }
    versions.insert("rustc".to_owned(), output("rustc", &["--version"]).into());
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Nothing;

    impl Row for Nothing {
        const HEADER: &'static [&'static str] = &["nothing"];

        fn cells(&self) -> Vec<String> {
            vec![String::new()]
        }
    }

    #[test]
    fn what_failed_fails_the_task_and_what_is_slow_does_not() {
        let mut report = Report::<Nothing>::new(Map::new()).unwrap();
        report.goals.push(Goal { goal: "fast", found: "slow".to_owned(), reached: false });
        for output in [Output::Table, Output::Json] {
            report.failed = 0;
            report.print(output).unwrap();
            report.failed = 2;
            let message = report.print(output).unwrap_err().to_string();
            assert!(message.starts_with("2 failed"), "{message}");
        }
    }
}
