//! Results of a run: latencies, failures and resource usage of the server process.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::connection::Failure;

/// Counts calls that were scheduled in a window of time.
pub(crate) struct Record {
    server: Vec<u32>,
    begin: Option<(Instant, f64)>,
    end: Option<(Instant, f64)>,
    latencies: Histogram<u64>,
    answered_in_window: u64,
    failures: BTreeMap<Failure, u64>,
    idle: Duration,
}

/// The printed report, as JSON.
#[derive(Serialize)]
pub(crate) struct Summary {
    /// Calls scheduled in the window, and how many of them failed and how.
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) failures: BTreeMap<&'static str, u64>,
    pub(crate) seconds: f64,
    /// CPU time of the server's process in the window, in seconds.
    pub(crate) server_cpu: f64,
    /// Right answers per second of the server's CPU time.
    pub(crate) per_cpu_second: f64,
    /// Share of the window in which the generator had something to do.
    pub(crate) generator_busy: f64,
    pub(crate) latency_us: Latency,
}

/// Microseconds.
#[derive(Serialize)]
pub(crate) struct Latency {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Record {
    pub(crate) fn new(server: Vec<u32>) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            server,
            begin: None,
            end: None,
            latencies: histogram()?,
            answered_in_window: 0,
            failures: BTreeMap::new(),
            idle: Duration::ZERO,
        })
    }

    pub(crate) fn open_window(&mut self, now: Instant) -> Result<(), Box<dyn Error>> {
        self.begin = Some((now, cpu_seconds(&self.server)?));
        Ok(())
    }

    pub(crate) fn close_window(&mut self, now: Instant) -> Result<(), Box<dyn Error>> {
        self.end = Some((now, cpu_seconds(&self.server)?));
        Ok(())
    }

    fn contains(&self, time: Instant) -> bool {
        self.begin.is_some_and(|(begin, _)| time >= begin) && self.end.is_none_or(|(end, _)| time < end)
    }

    pub(crate) fn finished(&mut self, scheduled: Instant, outcome: Result<(), Failure>) {
        let now = Instant::now();
        match outcome {
            Ok(()) => {
                if self.contains(now) {
                    self.answered_in_window += 1;
                }
                if self.contains(scheduled) {
                    self.latencies.saturating_record(nanoseconds(now - scheduled));
                }
            }
            // Outside of the window too: a run that fails while it warms up measures nothing.
            Err(failure) => *self.failures.entry(failure).or_default() += 1,
        }
    }

    pub(crate) fn idled(&mut self, from: Instant, to: Instant) {
        if self.contains(from) {
            self.idle += to - from;
        }
    }

    pub(crate) fn summary(self) -> Option<Summary> {
        let ((begin, cpu_before), (end, cpu_after)) = (self.begin?, self.end?);
        let seconds = (end - begin).as_secs_f64();
        let server_cpu = cpu_after - cpu_before;
        let answered = self.answered_in_window as f64;
        let failed = self.failures.values().sum();
        Some(Summary {
            calls: self.latencies.len() + failed,
            failed,
            failures: self.failures.iter().map(|(failure, count)| (failure.name(), *count)).collect(),
            seconds,
            server_cpu,
            per_cpu_second: if server_cpu > 0.0 { answered / server_cpu } else { 0.0 },
            generator_busy: 1.0 - self.idle.as_secs_f64() / seconds,
            latency_us: Latency::of(&self.latencies),
        })
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        let at = |quantile| microseconds(histogram.value_at_quantile(quantile));
        Self { p50: at(0.5), p99: at(0.99), max: microseconds(histogram.max()) }
    }
}

/// Nanoseconds, 1 µs to 60 s, with three digits.
fn histogram() -> Result<Histogram<u64>, Box<dyn Error>> {
    Ok(Histogram::new_with_bounds(1_000, 60_000_000_000, 3)?)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of processes, in user and system mode (`utime` and `stime` of proc(5)).
fn cpu_seconds(processes: &[u32]) -> Result<f64, Box<dyn Error>> {
    let mut ticks = 0;
    for process in processes {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        // The name comes second, in parentheses, and may contain anything.
        let (_, fields) = stat.rsplit_once(") ").ok_or("the process's stat has no name")?;
        for field in fields.split(' ').skip(11).take(2) {
            ticks += field.parse::<u64>()?;
        }
    }
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
