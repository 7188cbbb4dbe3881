//! Benchmark of the released lucid-init, in separate network namespaces.

use std::process::{Command, Stdio};

use lucid_e2e::Error;
use serde::{Deserialize, Serialize};

use super::super::build;
use super::{bytes, time};
use crate::report::{Goal, output};

/// Runs per namespace: the second run finds the rules in place.
const TIMES: &str = "2";

/// Configuration that the operator writes for two auditors.
const REDIRECT: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":true,"outbound":[]}"#;

/// Resolves users from files only, as in an image: nft looks up the names of the users in the rules, and the lookup services of
/// this machine may use the network.
const INSIDE: &str =
    "f=$(mktemp) && echo 'passwd: files' > $f && mount --bind $f /etc/nsswitch.conf && rm $f && exec \"$@\"";

#[derive(Serialize)]
pub(super) struct Figures {
    what: String,
    tool: &'static str,
    first: bool,
    p50_us: f64,
    p99_us: f64,
    /// Resident memory in bytes of the largest process of all runs.
    rss: u64,
    runs: Vec<Run>,
}

/// Output of bench/init.
#[derive(Clone, Copy, Deserialize, Serialize)]
struct Run {
    milliseconds: f64,
    rss: u64,
}

pub(super) fn measure(namespaces: usize) -> Result<Vec<Figures>, Error> {
    if output("id", &["--user"]) != "0" {
        eprintln!("bench: lucid-init is left out: network namespaces need root");
        return Ok(Vec::new());
    }
    let program = build::build_own("lucid-init")?;
    let bench = build::build("bench-init")?;
    let mut figures = Vec::new();
    for (tool, command) in [("nft", "nft"), ("iptables", "iptables-restore")] {
        if output(command, &["--version"]).is_empty() {
            eprintln!("bench: lucid-init with {tool} is left out: there is no {command}");
            continue;
        }
        eprintln!("bench: lucid-init, {tool}");
        let mut runs: [Vec<Run>; 2] = Default::default();
        for _ in 0..namespaces.max(1) {
            let mut command = lucid_testbed::command("unshare");
            command.args(["--net", "--mount", "--", "sh", "-c", INSIDE, "sh"]);
            command.arg(&bench).arg(&program).args(["--times", TIMES]);
            command.env("LUCID_REDIRECT", REDIRECT).env("LUCID_INIT_BACKEND", tool);
            let found = run(command)?;
            for (runs, run) in runs.iter_mut().zip(found) {
                runs.push(run);
            }
        }
        for (runs, first) in runs.into_iter().zip([true, false]) {
            figures.extend(Figures::new(tool, first, runs));
        }
    }
    Ok(figures)
}

fn run(mut command: Command) -> Result<Vec<Run>, Error> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("lucid-init failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

impl Figures {
    fn new(tool: &'static str, first: bool, mut runs: Vec<Run>) -> Option<Self> {
        runs.sort_by(|one, other| one.milliseconds.total_cmp(&other.milliseconds));
        let at = |percent: usize| runs.get(runs.len() * percent / 100).map(|run| run.milliseconds * 1000.0);
        let when = if first { "in a new pod" } else { "again in the same pod" };
        Some(Self {
            what: format!("lucid-init with {tool}, {when}"),
            tool,
            first,
            p50_us: at(50)?,
            p99_us: at(99)?,
            rss: runs.iter().map(|run| run.rss).max()?,
            runs,
        })
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.what.clone(), String::new(), time(self.p50_us), time(self.p99_us)];
        cells.resize(7, String::new());
        cells.extend([format!("largest process {}", bytes(self.rss)), String::new()]);
        cells
    }
}

pub(super) fn goals(figures: &[Figures]) -> Vec<Goal> {
    let Some(nft) = figures.iter().find(|figures| figures.tool == "nft" && figures.first) else {
        return Vec::new();
    };
    vec![
        Goal {
            goal: "lucid-init with nft in a new pod: under 20 ms",
            found: format!("p50 {}, p99 {}", time(nft.p50_us), time(nft.p99_us)),
            reached: nft.p99_us < 20_000.0,
        },
        Goal {
            goal: "lucid-init with nft: under 5 MB of memory, the tool included",
            found: format!("largest process {}", bytes(nft.rss)),
            reached: nft.rss < 5_000_000,
        },
    ]
}
