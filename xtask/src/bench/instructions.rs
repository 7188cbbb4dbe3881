//! `cargo xtask bench instructions`: instructions per request of lucid-operator and lucid-validator, counted by valgrind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use lucid_e2e::Error;

use super::load::{Generator, Target};
use super::operator::{Chain, Scene, Setup};
use super::programs::{self, BENCH, Certificate, OWN, Pinned, SERVER_CORE};
use crate::command::{ROOT, output};
use crate::report::Report;

#[derive(Args, Default)]
pub(crate) struct Instructions {
    /// Compare with the committed counts, and count nothing else.
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the counts to bench/instructions.json.
    #[arg(long)]
    write: bool,
    /// Folder of the programs. By default those of the checkout are built with the profile `instructions`.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Number of functions to list for each review, by the instructions of the function and those that it calls.
    #[arg(long, default_value_t = 0)]
    top: usize,
}

/// Sizes of reviews. The least of an injected pod, for `/validate`, is 6 KB.
const SIZES: [(&str, u64); 3] = [("2 KB", 2 << 10), ("10 KB", 10 << 10), ("100 KB", 100 << 10)];
/// Goals by path and size, with a chain of one auditor.
const GOALS: [(&str, [u64; 3]); 2] =
    [("/mutate", [400_000, 560_000, 2_800_000]), ("/validate", [480_000, 620_000, 2_600_000])];
/// Goal for two auditors and a sealed log, relative to one auditor.
const SEALED: f64 = 1.3;
/// Committed counts by path, with a chain of one auditor. With a sealed log, counts depend on time: it is sealed by the clock.
const COMMITTED: &str = "bench/instructions.json";
/// Highest count relative to the committed one.
const TOLERANCE: f64 = 1.03;
/// Requests in a round. The round with the fewest instructions counts: background tasks disturbed it least.
const REQUESTS: u64 = 40;
const ROUNDS: u32 = 5;

/// Functions whose share is shown, by parts of their names: the largest that matches counts. Functions call each other, so
/// that shares overlap.
const FUNCTIONS: [(&str, &[&str]); 13] = [
    ("TLS and socket: reading", &["TlsStream<IO> as tokio::io::async_read::AsyncRead>::poll_read"]),
    ("TLS and socket: writing", &["TlsStream<IO> as tokio::io::async_write::AsyncWrite>::poll_write"]),
    ("HTTP: reading", &["hyper::proto::h1::conn::Conn<I,B,T>::poll_read_head"]),
    ("review", &["review::AdmissionRequest::from_json"]),
    ("pod", &["PodView::from_json", "PodView::read"]),
    ("plan", &["lucid_chain::plan::plan"]),
    ("patch", &["lucid_chain::plan::Plan>::patch"]),
    ("policy", &["lucid_policy::policy::Policy::evaluate"]),
    ("hash", &["sha256::compress256"]),
    ("check of the response", &["lucid_webhook::check::check"]),
    ("record and log line", &["lucid_admission::record::record"]),
    ("span", &["lucid_webhook::webhook::Webhook>::span"]),
    ("response", &["lucid_webhook::reply::write"]),
];

pub(super) fn can_run() -> bool {
    lucid_e2e::has_program("valgrind")
}

pub(super) fn run(options: &Instructions, report: &mut Report) -> Result<(), Error> {
    let generator = Generator::build_for_counts()?;
    let program = |name| match &options.programs {
        Some(folder) => Ok(folder.join(name)),
        None => programs::build_as("instructions", OWN, name),
    };
    let programs = [program("lucid-operator")?, program("lucid-validator")?];
    let mut counts = BTreeMap::new();
    for (path, profiles) in webhooks(programs.clone(), Chain::One, &generator)? {
        show(path, &profiles, options.top, report);
        counts.insert(path.to_owned(), profiles.map(|profile| profile.total / REQUESTS));
    }
    for (path, goals) in GOALS {
        for (((size, _), goal), count) in SIZES.iter().zip(goals).zip(counts[path]) {
            report.goal(format!("{path}, {size}: at most {goal} instructions"), count, count <= goal);
        }
    }
    if !options.check {
        for (path, profiles) in webhooks(programs, Chain::TwoSealed, &generator)? {
            show(&format!("{path}, two auditors, sealed log"), &profiles, options.top, report);
            for (((size, _), profile), one) in SIZES.iter().zip(&profiles).zip(counts[path]) {
                let ratio = profile.total as f64 / (one * REQUESTS) as f64;
                let goal =
                    format!("{path}, {size}: at most {SEALED} times that with two auditors and a sealed log");
                report.goal(goal, format!("{ratio:.2} times"), ratio <= SEALED);
            }
        }
        show("constant response", &constant(&generator)?, options.top, report);
    }
    let file = Path::new(ROOT).join(COMMITTED);
    if options.write {
        return Ok(fs::write(file, serde_json::to_string_pretty(&counts)? + "\n")?);
    }
    let committed: BTreeMap<String, [u64; 3]> = serde_json::from_slice(&fs::read(file)?)?;
    for (name, counts) in counts {
        let committed = committed.get(&name).ok_or_else(|| format!("{COMMITTED} lacks {name}"))?;
        for ((size, _), (count, committed)) in SIZES.iter().zip(counts.iter().zip(committed)) {
            let goal =
                format!("{name}, {size}: at most 3 % more than {committed} instructions of {COMMITTED}");
            report.require(goal, count, *count as f64 <= *committed as f64 * TOLERANCE);
        }
    }
    Ok(())
}

