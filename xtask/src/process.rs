//! Resources of processes, and signals to them.

use std::fs;

use lucid_e2e::Error;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

/// Resources that a process has used, from proc(5).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// User and system time since its start.
    pub(crate) cpu_seconds: f64,
    pub(crate) memory: u64,
    /// Resident bytes without mapped files, such as the program.
    pub(crate) anonymous_memory: u64,
    pub(crate) peak_memory: u64,
}

impl Usage {
    pub(crate) fn reset_peak(pid: u32) -> Result<(), Error> {
        Ok(fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
    }

    pub(crate) fn of(pid: u32) -> Result<Self, Error> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The preceding command name may contain spaces.
        let (_, fields) = stat.rsplit_once(") ").ok_or("no name in stat")?;
        let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        let ticks: u64 = ticks.sum();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let bytes = |name: &str| -> Result<u64, Error> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let line = line.ok_or_else(|| format!("process {pid} has ended"))?;
            Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
        };
        Ok(Self {
            cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            memory: bytes("VmRSS:")?,
            anonymous_memory: bytes("RssAnon:")?,
            peak_memory: bytes("VmHWM:")?,
        })
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, signal: Signal) -> Result<(), Error> {
    let pid = Pid::from_raw(pid.try_into()?).ok_or("a process without an id")?;
    Ok(kill_process(pid, signal)?)
}

/// Raises the number of files that this process may open to the hard limit.
pub(crate) fn raise_descriptor_limit() -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}
