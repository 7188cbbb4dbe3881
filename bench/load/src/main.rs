//! Calls an admission webhook as kube-apiserver does, or reads streams of a model, and prints the results as JSON. `cargo xtask bench` starts it.

mod caller;
mod review;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bench_common::Quantiles;
use clap::{ArgAction, Args, Parser, Subcommand};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use memchr::memmem;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};
use tokio::task::{JoinSet, LocalSet, spawn_local, yield_now};
use tokio::time::{sleep_until, timeout_at};

use crate::caller::{Call, Caller, Failure};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    load: Load,
}

#[derive(Args)]
struct Target {
    /// Addresses of the server; new connections take them in turn.
    #[arg(long, required = true)]
    endpoint: Vec<SocketAddr>,
    /// Certificate that issued the server's, PEM. Plain HTTP by default.
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Name in the server's certificate.
    #[arg(long, default_value = "localhost")]
    name: String,
    /// Path of the webhook.
    #[arg(long)]
    path: String,
    /// Bytes of the AdmissionReview.
    #[arg(long)]
    body: usize,
    /// Pod of the review, JSON. By default one of containers that fit into `--body`. An annotation fills it up.
    #[arg(long)]
    pod: Option<PathBuf>,
    /// Expect the uid of the request in its response.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    check_uid: bool,
    /// Expected verdict.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    allowed: bool,
    /// Process whose CPU time counts as the server's.
    #[arg(long)]
    server: Option<u32>,
}

#[derive(Subcommand)]
enum Load {
    /// Closed loop: each connection always has a request in flight.
    Saturate {
        #[arg(long)]
        connections: usize,
        #[command(flatten)]
        time: Time,
    },
    /// Open loop: requests at fixed times, regardless of the responses.
    Schedule {
        /// Requests per second.
        #[arg(long)]
        rate: f64,
        #[command(flatten)]
        time: Time,
    },
    /// Like `schedule`, until the line `end` on standard input. A line `endpoints ADDRESS...` redirects new connections.
    Follow {
        /// Requests per second.
        #[arg(long)]
        rate: f64,
    },
    /// Opens connections, prints `connected`, waits for a line, and sends one request on each connection.
    Hold {
        #[arg(long)]
        connections: usize,
    },
    /// Prints the pod of the review.
    Pod,
    /// Sends this number of requests on one connection and prints `sent`; again for each line on standard input until the line
    /// `end`.
    Count {
        #[arg(long)]
        requests: usize,
    },
    /// Opens streamed chat completions of bench-model and prints `connected`. Each event is a call, which begins when the model
    /// sends it.
    Stream {
        #[arg(long)]
        connections: usize,
        #[command(flatten)]
        time: Time,
    },
}

#[derive(Args)]
struct Time {
    /// Seconds before anything counts.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Seconds that count.
    #[arg(long)]
    seconds: f64,
}

impl Time {
    fn window(&self) -> (Instant, Instant) {
        let begin = Instant::now() + Duration::from_secs_f64(self.warm_up);
        (begin, begin + Duration::from_secs_f64(self.seconds))
    }
}

