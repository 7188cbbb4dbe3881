//! Replicas of the operator behind its Service, and their resource use.

use std::fs;
use std::path::Path;

use lucid_e2e::{Error, Operator};
use lucid_testbed::Cluster;
use serde::Serialize;

const NAMES: [&str; 5] =
    ["lucid-operator-1", "lucid-operator-2", "lucid-operator-3", "lucid-operator-4", "lucid-operator-5"];
const CALLS: &str = "lucid_admission_requests_total{webhook=\"mutate.lucid.computing\"";

/// Maximum number of replicas.
pub(super) const MOST: usize = NAMES.len();

pub(super) struct Replicas(Vec<Operator>);

/// Resource use of one replica: CPU time since its start, and memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Use {
    /// User and system time.
    pub(super) cpu_seconds: f64,
    /// Current and peak memory, in bytes.
    pub(super) rss: u64,
    pub(super) peak_rss: u64,
    /// Number of calls of `/mutate`.
    pub(super) calls: u64,
}

impl Replicas {
    /// Starts `count` replicas of `program`, and points the Service at them when all are ready.
    pub(super) async fn start(cluster: &Cluster, program: &Path, count: usize) -> Result<Self, Error> {
        let mut replicas = Vec::new();
        for name in NAMES.into_iter().take(count) {
            let operator = Operator::builder(cluster).named(name).by_service().command([program]);
            replicas.push(operator.start().await?);
        }
        let ports: Vec<_> = replicas.iter().map(Operator::port).collect();
        cluster.expose_replicas("lucid-system", "lucid-operator-webhook", &ports).await?;
        Ok(Self(replicas))
    }

    pub(super) async fn uses(&self) -> Result<Vec<Use>, Error> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let mut uses = Vec::new();
        for operator in &self.0 {
            let pid = operator.pid().ok_or("an operator has ended")?;
            let metrics = client.get(operator.admin_url("/metrics")).send().await?.text().await?;
            let calls = metrics.lines().filter(|line| line.starts_with(CALLS));
            let calls = calls.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
            let (rss, peak_rss) = memory(pid)?;
            uses.push(Use { cpu_seconds: cpu_seconds(pid)?, rss, peak_rss, calls });
        }
        Ok(uses)
    }
}

/// Sum of `utime` and `stime` of proc(5).
fn cpu_seconds(pid: u32) -> Result<f64, Error> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The preceding command name may contain spaces.
    let (_, fields) = stat.rsplit_once(") ").ok_or("no name in stat")?;
    let ticks: Vec<u64> = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    Ok(ticks.iter().sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn memory(pid: u32) -> Result<(u64, u64), Error> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = |name: &str| -> Result<u64, Error> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
        Ok(line.split_whitespace().next().ok_or("no number")?.parse::<u64>()? * 1024)
    };
    Ok((value("VmRSS:")?, value("VmHWM:")?))
}
