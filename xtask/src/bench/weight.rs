//! `cargo xtask bench weight`: crates, binary size and build time that lucid-webhook and lucid-certs add.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clap::Args;
use lucid_e2e::Error;
use tempfile::TempDir;

use crate::command::{cargo, output, succeed};
use crate::report::Report;

#[derive(Args)]
pub(crate) struct Weight {
    /// Counts crates only.
    #[arg(long)]
    crates: bool,
}

/// Crates that Lucid may add, its own two included.
const MAX_ADDED_CRATES: usize = 15;

const PACKAGE: [&str; 4] = ["--package", "bench-weight", "--manifest-path", "bench/Cargo.toml"];
const FEATURES: [&[&str]; 2] = [&[], &["--features", "lucid"]];

pub(super) fn run(weight: &Weight, report: &mut Report) -> Result<(), Error> {
    let [before, after] = FEATURES.map(crates);
    let (before, after) = (before?, after?);
    let added: Vec<_> = after.difference(&before).map(String::as_str).collect();
    let mut rows = [
        ("axum, axum-server, kube", before.len(), None),
        ("with lucid-webhook and lucid-certs", after.len(), None),
    ];
    if !weight.crates {
        for ((_, _, built), features) in rows.iter_mut().zip(FEATURES) {
            *built = Some(build(features)?);
        }
    }
    let [(_, _, first), _] = rows;
    for (program, crates, built) in rows {
        let mut cells = vec![("program", program.to_owned()), ("crates", crates.to_string())];
        if let (Some((size, time)), Some((first_size, first_time))) = (built, first) {
            cells.push(("binary", format!("{:.2} ×", size as f64 / first_size as f64)));
            cells.push(("build", format!("{:.2} ×", time.as_secs_f64() / first_time.as_secs_f64())));
            eprintln!("bench: {program}: {size} bytes, built in {time:.0?}");
        }
        report.row(cells);
    }
    let found = format!("{}: {}", added.len(), added.join(", "));
    report.require(
        format!("at most {MAX_ADDED_CRATES} crates are added"),
        found,
        added.len() <= MAX_ADDED_CRATES,
    );
    Ok(())
}

fn crates(features: &[&str]) -> Result<BTreeSet<String>, Error> {
    let mut tree = cargo();
    tree.args(["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(PACKAGE)
        .args(features);
    let tree = output(&mut tree)?;
    Ok(tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// Builds everything anew with the release settings, and returns the size of the program in bytes, and the time.
fn build(features: &[&str]) -> Result<(u64, Duration), Error> {
    let folder = TempDir::new()?;
    eprintln!("bench: building bench-weight {}", features.join(" "));
    let started = Instant::now();
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--locked", "--target-dir"]).arg(folder.path());
    succeed(build.args(PACKAGE).args(features))?;
    Ok((folder.path().join("release/bench-weight").metadata()?.len(), started.elapsed()))
}
