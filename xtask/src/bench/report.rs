//! What is printed: figures, where they come from, and which goals they reach.

use std::fs;

use comfy_table::{Table, presets};
use lucid_e2e::Error;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Output, build};

#[derive(Serialize)]
pub(super) struct Report<R> {
    command: String,
    commit: String,
    machine: Machine,
    versions: Map<String, Value>,
    pub(super) rows: Vec<R>,
    pub(super) goals: Vec<Goal>,
}

#[derive(Serialize)]
struct Machine {
    cpu: String,
    cores: usize,
    memory_gib: u64,
    kernel: String,
}

/// Something that is to hold, and what was found.
#[derive(Serialize)]
pub(super) struct Goal {
    pub(super) goal: &'static str,
    pub(super) found: String,
    pub(super) reached: bool,
}

/// A line of the table.
pub(super) trait Row: Serialize {
    const HEADER: &'static [&'static str];

    fn cells(&self) -> Vec<String>;
}

impl<R: Row> Report<R> {
    pub(super) fn new() -> Result<Self, Error> {
        let arguments: Vec<_> = std::env::args().skip(1).collect();
        Ok(Self {
            command: format!("cargo xtask {}", arguments.join(" ")),
            commit: build::commit(),
            machine: Machine::this()?,
            versions: build::versions()?,
            rows: Vec::new(),
            goals: Vec::new(),
        })
    }

    pub(super) fn print(&self, output: Output) -> Result<(), Error> {
        let preset = match output {
            Output::Json => {
                println!("{}", serde_json::to_string_pretty(self)?);
                return Ok(());
            }
            Output::Markdown => presets::ASCII_MARKDOWN,
            Output::Table => presets::UTF8_HORIZONTAL_ONLY,
        };
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
        // A cell of Markdown is one line.
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
        Ok(())
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
