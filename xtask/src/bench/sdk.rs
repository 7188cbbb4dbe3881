//! Streams through the shipped auditor, as SDKs see them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use lucid_e2e::Error;
use serde::Deserialize;

use super::programs;
use crate::command::{ROOT, output};
use crate::report::{Report, time};

/// Pause of the model before each event, in milliseconds.
const PACE: &str = "20";
/// Name of the call without an auditor.
const DIRECT: &str = "direct";

/// One stream, as the clients print it.
#[derive(Deserialize)]
struct Stream {
    case: String,
    /// Profile of the auditor, or a chain.
    way: String,
    /// Arrival of each item, in seconds since the call.
    marks: Vec<f64>,
}

#[derive(Clone, Copy, Default)]
struct Worst {
    first: f64,
    lag: f64,
    /// Streams that arrived in one piece.
    pieces: usize,
}

pub(super) fn run(report: &mut Report) -> Result<(), Error> {
    let program = programs::build_own("lucid-guardrails-auditor")?;
    let script = Path::new(ROOT).join("bins/lucid-guardrails-auditor/tests/sdk/run.py");
    let folder = Path::new(ROOT).join("target/tmp/sdk");
    let mut worst = BTreeMap::<String, Worst>::new();
    for language in ["python", "node"] {
        eprintln!("bench: SDKs for {language}");
        let mut command = Command::new("python3");
        let command = command.arg(&script).arg(&program).arg(&folder).args([language, PACE]);
        let lines = output(command.stderr(Stdio::inherit()))?;
        let streams: Vec<Stream> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        for stream in streams.iter().filter(|stream| stream.way != DIRECT) {
            let direct = streams.iter().find(|other| other.way == DIRECT && other.case == stream.case);
            let direct = direct.ok_or("a stream without a direct call")?;
            let mut lags: Vec<f64> = stream.marks.iter().zip(&direct.marks).map(|(a, b)| a - b).collect();
            let first = lags.first().copied().unwrap_or(f64::INFINITY);
            lags.sort_by(f64::total_cmp);
            let lag = lags.get(lags.len() / 2).copied().unwrap_or(f64::INFINITY);
            let span =
                |marks: &[f64]| marks.last().zip(marks.first()).map_or(0.0, |(last, first)| last - first);
            let is_one_piece = span(&stream.marks) < span(&direct.marks) / 4.0;
            report.row([
                ("stream", format!("{language}: {}", stream.case)),
                ("auditors", stream.way.clone()),
                ("first event later by", time(first * 1e6)),
                ("median lag", time(lag * 1e6)),
                ("in one piece", if is_one_piece { "yes" } else { "" }.to_owned()),
            ]);
            let worst = worst.entry(stream.way.clone()).or_default();
            worst.first = worst.first.max(first);
            worst.lag = worst.lag.max(lag);
            worst.pieces += usize::from(is_one_piece);
        }
    }
    for (way, worst) in worst.iter().filter(|(way, _)| *way != "three") {
        let first = time(worst.first * 1e6);
        report.goal(format!("{way}: the first event at most 60 ms later"), first, worst.first <= 0.06);
        report.goal(format!("{way}: median lag below 40 ms"), time(worst.lag * 1e6), worst.lag < 0.04);
        let goal = format!("{way}: no stream arrives in one piece");
        report.goal(goal, worst.pieces, worst.pieces == 0);
    }
    Ok(())
}
