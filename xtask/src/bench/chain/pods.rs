//! Benchmark of planning and patching, from the bytes of a pod to the bytes of its patch: bench/chain.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use lucid_e2e::Error;
use serde::{Deserialize, Serialize};

use super::super::build;
use super::super::server::CORE;
use super::{bytes, time};
use crate::report::Goal;

/// Output of bench/chain for one pod.
#[derive(Deserialize, Serialize)]
pub(super) struct Figures {
    #[serde(flatten)]
    times: Times,
    #[serde(flatten)]
    memory: Memory,
    /// Microseconds for each additional KB or auditor over the previous row.
    #[serde(skip_deserializing)]
    each_more_us: Option<f64>,
}

#[derive(Clone, Deserialize, Serialize)]
struct Times {
    group: String,
    grows: Grows,
    name: String,
    size: usize,
    pod_bytes: u64,
    patch_bytes: u64,
    runs: usize,
    total_us: Quantiles,
    steps_us: Vec<f64>,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
struct Quantiles {
    p50: f64,
    p99: f64,
}

/// Unit of the sizes in a group of rows.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grows {
    Bytes,
    Auditors,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
struct Memory {
    allocations: u64,
    bytes: u64,
    peak: u64,
}

pub(super) fn measure(milliseconds: u64) -> Result<Vec<Figures>, Error> {
    let program = build::build("bench-chain")?;
    let allocations = program.with_file_name("bench-chain-allocations");
    eprintln!("bench: pods");
    let mut timing = lucid_testbed::command("taskset");
    timing.args(["--cpu-list", CORE]).arg(program).args(["--milliseconds", &milliseconds.to_string()]);
    let times: Vec<Times> = serde_json::from_slice(&output(&mut timing)?)?;
    let memory: Vec<Memory> = serde_json::from_slice(&output(&mut Command::new(allocations))?)?;
    if times.len() != memory.len() {
        return Err("the programs of bench/chain measure different pods".into());
    }
    let mut figures: Vec<Figures> = Vec::new();
    for (times, memory) in times.into_iter().zip(memory) {
        let mut same =
            figures.iter().map(|before| &before.times).filter(|before| before.group == times.group);
        let each_more_us = same.next_back().filter(|before| before.size < times.size).map(|before| {
            (times.total_us.p50 - before.total_us.p50) / times.grows.units(times.size - before.size)
        });
        let each_more_us = each_more_us.filter(|_| !times.group.is_empty());
        figures.push(Figures { times, memory, each_more_us });
    }
    Ok(figures)
}

fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{command:?} failed: {}", output.status).into())
    }
}

impl Grows {
    fn units(self, size: usize) -> f64 {
        match self {
            Self::Bytes => size as f64 / 1024.0,
            Self::Auditors => size as f64,
        }
    }
}

impl Figures {
    pub(super) fn cells(&self) -> Vec<String> {
        let Self { times, memory, each_more_us } = self;
        let size = match times.grows {
            Grows::Bytes => bytes(times.pod_bytes),
            Grows::Auditors => format!("{}, {}", times.size, bytes(times.pod_bytes)),
        };
        let steps: Vec<_> =
            times.steps_us.iter().map(|step| format!("{step:.*}", usize::from(*step < 10.0))).collect();
        vec![
            times.name.clone(),
            size,
            time(times.total_us.p50),
            time(times.total_us.p99),
            each_more_us.map(time).unwrap_or_default(),
            format!("{} µs", steps.join(", ")),
            memory.allocations.to_string(),
            format!("{}, {}", bytes(memory.bytes), bytes(memory.peak)),
            bytes(times.patch_bytes),
        ]
    }
}

pub(super) fn goals(figures: &[Figures]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let named = [
        ("ordinary pod", "ordinary pod of 10 KB: plan and patch under 50 µs", 50.0),
        ("pod with 2,000 variables", "pod with 2,000 env variables: under 1 ms", 1000.0),
    ];
    for (name, goal, most) in named {
        if let Some(found) = figures.iter().find(|figures| figures.times.name == name) {
            let p50 = found.times.total_us.p50;
            goals.push(Goal { goal, found: time(p50), reached: p50 < most });
        }
    }
    let kinds = [
        (Grows::Bytes, "time grows linearly up to pods of 1.5 MB: by an exponent of at most 1.1"),
        (Grows::Auditors, "time grows linearly up to 100 auditors: by an exponent of at most 1.1"),
    ];
    for (grows, goal) in kinds {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for times in figures.iter().map(|figures| &figures.times).filter(|times| times.grows == grows) {
            groups.entry(times.group.as_str()).or_default().push(times);
        }
        groups.remove("");
        let fits = groups.into_iter().map(|(name, group)| (exponent(&group), name));
        if let Some((worst, group)) = fits.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
            let found = format!("at most {worst:.2} ({group})");
            goals.push(Goal { goal, found, reached: worst <= 1.1 });
        }
    }
    goals
}

/// Fits time to a power of size by least squares over the logarithms and returns the exponent: 1 is linear growth, 2 quadratic.
/// Leaves out the smallest third, where constant costs lower the exponent.
fn exponent(group: &[&Times]) -> f64 {
    let points: Vec<_> = group[group.len() / 3..]
        .iter()
        .map(|times| ((times.size as f64).ln(), times.total_us.p50.ln()))
        .collect();
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_size, mean_time) = (mean(|point| point.0), mean(|point| point.1));
    let both: f64 = points.iter().map(|(size, time)| (size - mean_size) * (time - mean_time)).sum();
    let size: f64 = points.iter().map(|(size, _)| (size - mean_size).powi(2)).sum();
    both / size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_is_that_of_the_growth() {
        let times = |power: i32| {
            [64, 256, 1024, 1536].map(|size: usize| Times {
                group: "some".to_owned(),
                grows: Grows::Bytes,
                name: String::new(),
                size,
                pod_bytes: 0,
                patch_bytes: 0,
                runs: 1,
                total_us: Quantiles { p50: 3.0 * (size as f64).powi(power), p99: 0.0 },
                steps_us: Vec::new(),
            })
        };
        for power in [1, 2] {
            let times = times(power);
            let found = exponent(&times.iter().collect::<Vec<_>>());
            assert!((found - f64::from(power)).abs() < 1e-9, "{found}");
        }
    }
}