fn webhooks(
    programs: [PathBuf; 2],
    chain: Chain,
    generator: &Generator,
) -> Result<[(&'static str, [Profile; 3]); 2], Error> {
    let runtime = tokio::runtime::Runtime::new()?;
    let folder = programs::folder().join("instructions");
    let scene = runtime.block_on(Scene::start(programs, &Setup { under: valgrind(&folder)?, chain }))?;
    let pods = runtime.block_on(scene.pods(generator, &SIZES.map(|(_, size)| size)))?;
    let count = |path| {
        let mut counted = Counted::start(scene.pid(path)?, &folder)?;
        let mut profiles = Vec::new();
        for (size, pod) in &pods {
            profiles.push(counted.profile(generator, &scene.target(path, pod)?, *size)?);
        }
        let profiles = profiles.try_into().map_err(|_| "not a profile for each size")?;
        Ok::<_, Error>((path, profiles))
    };
    Ok([count("/mutate")?, count("/validate")?])
}

/// Counts requests of a constant response behind lucid-webhook's server.
fn constant(generator: &Generator) -> Result<[Profile; 3], Error> {
    let program = programs::build_as("instructions", BENCH, "bench-lucid")?;
    let folder = programs::folder().join("instructions");
    let certificate = Certificate::generate()?;
    let mut words = valgrind(&folder)?;
    let valgrind = PathBuf::from(words.remove(0));
    let mut server = Pinned::start(SERVER_CORE, &valgrind, |command| {
        command.args(words).arg(program).arg("--constant");
        command.arg("--cert").arg(&certificate.cert).arg("--key").arg(&certificate.key)
    })?;
    let address = loop {
        if let Some(address) = server.line()?.strip_prefix("listening on ") {
            break address.parse()?;
        }
    };
    let target = Target::new("/", &certificate.cert, &[address]).with("--check-uid", "false");
    let mut counted = Counted::start(server.pid(), &folder)?;
    let mut profile = |(_, size)| counted.profile(generator, &target, size);
    let [small, medium, large] = SIZES;
    Ok([profile(small)?, profile(medium)?, profile(large)?])
}

/// Adds the counts and the shares of functions to the report, and prints the largest functions.
fn show(name: &str, profiles: &[Profile; 3], top: usize, report: &mut Report) {
    let mut row = |what: &str, cells: [String; 3]| {
        let cells = SIZES.map(|(size, _)| size).into_iter().zip(cells);
        let names = [("webhook", name.to_owned()), ("instructions", what.to_owned())];
        report.row(names.into_iter().chain(cells));
    };
    row("per request", profiles.each_ref().map(|profile| (profile.total / REQUESTS).to_string()));
    for (what, patterns) in FUNCTIONS {
        let shares = profiles.each_ref().map(|profile| profile.share(patterns));
        if shares.iter().any(Option::is_some) {
            let cell = |share| format!("{:.1} %", 100.0 * share);
            row(what, shares.map(|share| share.map(cell).unwrap_or_default()));
        }
    }
    for ((size, _), profile) in SIZES.iter().zip(profiles).filter(|_| top > 0) {
        println!("\n{name}, {size}: {} instructions per request\n", profile.total / REQUESTS);
        for (count, function) in profile.functions.iter().take(top) {
            println!("{:10} {:5.1} % {function}", count / REQUESTS, 100.0 * profile.part(*count));
        }
    }
}

/// Command line under which a program starts. It does not count before it is told to.
fn valgrind(folder: &Path) -> Result<Vec<OsString>, Error> {
    fs::create_dir_all(folder)?;
    let mut profiles = OsString::from("--callgrind-out-file=");
    profiles.push(folder.join("%p"));
    let words = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"];
    Ok(words.into_iter().map(OsString::from).chain([profiles]).collect())
}

struct Counted {
    pid: u32,
    folder: PathBuf,
    written: u32,
}

impl Counted {
    fn start(pid: u32, folder: &Path) -> Result<Self, Error> {
        let counted = Self { pid, folder: folder.to_owned(), written: 0 };
        counted.order(&["instrumentation", "on"])?;
        Ok(counted)
    }

    fn order(&self, words: &[&str]) -> Result<(), Error> {
        let pid = format!("--pid={}", self.pid);
        output(Command::new("vgdb").arg(pid).args(words)).map(drop)
    }

    /// Returns the profile of the round with the fewest instructions. A round before them warms up.
    fn profile(&mut self, generator: &Generator, target: &Target, size: u64) -> Result<Profile, Error> {
        let mut load = generator.start(target, size, &["count", "--requests", &REQUESTS.to_string()])?;
        load.0.line()?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            self.order(&["zero"])?;
            load.0.order("")?;
            load.0.line()?;
            self.order(&["dump"])?;
            self.written += 1;
            let file = self.folder.join(format!("{}.{}", self.pid, self.written));
            rounds.push((total(&file)?, file));
        }
        load.0.order("end")?;
        let summary = load.summary()?;
        if summary.failed > 0 {
            return Err(format!("{} calls failed: {:?}", summary.failed, summary.failures).into());
        }
        let (total, file) = rounds.into_iter().min().ok_or("no round")?;
        Profile::read(total, &file)
    }
}

