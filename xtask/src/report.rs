//! Reports: figures, the environment they were measured in, and goals.

use std::fmt::{Display, Formatter};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use lucid_e2e::Error;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::command::{self, ROOT};

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

/// Cells by column.
type Row = Vec<(&'static str, String)>;

#[derive(Serialize)]
pub(crate) struct Report {
    command: String,
    commit: String,
    machine: Machine,
    versions: Map<String, Value>,
    #[serde(serialize_with = "as_maps")]
    rows: Vec<Row>,
    goals: Vec<Goal>,
    #[serde(skip)]
    is_strict: bool,
}

#[derive(Serialize)]
struct Machine {
    cpu: String,
    cores: usize,
    memory_gib: u64,
    kernel: String,
}

#[derive(Serialize)]
struct Goal {
    goal: String,
    found: String,
    reached: bool,
    #[serde(skip)]
    is_required: bool,
}

impl Report {
    /// Creates a report on software with the versions in this lock file.
    pub(crate) fn new(lock: &str) -> Result<Self, Error> {
        let arguments: Vec<_> = std::env::args().skip(1).collect();
        Ok(Self {
            command: format!("cargo xtask {}", arguments.join(" ")),
            commit: commit(),
            machine: Machine::this()?,
            versions: versions(lock)?,
            rows: Vec::new(),
            goals: Vec::new(),
            is_strict: false,
        })
    }

    /// Fails the task if any goal is missed, not only a required one.
    pub(crate) fn strict(mut self, is_strict: bool) -> Self {
        self.is_strict = is_strict;
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = (&'static str, String)>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a goal, such as a duration, that another load on the machine may miss.
    pub(crate) fn goal(&mut self, goal: impl Into<String>, found: impl Display, reached: bool) {
        let (goal, found) = (goal.into(), found.to_string());
        self.goals.push(Goal { goal, found, reached, is_required: false });
    }

    /// Adds a goal that fails the task if it is missed.
    pub(crate) fn require(&mut self, goal: impl Into<String>, found: impl Display, reached: bool) {
        self.goal(goal, found, reached);
        if let Some(goal) = self.goals.last_mut() {
            goal.is_required = true;
        }
    }

    /// Adds a goal that fails the task if there are failures, and quotes the first one.
    pub(crate) fn require_none(&mut self, goal: impl Into<String>, failures: &[String]) {
        let first = failures.first().map(|first| format!(", the first: {first}")).unwrap_or_default();
        self.require(goal, format!("{} failed{first}", failures.len()), failures.is_empty());
    }

    /// Prints the report.
    pub(crate) fn print(&self, output: Output) -> Result<(), Error> {
        match output.preset() {
            Some(preset) => self.print_tables(preset),
            None => println!("{}", serde_json::to_string_pretty(self)?),
        }
        let missed = self.goals.iter().filter(|goal| !goal.reached && (goal.is_required || self.is_strict));
        let missed: Vec<_> = missed.map(|goal| goal.goal.as_str()).collect();
        if missed.is_empty() { Ok(()) } else { Err(format!("not reached: {}", missed.join("; ")).into()) }
    }

    fn print_tables(&self, preset: &str) {
        let Machine { cpu, cores, memory_gib, kernel } = &self.machine;
        let versions = self.versions.iter().map(|(name, version)| {
            format!("{name} {}", version.as_str().unwrap_or_default().trim_start_matches(name).trim())
        });
        println!("- Command: `{}`", self.command);
        println!("- Commit: {}", self.commit);
        println!("- Machine: {cpu}, {cores} cores, {memory_gib} GiB, Linux {kernel}");
        println!("- Versions: {}\n", versions.collect::<Vec<_>>().join(", "));
        println!("{}\n", table(&self.rows, preset));
        let mut goals = Table::new();
        goals.load_preset(preset).set_header(["goal", "found", "verdict"]);
        for Goal { goal, found, reached, .. } in &self.goals {
            goals.add_row([goal.as_str(), found, if *reached { "reached" } else { "not reached" }]);
        }
        println!("{goals}");
    }
}

/// Formats rows as a table. Columns are in the order of their first use.
pub(crate) fn table(rows: &[Row], preset: &str) -> Table {
    let mut columns = Vec::new();
    for (column, _) in rows.iter().flatten() {
        if !columns.contains(column) {
            columns.push(*column);
        }
    }
    let cell = |row: &Row, column| row.iter().find(|cell| cell.0 == column).map(|cell| cell.1.clone());
    let cells = |row| columns.iter().map(move |column| cell(row, *column).unwrap_or_default());
    let mut table = Table::new();
    table.load_preset(preset).set_header(&columns).add_rows(rows.iter().map(cells));
    table
}

fn as_maps<S: Serializer>(rows: &[Row], serializer: S) -> Result<S::Ok, S::Error> {
    let as_map = |row: &Row| -> Map<String, Value> {
        row.iter().map(|(column, cell)| ((*column).to_owned(), cell.as_str().into())).collect()
    };
    serializer.collect_seq(rows.iter().map(as_map))
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
    command::output(Command::new(program).args(arguments).current_dir(ROOT)).unwrap_or_default()
}

fn versions(lock: &str) -> Result<Map<String, Value>, Error> {
    const PACKAGES: [&str; 6] = ["aws-lc-rs", "hyper", "kube-core", "rustls", "serde_json", "tokio"];
    const PEER: &str = "sigs.k8s.io/controller-runtime ";
    let lock = fs::read_to_string(Path::new(ROOT).join(lock))?;
    let peer = fs::read_to_string(Path::new(ROOT).join("bench/peers/controller-runtime/go.mod"))?;
    let mut versions = Map::new();
    for name in PACKAGES {
        let version = lock.split_once(&format!("name = \"{name}\"\nversion = \"")).map(|(_, rest)| rest);
        versions.insert(name.to_owned(), version.and_then(|rest| rest.split('"').next()).into());
    }
    let version = peer.split_once(PEER).and_then(|(_, rest)| rest.split_whitespace().next());
    versions.insert("controller-runtime".to_owned(), version.into());
    versions.insert("go".to_owned(), output("go", &["env", "GOVERSION"]).into());
    versions.insert("rustc".to_owned(), output("rustc", &["--version"]).into());
    Ok(versions)
}

/// Percentiles of durations, in microseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Percentiles {
    /// All are infinite if there are no durations.
    pub(crate) fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort();
        let last = durations.len().saturating_sub(1);
        let at = |percent: usize| {
            let duration = durations.get((last * percent).div_ceil(100));
            duration.map_or(f64::INFINITY, |duration| duration.as_secs_f64() * 1e6)
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }

    pub(crate) fn cells(self) -> [(&'static str, String); 3] {
        [("p50", self.p50), ("p99", self.p99), ("maximum", self.max)].map(|(column, us)| (column, time(us)))
    }
}

impl Display for Percentiles {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} / {} / {}", time(self.p50), time(self.p99), time(self.max))
    }
}

pub(crate) fn time(microseconds: f64) -> String {
    match microseconds {
        ..10.0 => format!("{microseconds:.1} µs"),
        ..1e3 => format!("{microseconds:.0} µs"),
        ..1e5 => format!("{:.2} ms", microseconds / 1e3),
        ..1e7 => format!("{:.0} ms", microseconds / 1e3),
        _ => format!("{:.1} s", microseconds / 1e6),
    }
}

pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{:.0} KB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MB", bytes as f64 / f64::from(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_goals_fail_strict_reports_and_required_ones_all() {
        let report = || {
            let mut report = Report::new("Cargo.lock").unwrap();
            report.row([("server", "lucid-operator".to_owned())]);
            report.row(Percentiles::of(vec![Duration::from_millis(3)]).cells());
            report.goal("fast", "slow", false);
            report
        };
        for output in [Output::Table, Output::Markdown, Output::Json] {
            report().print(output).unwrap();
            assert_eq!(report().strict(true).print(output).unwrap_err().to_string(), "not reached: fast");
            let mut report = report();
            report.require("no call fails", 2, false);
            assert_eq!(report.print(output).unwrap_err().to_string(), "not reached: no call fails");
        }
    }
}
