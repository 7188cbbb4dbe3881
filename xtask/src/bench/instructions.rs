//! `cargo xtask bench instructions`: instructions per request of lucid-operator and lucid-validator, counted by valgrind.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use lucid_e2e::Error;

use super::load::{Generator, Target};
use super::operator::{Chain, Scene, Setup};
use super::programs;
use crate::command::output;
use crate::report::{Report, bytes};

#[derive(Args)]
pub(crate) struct Instructions {
    /// Number of requests that count for each figure. As many precede them.
    #[arg(long, default_value_t = 40)]
    requests: u32,
    /// Folder with built programs. By default those of the checkout are built, without link-time optimization.
    #[arg(long)]
    programs: Option<PathBuf>,
    #[arg(long)]
    path: Option<String>,
    #[arg(long)]
    two: bool,
    #[arg(long, value_delimiter = ',', default_values_t = [2 << 10, 10 << 10, 100 << 10])]
    body: Vec<u64>,
    /// Number of functions to list by their share.
    #[arg(long, default_value_t = 0)]
    top: usize,
}

pub(super) fn run(options: &Instructions, report: &mut Report) -> Result<(), Error> {
    let generator = Generator::build_for_counts()?;
    let program = |name: &str| match &options.programs {
        Some(folder) => Ok(folder.join(name)),
        None => programs::build_as("instructions", programs::OWN, name),
    };
    let programs = [program("lucid-operator")?, program("lucid-validator")?];
    let folder = programs::folder().join("instructions");
    fs::create_dir_all(&folder)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let under = valgrind(&folder);
    let setup = Setup { under, chain: if options.two { Chain::TwoSealed } else { Chain::One } };
    let scene = runtime.block_on(Scene::start(programs, &setup))?;
    let bodies: Vec<u64> = options.body.clone();
    let pods = runtime.block_on(scene.pods(&generator, &bodies))?;
    for path in ["/mutate", "/validate"] {
        if !options.path.as_deref().is_none_or(|it| it == path) {
            continue;
        }

        let mut counted = Counted::start(scene.pid(path)?, &folder)?;
        for (body, pod) in &pods {
            let body = *body;
            let target = scene.target(path, pod)?;
            let profile = counted.measure(options.requests, &generator, &target, body)?;
            let n = u64::from(options.requests);
            println!("== {path} {} : {} instructions per request", bytes(body), profile.total / n);
            for (count, name) in profile.functions.iter().take(options.top) {
                println!("{:9} {:5.1} % {name}", count / n, 100.0 * *count as f64 / profile.total as f64);
            }
            report.row([
                ("webhook", path.to_owned()),
                ("review", bytes(body)),
                ("instructions", (profile.total / n).to_string()),
            ]);
        }
    }
    Ok(())
}

const ROUNDS: u32 = 5;

/// Command line under which a program starts. It does not count until it is asked to.
fn valgrind(folder: &Path) -> Vec<OsString> {
    let mut output = OsString::from("--callgrind-out-file=");
    output.push(folder.join("%p"));
    ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"]
        .map(OsString::from)
        .into_iter()
        .chain([output])
        .collect()
}

/// A process whose instructions are counted.
struct Counted {
    pid: u32,
    /// Path of the profiles without their numbers.
    profiles: PathBuf,
    written: u32,
}

impl Counted {
    fn start(pid: u32, folder: &Path) -> Result<Self, Error> {
        let counted = Self { pid, profiles: folder.join(pid.to_string()), written: 0 };
        counted.order(&["instrumentation", "on"])?;
        Ok(counted)
    }

    fn order(&self, words: &[&str]) -> Result<(), Error> {
        let pid = format!("--pid={}", self.pid);
        output(Command::new("vgdb").arg(pid).args(words)).map(drop)
    }

    /// Counts several rounds and returns the least, which background tasks have disturbed least.
    fn measure(
        &mut self,
        requests: u32,
        generator: &Generator,
        target: &Target,
        body: u64,
    ) -> Result<Profile, Error> {
        let requests = requests.to_string();
        let mut load = generator.start(target, body, &["count", "--requests", &requests])?;
        load.0.line()?;
        let mut least = None;
        for _ in 0..ROUNDS {
            self.order(&["zero"])?;
            load.0.order("")?;
            load.0.line()?;
            self.order(&["dump"])?;
            self.written += 1;
            let mut path = self.profiles.clone().into_os_string();
            path.push(format!(".{}", self.written));
            let path = PathBuf::from(path);
            let text = fs::read_to_string(&path)?;
            let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.parse::<u64>().ok());
            let total = total.ok_or("no totals")?;
            eprintln!("{total}");
            if least.as_ref().is_none_or(|(least, _)| total < *least) {
                least = Some((total, path));
            }
        }
        load.0.order("end")?;
        let summary = load.summary()?;
        if summary.failed > 0 {
            return Err(format!("{} calls failed: {:?}", summary.failed, summary.failures).into());
        }
        let (_, path) = least.ok_or("no round")?;
        Profile::read(&path)
    }
}

/// Instructions of a process, and of each function with those that it calls.
struct Profile {
    total: u64,
    functions: Vec<(u64, String)>,
}

impl Profile {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = output(
            Command::new("callgrind_annotate").args(["--inclusive=yes", "--threshold=100"]).arg(path),
        )?;
        let mut profile = Self { total: 0, functions: Vec::new() };
        for line in text.lines() {
            // `1,234 (5.6%)  FILE:FUNCTION [PROGRAM]`
            let Some((count, rest)) = line.trim_start().split_once(" (") else { continue };
            let Ok(count) = count.replace(',', "").parse() else { continue };
            match rest.split_once(")  ").map(|(_, name)| name) {
                Some("PROGRAM TOTALS") => profile.total = count,
                Some(name) => {
                    let name = name.split_once(':').map_or(name, |(_, name)| name);
                    profile.functions.push((count, name.to_owned()));
                }
                None => {}
            }
        }
        Ok(profile)
    }
}