fn total(file: &Path) -> Result<u64, Error> {
    let text = fs::read_to_string(file)?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    Ok(total.ok_or("a profile without totals")?.parse()?)
}

struct Profile {
    total: u64,
    /// Count of each function with those that it calls, and its name; the largest first.
    functions: Vec<(u64, String)>,
}

impl Profile {
    fn read(total: u64, file: &Path) -> Result<Self, Error> {
        let mut annotate = Command::new("callgrind_annotate");
        let text = output(annotate.args(["--inclusive=yes", "--threshold=100"]).arg(file))?;
        Ok(Self { total, functions: text.lines().filter_map(function).collect() })
    }

    fn part(&self, count: u64) -> f64 {
        count as f64 / self.total as f64
    }

    /// Share of the largest function whose name contains one of these patterns.
    fn share(&self, patterns: &[&str]) -> Option<f64> {
        let matches = |name: &str| patterns.iter().any(|pattern| name.contains(pattern));
        self.functions.iter().find(|(_, name)| matches(name)).map(|(count, _)| self.part(*count))
    }
}

/// Reads a line of callgrind_annotate, such as `1,234 ( 5.6%)  FILE:NAME [PROGRAM]`.
fn function(line: &str) -> Option<(u64, String)> {
    let (count, rest) = line.trim_start().split_once(" (")?;
    let (_, name) = rest.split_once(")  ")?.1.split_once(':')?;
    let name = name.rsplit_once(" [").map_or(name, |(name, _)| name);
    Some((count.replace(',', "").parse().ok()?, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_matching_function_determines_the_share() {
        let text = "\
--------------------------------------------------------------------------------
Ir                  
40,000 (100.0%)  PROGRAM TOTALS

39,000 (97.50%)  ???:lucid_webhook::exchange::admit::{{closure}} [/target/lucid-operator]
12,000 (30.00%)  ???:lucid_chain::patch::<impl lucid_chain::plan::Plan>::patch [/target/lucid-operator]
 4,000 ( 9.84%)  ???:lucid_chain::plan::plan
 1,000 ( 2.50%)  /rustc/library/alloc/src/string.rs:lucid_chain::plan::plan'2 [/target/lucid-operator]
";
        let profile = Profile { total: 40_000, functions: text.lines().filter_map(function).collect() };
        assert_eq!(profile.functions.len(), 4);
        assert_eq!(profile.share(&["lucid_chain::plan::plan"]), Some(0.1));
        assert_eq!(profile.share(&["Plan::patch", "Plan>::patch"]), Some(0.3));
        assert_eq!(profile.share(&["renamed"]), None);
    }
}