#[derive(Serialize)]
struct Summary {
    /// Calls scheduled in the window.
    calls: usize,
    /// Failed calls, also before the window: a run that fails while it warms up measures nothing.
    failed: usize,
    failures: BTreeMap<&'static str, usize>,
    seconds: f64,
    /// CPU time of the server's process in the window, in seconds.
    server_cpu: f64,
    /// Correct responses per second of the server's CPU time.
    per_cpu_second: f64,
    latency_us: Quantiles,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Timeout of a call that the server holds: memory is measured, not time.
const HOLD: Duration = Duration::from_secs(120);
/// Connections opened before requests at fixed times, as many as kube-apiserver keeps.
const OPEN: usize = 25;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let program = Program::parse();
    if matches!(program.load, Load::Pod) {
        println!("{}", review::pod_of(program.target.body));
        return Ok(());
    }
    let summary = LocalSet::new().run_until(run(program)).await?;
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

async fn run(Program { target, load }: Program) -> Outcome<Summary> {
    let server = target.server;
    let caller = Rc::new(Caller::new(target)?);
    // Never sleeps: waking up would add to what is measured. A model that streams needs this core, too.
    if !matches!(load, Load::Stream { .. }) {
        spawn_local(async {
            loop {
                yield_now().await;
            }
        });
    }
    let mut orders = BufReader::new(stdin()).lines();
    let mut calls = JoinSet::new();
    let (begin, end, server_cpu) = match load {
        Load::Saturate { connections, time } => {
            caller.connect(connections).await?;
            let (begin, end) = time.window();
            for _ in 0..connections {
                let caller = Rc::clone(&caller);
                calls.spawn_local(async move {
                    let mut outcomes = Vec::new();
                    while Instant::now() < end {
                        outcomes.push(caller.call(Instant::now()).await);
                    }
                    outcomes
                });
            }
            (begin, end, server_cpu(server, begin, end).await?)
        }
        Load::Schedule { rate, time } => {
            caller.connect(OPEN).await?;
            let (begin, end) = time.window();
            let cpu = server_cpu(server, begin, end);
            let cpu = tokio::select! {
                cpu = cpu => cpu?,
                () = schedule(&caller, rate, &mut calls) => 0.0,
            };
            (begin, end, cpu)
        }
        Load::Follow { rate } => {
            caller.connect(OPEN).await?;
            let begin = Instant::now();
            tokio::select! {
                followed = follow(&caller, &mut orders) => followed?,
                () = schedule(&caller, rate, &mut calls) => {}
            }
            (begin, Instant::now(), 0.0)
        }
        Load::Hold { connections } => {
            caller.connect(connections).await?;
            println!("connected");
            orders.next_line().await?;
            let begin = Instant::now();
            for _ in 0..connections {
                let caller = Rc::clone(&caller);
                calls.spawn_local(async move { vec![caller.call_within(begin, HOLD).await] });
            }
            (begin, begin + HOLD, 0.0)
        }
        Load::Pod => return Err("a pod is not sent".into()),
        Load::Count { requests } => {
            caller.connect(1).await?;
            let begin = Instant::now();
            let mut outcomes = Vec::new();
            loop {
                for _ in 0..requests {
                    outcomes.push(caller.call(Instant::now()).await);
                }
                println!("sent");
                if orders.next_line().await?.is_none_or(|order| order == "end") {
                    break;
                }
            }
            calls.spawn_local(async { outcomes });
            (begin, Instant::now(), 0.0)
        }
        Load::Stream { connections, time } => {
            let mut streams = Vec::new();
            for _ in 0..connections {
                streams.push(caller.stream().await?);
            }
            println!("connected");
            let (begin, end) = time.window();
            for stream in streams {
                calls.spawn_local(events(stream, end));
            }
            (begin, end, server_cpu(server, begin, end).await?)
        }
    };
    let calls: Vec<_> = calls.join_all().await.into_iter().flatten().collect();
    let window = begin..end;
    let answered = calls.iter().filter(|call| call.failure.is_none());
    let in_window = answered.clone().filter(|call| window.contains(&call.ended)).count() as f64;
    let latencies = answered.filter(|call| window.contains(&call.scheduled));
    let latencies: Vec<_> = latencies.map(|call| call.ended - call.scheduled).collect();
    let mut failures = BTreeMap::new();
    for failure in calls.iter().filter_map(|call| call.failure) {
        *failures.entry(Failure::name(failure)).or_default() += 1;
    }
    let failed = failures.values().sum();
    Ok(Summary {
        calls: latencies.len() + failed,
        failed,
        failures,
        seconds: (end - begin).as_secs_f64(),
        server_cpu,
        per_cpu_second: if server_cpu > 0.0 { in_window / server_cpu } else { 0.0 },
        latency_us: Quantiles::of(latencies),
    })
}

/// Makes calls at a fixed rate. The latency of a late call counts from its due time.
async fn schedule(caller: &Rc<Caller>, rate: f64, calls: &mut JoinSet<Vec<Call>>) {
    let begin = Instant::now();
    for number in 0_u32.. {
        let due = begin + Duration::from_secs_f64(f64::from(number) / rate);
        // The clock of the runtime has a resolution of a millisecond.
        while Instant::now() < due {
            yield_now().await;
        }
        let caller = Rc::clone(caller);
        calls.spawn_local(async move { vec![caller.call(due).await] });
    }
}

async fn events(mut stream: Incoming, end: Instant) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut buffer = Vec::new();
    while let Ok(frame) = timeout_at(end.into(), stream.frame()).await {
        let (ended, now) = (Instant::now(), bench_common::now_us());
        let Some(Ok(data)) = frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()))
        else {
            calls.push(Call { scheduled: ended, ended, failure: Some(Failure::Broken) });
            break;
        };
        buffer.extend_from_slice(&data);
        while let Some(length) = memmem::find(&buffer, b"\n\n") {
            let event: Vec<u8> = buffer.drain(..length + 2).collect();
            let latency = sent(&event).map(|sent| Duration::from_micros(now.saturating_sub(sent)));
            let failure = latency.is_none().then_some(Failure::WrongAnswer);
            calls.push(Call { scheduled: ended - latency.unwrap_or_default(), ended, failure });
        }
    }
    calls
}

/// Returns the time in the id of an event, in microseconds.
fn sent(event: &[u8]) -> Option<u64> {
    let (_, id) = str::from_utf8(event).ok()?.split_once("\"id\":\"chatcmpl-")?;
    id.split('"').next()?.parse().ok()
}

async fn follow(caller: &Caller, orders: &mut Lines<BufReader<Stdin>>) -> Outcome<()> {
    while let Some(order) = orders.next_line().await? {
        match order.strip_prefix("endpoints ") {
            Some(addresses) => {
                let addresses: Result<_, _> = addresses.split(' ').map(str::parse).collect();
                caller.set_endpoints(addresses?);
            }
            None => break,
        }
    }
    Ok(())
}

/// Returns the CPU time of the server's process in a period, in seconds.
async fn server_cpu(server: Option<u32>, begin: Instant, end: Instant) -> Outcome<f64> {
    sleep_until(begin.into()).await;
    let before = cpu_seconds(server)?;
    sleep_until(end.into()).await;
    Ok(cpu_seconds(server)? - before)
}

/// CPU time of a process, in user and system mode (`utime` and `stime` of proc(5)).
fn cpu_seconds(process: Option<u32>) -> Outcome<f64> {
    let Some(process) = process else { return Ok(0.0) };
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The preceding command name may contain spaces.
    let (_, fields) = stat.rsplit_once(") ").ok_or("no name in stat")?;
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Ok(ticks.sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64)
}
