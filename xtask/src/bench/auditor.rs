//! `cargo xtask bench auditor`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use lucid_e2e::Error;
use serde::Deserialize;

use super::libraries::{Figure, PROGRAM, figures};
use super::programs;
use crate::command;
use crate::report::{Report, time};

#[derive(Args)]
pub(super) struct Auditor {
    /// Parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Judges, Part::Quality])]
    part: Vec<Part>,
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Number of alternating rounds; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Folder with test cases for `quality`: injection.tsv, pii.tsv and secrets.tsv. docs/benchmarks.md names formats and sources.
    #[arg(long)]
    cases: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// CPU time of the judges per text.
    Judges,
    /// Precision and recall of the judges.
    Quality,
}

pub(super) fn run(auditor: &Auditor, report: &mut Report) -> Result<(), Error> {
    let program = programs::build(PROGRAM)?;
    if auditor.part.contains(&Part::Judges) {
        judges(auditor, &program, report)?;
    }
    if auditor.part.contains(&Part::Quality) {
        match &auditor.cases {
            Some(cases) => quality(cases, &program, report)?,
            None => eprintln!(
                "bench: quality is left out: set --cases; docs/benchmarks.md names formats and sources"
            ),
        }
    }
    Ok(())
}

fn judges(auditor: &Auditor, program: &Path, report: &mut Report) -> Result<(), Error> {
    let mut rounds = Vec::<Vec<Figure>>::new();
    for round in 1..=auditor.rounds.max(1) {
        eprintln!("bench: judges, round {round}");
        let mut command = Command::new(program);
        let measured = figures(command.args(["judges", "--seconds", &auditor.seconds.to_string()]))?;
        rounds.resize(measured.len(), Vec::new());
        rounds.iter_mut().zip(measured).for_each(|(rounds, figure)| rounds.push(figure));
    }
    let mut medians = Vec::new();
    for mut rounds in rounds {
        rounds.sort_by(|a, b| a.us.p50.total_cmp(&b.us.p50));
        medians.push(rounds.swap_remove(rounds.len() / 2));
    }
    // All judges with the small text, then all with the large one.
    let (small, large) = medians.split_at(medians.len() / 2);
    for (small, large) in small.iter().zip(large) {
        let sizes = small.bytes.zip(large.bytes).ok_or("a figure without the size of the text")?;
        let growth = large.us.p50 / small.us.p50 * sizes.0 as f64 / sizes.1 as f64;
        report.row([
            ("judge", small.name.clone()),
            ("10 KB: p50", time(small.us.p50)),
            ("p99", time(small.us.p99)),
            ("1 MB: p50", time(large.us.p50)),
            ("per byte, 1 MB to 10 KB", format!("{growth:.2}")),
        ]);
        let limit = match small.name.as_str() {
            "phrases, 1,000" => Some(50.0),
            "pii" => Some(300.0),
            _ => None,
        };
        if let Some(limit) = limit {
            let goal = format!("{}, 10 KB: under {limit} µs", small.name);
            report.goal(goal, time(small.us.p50), small.us.p50 < limit);
        }
        let goal = format!("{}: time per byte at most 1.5 times with 1 MB", small.name);
        report.goal(goal, format!("{growth:.2}"), growth <= 1.5);
    }
    Ok(())
}

/// Counts for one set of cases; bench/libraries documents the fields.
#[derive(Deserialize)]
struct Quality {
    judge: String,
    set: String,
    texts: usize,
    found: usize,
    expected: usize,
    right: usize,
}

fn quality(cases: &Path, program: &Path, report: &mut Report) -> Result<(), Error> {
    eprintln!("bench: quality");
    let output = command::output(Command::new(program).arg("quality").arg("--cases").arg(cases))?;
    let share = |part: usize, whole: usize| match whole {
        0 => String::new(),
        _ => format!("{:.3}", part as f64 / whole as f64),
    };
    for Quality { judge, set, texts, found, expected, right } in
        serde_json::from_str::<Vec<Quality>>(&output)?
    {
        report.row([
            ("judge", judge),
            ("cases", set),
            ("texts", texts.to_string()),
            ("expected", expected.to_string()),
            ("found", found.to_string()),
            ("right", right.to_string()),
            ("precision", share(right, found)),
            ("recall", share(right, expected)),
        ]);
    }
    Ok(())
}
