//! `cargo xtask soak faults`: injects faults into one of three replicas of the operator, under load.
//!
//! The replicas are behind a TCP balancer of this process. It probes `/readyz` of each once a second, as kubelet does, and
//! spreads new connections over the replicas that were ready at the latest probe, as kube-proxy does. Established connections
//! stay, and a replica that has just died still gets connections, which fail.
//!
//! By default the webhooks are registered by a URL on loopback. kube-apiserver speaks HTTP/2 only to such webhooks: all calls
//! are on one connection to one replica, and the fault hits all of them. With `--by-service` they are registered by a Service
//! that leads to the balancer, and kube-apiserver speaks HTTP/1.1 on several connections.

mod disk;
mod load;
mod records;
mod relay;
mod replica;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use lucid_e2e::{Error, program};
use lucid_testbed::Cluster;
use rustix::process::{Signal, geteuid};
use serde::Serialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{sleep, sleep_until};

use self::load::{Call, Chain, Load, NAMESPACES, OWN, Outcome};
use self::records::Records;
use self::relay::{Balancer, Endpoint, until};
use self::replica::Replica;
use crate::old_report::{Goal, Output, Report, Row};
use crate::testbed::asked_to_end;

#[derive(Args)]
pub(crate) struct Faults {
    /// Faults to inject, in this order; all by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Fault>,
    /// Duration of a fault in seconds; watches are half-open for 120.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Pods created each second.
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    /// Register the webhooks by Service, so that the API server calls them by HTTP/1.1.
    #[arg(long)]
    by_service: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[arg(skip)]
    is_quick: bool,
}

impl Faults {
    /// Takes less than a minute.
    pub(super) const QUICK: Self = Self {
        only: Vec::new(),
        seconds: 4,
        rate: 5.0,
        by_service: false,
        output: Output::Table,
        is_quick: true,
    };

    fn faults(&self) -> &[Fault] {
        match self.only.as_slice() {
            [] if self.is_quick => &[Fault::Kill, Fault::FullDisk],
            [] => Fault::value_variants(),
            only => only,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Fault {
    /// SIGKILL; a new process follows.
    Kill,
    /// SIGTERM; a new process follows when the old one has ended.
    Terminate,
    /// SIGSTOP, then SIGCONT.
    Stop,
    /// The disk of the log is full.
    FullDisk,
    /// Writes to the disk of the log fail.
    IoError,
    /// The directory of the log is removed.
    DeletedLog,
    /// ConfigMap lucid-auditors does not parse, and the replica restarts.
    BrokenCatalogue,
    /// Connections to the API server stay open, but carry no data.
    HalfOpen,
}

impl Fault {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns `true` if calls that begin after the fault may fail. A stopped process can neither answer nor close its
    /// connections.
    fn fails_later_calls(self) -> bool {
        self == Self::Stop
    }

    /// Returns `true` if the process ends at once, so that connections fail until the Service notices.
    fn is_abrupt(self) -> bool {
        self == Self::Kill
    }
}

/// Load before each fault.
const CALM: Duration = Duration::from_secs(4);
const HALF_OPEN: Duration = Duration::from_secs(120);
/// Age of a silent watch at which a replica stops being ready, plus the time to notice.
const STALE: Duration = Duration::from_secs(95);
/// Calls that begin within this time are in flight at the fault if no call had failed yet.
const DETECTION: Duration = Duration::from_secs(1);
/// Time for a change to reach the replicas.
const PROPAGATION: Duration = Duration::from_secs(1);
/// Time for a replica to end or to become ready.
const PATIENCE: Duration = Duration::from_secs(60);

const OWN_CHAIN: Chain = &["gamma", "alpha"];
const CHANGED_CHAIN: Chain = &["beta"];

#[derive(Serialize)]
struct Figures {
    fault: Fault,
    calls: usize,
    /// Failed calls: begun before the fault or before the first failure, then until the Service noticed, and after that.
    failed_in_flight: usize,
    failed_unnoticed: usize,
    failed_later: usize,
    /// First reason among the calls begun after the fault, or else among all.
    failure: Option<String>,
    /// Pods admitted without their complete chain.
    incomplete: usize,
    incomplete_example: Option<String>,
    /// Pods with a chain that had changed before they were created.
    outdated: usize,
    /// Seconds from the fault to the latest of them.
    outdated_until_s: Option<f64>,
    records_lost: usize,
    records_repeated: usize,
    record_example: Option<String>,
    /// Output of `audit verify` for each log that is not intact.
    damaged_logs: Vec<String>,
    /// Seconds from the fault to the answer of the first call that began after it and succeeded.
    success_s: Option<f64>,
    /// Seconds from the fault to the begin of the latest failed call.
    failing_until_s: Option<f64>,
    /// Seconds from the fault until the Service removed the replica.
    noticed_s: Option<f64>,
    /// Seconds from the end of the fault until the replica was ready; none within a minute.
    ready_s: Option<f64>,
    /// `true` if the replica was ready without a valid catalogue.
    ready_without_catalogue: bool,
}

impl Row for Figures {
    const HEADER: &'static [&'static str] = &[
        "fault",
        "calls",
        "failed: in flight,\nunnoticed, later",
        "failing\nuntil",
        "pods: no chain,\noutdated chain",
        "records:\nlost, repeated",
        "logs\ndamaged",
        "first\nsuccess",
        "noticed\nafter",
        "ready\nafter heal",
        "first failure",
    ];

    fn cells(&self) -> Vec<String> {
        let seconds = |seconds: Option<f64>| seconds.map_or("-".to_owned(), |s| format!("{s:.1} s"));
        vec![
            self.fault.name(),
            self.calls.to_string(),
            format!("{}, {}, {}", self.failed_in_flight, self.failed_unnoticed, self.failed_later),
            seconds(self.failing_until_s),
            format!("{}, {}", self.incomplete, self.outdated),
            format!("{}, {}", self.records_lost, self.records_repeated),
            self.damaged_logs.len().to_string(),
            seconds(self.success_s),
            seconds(self.noticed_s),
            seconds(self.ready_s),
            // The cause, without the URL.
            self.failure.as_deref().map_or("", |text| text.rsplit("\": ").next().unwrap_or(text)).to_owned(),
        ]
    }
}

#[tokio::main]
pub(super) async fn run(faults: &Faults) -> Result<(), Error> {
    if !geteuid().is_root() {
        let message = "the soak of faults mounts disks, which needs root";
        if !faults.is_quick {
            return Err(message.into());
        }
        eprintln!("soak: skipped: {message}");
        return Ok(());
    }
    let asked_to_end = asked_to_end()?;
    tokio::select! {
        outcome = measure(faults) => outcome,
        // Unmounts the disks.
        () = asked_to_end => Err("interrupted".into()),
    }
}

async fn measure(faults: &Faults) -> Result<(), Error> {
    let mut scene = Scene::start(faults.by_service).await?;
    let mut report = Report::new(super::versions()?)?;
    for (number, fault) in faults.faults().iter().enumerate() {
        let figures = scene.measure(number, *fault, faults).await?;
        eprintln!("soak: {}", figures.cells().join("; "));
        for line in
            figures.damaged_logs.iter().chain(&figures.incomplete_example).chain(&figures.record_example)
        {
            eprintln!("soak: {line}");
        }
        report.rows.push(figures);
    }
    report.goals = goals(&report.rows, faults.is_quick);
    super::finish(&report, faults.output, faults.is_quick)
}

/// Participants of the soak. Replicas end before the cluster does.
struct Scene {
    replicas: Vec<Replica>,
    balancer: Balancer,
    client: Client,
    cli: PathBuf,
    _cluster: Cluster,
}

impl Scene {
    async fn start(by_service: bool) -> Result<Self, Error> {
        let (operator, cli) = (program("lucid-operator")?, program("lucid")?);
        let mut builder = Cluster::builder().webhook_client(lucid_e2e::API_SERVER);
        if by_service {
            builder = builder.webhooks_by_service();
        }
        let cluster = builder.start().await?;
        // A copy, so that a rebuild does not change the program of a restart.
        let copy = cluster.folder().join("lucid-operator");
        fs::copy(operator, &copy)?;
        let client = cluster.client();
        cluster.create_namespace("lucid-system", &[]).await?;
        for namespace in NAMESPACES.into_iter().chain([OWN]) {
            cluster.create_namespace(namespace, &[("lucid.computing/enabled", "true")]).await?;
        }
        write_map(&client, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue()).await?;
        write_chain(&client, OWN_CHAIN).await?;

        let listener = TcpListener::bind((cluster.host_address(), 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let mut replicas = Vec::new();
        for number in 0..replica::NAMES.len() {
            let url = (!by_service).then_some(url.as_str());
            replicas.push(Replica::start(&cluster, number, &copy, &cli, url).await?);
        }
        let endpoints = replicas.iter().map(Replica::endpoint).collect::<Result<Vec<Endpoint>, _>>()?;
        let balancer = Balancer::start(listener, endpoints)?;
        if by_service {
            let port = balancer.address.port();
            cluster.expose_service("lucid-system", "lucid-operator-webhook", port).await?;
        }
        let scene = Self { replicas, balancer, client, cli, _cluster: cluster };
        super::eventually("the first pod with a chain", async || {
            let load = Load::start(scene.client.clone(), "warm-up".to_owned(), 20.0, OWN_CHAIN);
            sleep(Duration::from_secs(1)).await;
            let calls = load.end().await?;
            let works = calls.iter().any(|call| matches!(call.outcome, Outcome::Complete));
            for pod in NAMESPACES.into_iter().chain([OWN]) {
                delete_pods(&scene.client, pod).await?;
            }
            Ok(works.then_some(()))
        })
        .await?;
        Ok(scene)
    }

    async fn measure(&mut self, number: usize, fault: Fault, faults: &Faults) -> Result<Figures, Error> {
        let prefix = format!("{}-{number}", fault.name());
        let load = Load::start(self.client.clone(), prefix.clone(), faults.rate, OWN_CHAIN);
        let target = self.busiest_during(CALM).await;
        let endpoints = std::sync::Arc::clone(&self.balancer.endpoints);
        let endpoint = endpoints.get(target).ok_or("there is no replica")?;
        eprintln!("soak: {} in replica {target}", fault.name());

        let mut records = Records::default();
        self.inject(fault, target, &mut records).await?;
        let injected = Instant::now();
        let mut lasts =
            if fault == Fault::HalfOpen { HALF_OPEN } else { Duration::from_secs(faults.seconds) };
        let mut changed = None;
        if fault == Fault::HalfOpen {
            sleep(Duration::from_secs(5)).await;
            write_chain(&self.client, CHANGED_CHAIN).await?;
            load.expect(CHANGED_CHAIN);
            changed = Some(Instant::now());
        }
        let noticed = until(lasts.saturating_sub(injected.elapsed()), || !endpoint.is_ready()).await;
        let mut ready_without_catalogue = false;
        if fault == Fault::BrokenCatalogue {
            self.replica(target)?.succeed(PATIENCE).await?;
            lasts += injected.elapsed();
            // The latest probe may have reached the previous process.
            sleep(PROPAGATION).await;
            let ready = until(lasts.saturating_sub(injected.elapsed()), || endpoint.is_ready()).await;
            ready_without_catalogue = ready.is_some();
        }
        sleep_until((injected + lasts).into()).await;

        self.heal(fault, target, &load).await?;
        let healed = Instant::now();
        // Waits for a probe that began after the end of the fault.
        let ready = until(PATIENCE, || endpoint.is_ready()).await;
        let mut damaged_logs = Vec::new();
        if ready.is_none() {
            let replica = self.replica(target)?;
            eprintln!("soak: replica {target} is restarted");
            if let Err(error) = replica.operator.restart().await {
                let aside = replica.disk.set_aside(&prefix)?;
                damaged_logs.push(format!("no replica starts with the log in {}: {error}", aside.display()));
                records.add(&aside)?;
                replica.operator.restart().await?;
            }
        }
        sleep(Duration::from_secs(3)).await;
        let calls = load.end().await?;
        for replica in &self.replicas {
            records.add(&replica.disk.log())?;
        }
        for replica in &self.replicas {
            damaged_logs.extend(replica.verify(&self.cli)?);
        }
        let moments = Moments { injected, noticed, changed };
        let seconds = |since: Instant| move |at: Instant| at.saturating_duration_since(since).as_secs_f64();
        let mut figures = moments.figures(fault, &calls, &records);
        figures.damaged_logs = damaged_logs;
        figures.noticed_s = noticed.map(seconds(injected));
        figures.ready_s = ready.map(seconds(healed));
        figures.ready_without_catalogue = ready_without_catalogue;
        for namespace in NAMESPACES.into_iter().chain([OWN]) {
            delete_pods(&self.client, namespace).await?;
        }
        Ok(figures)
    }

    /// Returns the replica that receives most data from API servers.
    async fn busiest_during(&self, time: Duration) -> usize {
        let received = || self.balancer.endpoints.iter().map(Endpoint::received).collect::<Vec<_>>();
        let before = received();
        sleep(time).await;
        let grown = received().into_iter().zip(before).map(|(after, before)| after - before);
        grown.enumerate().max_by_key(|(_, bytes)| *bytes).map_or(0, |(index, _)| index)
    }

    fn replica(&mut self, index: usize) -> Result<&mut Replica, Error> {
        Ok(self.replicas.get_mut(index).ok_or("there is no such replica")?)
    }

    async fn inject(&mut self, fault: Fault, target: usize, records: &mut Records) -> Result<(), Error> {
        if fault == Fault::BrokenCatalogue {
            let broken = "chain: [{name: lucid-alpha-auditor, image: 7, port: many}]";
            write_map(&self.client, "lucid-system", "lucid-auditors", "auditors.yaml", broken).await?;
            sleep(PROPAGATION).await;
        }
        let replica = self.replica(target)?;
        match fault {
            Fault::Kill => replica.operator.kill(),
            Fault::Terminate | Fault::BrokenCatalogue => replica.signal(Signal::TERM)?,
            Fault::Stop => replica.signal(Signal::STOP)?,
            Fault::FullDisk => replica.disk.fill()?,
            Fault::IoError => replica.disk.fail()?,
            // The fault, not the replica, destroys the records in the log.
            Fault::DeletedLog => records.add_lines(&replica.disk.delete_log()?),
            Fault::HalfOpen => replica.link.set_open(false),
        }
        Ok(())
    }

    async fn heal(&mut self, fault: Fault, target: usize, load: &Load) -> Result<(), Error> {
        match fault {
            Fault::BrokenCatalogue => {
                let catalogue = catalogue();
                write_map(&self.client, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue)
                    .await?;
            }
            Fault::HalfOpen => {
                self.replica(target)?.link.set_open(true);
                write_chain(&self.client, OWN_CHAIN).await?;
                load.expect(OWN_CHAIN);
            }
            _ => {}
        }
        let replica = self.replica(target)?;
        match fault {
            Fault::Kill => replica.operator.respawn(),
            Fault::Terminate => replica.succeed(PATIENCE).await,
            Fault::DeletedLog => {
                replica.signal(Signal::TERM)?;
                replica.succeed(PATIENCE).await
            }
            Fault::Stop => replica.signal(Signal::CONT),
            Fault::FullDisk | Fault::IoError => replica.disk.heal(),
            Fault::BrokenCatalogue | Fault::HalfOpen => Ok(()),
        }
    }
}

/// Times to compare calls with.
struct Moments {
    injected: Instant,
    noticed: Option<Instant>,
    /// Time of the change of the namespace's chain.
    changed: Option<Instant>,
}

impl Moments {
    fn figures(&self, fault: Fault, calls: &[Call], records: &Records) -> Figures {
        let since = |at: Instant| at.saturating_duration_since(self.injected).as_secs_f64();
        let differences = records.compare(calls);
        let mut figures = Figures {
            fault,
            calls: calls.len(),
            failed_in_flight: 0,
            failed_unnoticed: 0,
            failed_later: 0,
            failure: None,
            incomplete: 0,
            incomplete_example: None,
            outdated: 0,
            outdated_until_s: None,
            records_lost: differences.lost,
            records_repeated: differences.repeated,
            record_example: differences.first,
            damaged_logs: Vec::new(),
            success_s: None,
            failing_until_s: None,
            noticed_s: None,
            ready_s: None,
            ready_without_catalogue: false,
        };
        let mut calls: Vec<_> = calls.iter().collect();
        calls.sort_by_key(|call| call.began);
        let is_later = |call: &&&Call| call.began > self.injected;
        let (failed, admitted): (Vec<&Call>, Vec<&Call>) =
            calls.iter().partition(|call| matches!(call.outcome, Outcome::Failed(_)));
        figures.success_s = admitted.iter().filter(is_later).map(|call| call.ended).min().map(since);
        figures.failing_until_s = failed.iter().filter(is_later).map(|call| since(call.began)).next_back();

        // A replica detects a failing disk by the first decision that it cannot write.
        let found = failed.iter().filter(is_later).map(|call| call.ended).min();
        let found = found.map_or(self.injected, |found| found.min(self.injected + DETECTION));
        let mut first = None;
        for call in &failed {
            *if call.began <= found {
                &mut figures.failed_in_flight
            } else if self.noticed.is_some_and(|noticed| call.began <= noticed) {
                &mut figures.failed_unnoticed
            } else {
                &mut figures.failed_later
            } += 1;
            if call.began > found {
                first.get_or_insert(*call);
            }
        }
        if let Some(Outcome::Failed(reason)) = first.or(failed.first().copied()).map(|call| &call.outcome) {
            figures.failure = Some(reason.clone());
        }
        for call in admitted {
            match &call.outcome {
                Outcome::Outdated => {
                    if self.changed.is_some_and(|changed| call.began > changed + PROPAGATION) {
                        figures.outdated += 1;
                        figures.outdated_until_s = Some(since(call.began));
                    }
                }
                Outcome::Incomplete(found) => {
                    figures.incomplete += 1;
                    figures.incomplete_example.get_or_insert_with(|| {
                        format!("{}/{} has containers {found:?}", call.namespace, call.name)
                    });
                }
                Outcome::Complete | Outcome::Failed(_) => {}
            }
        }
        figures
    }
}

fn goals(rows: &[Figures], is_quick: bool) -> Vec<Goal> {
    let named = |failing: Vec<&Figures>, count: &dyn Fn(&Figures) -> usize| {
        let found: Vec<_> =
            failing.iter().map(|row| format!("{} with {}", count(row), row.fault.name())).collect();
        if found.is_empty() { "0".to_owned() } else { found.join(", ") }
    };
    let mut goals = Vec::new();
    let mut add = |goal: &'static str, count: &dyn Fn(&Figures) -> usize| {
        let failing: Vec<_> = rows.iter().filter(|row| count(row) > 0).collect();
        goals.push(Goal { goal, reached: failing.is_empty(), found: named(failing, count) });
    };
    add("no call fails that began after the fault, or once the Service noticed a killed replica", &|row| {
        match row.fault {
            fault if fault.fails_later_calls() => 0,
            // Until the Service notices, the replica of a new connection is random.
            fault if fault.is_abrupt() || is_quick => row.failed_later,
            _ => row.failed_unnoticed + row.failed_later,
        }
    });
    add("no pod is admitted without its chain", &|row| row.incomplete);
    add("no pod gets an outdated chain longer than the age limit of watches", &|row| {
        usize::from(row.outdated_until_s.is_some_and(|seconds| seconds > STALE.as_secs_f64()))
    });
    add("no record is lost", &|row| row.records_lost);
    add("no record is repeated", &|row| row.records_repeated);
    add("all logs are intact", &|row| row.damaged_logs.len());
    add("each replica is ready within a minute after the fault", &|row| usize::from(row.ready_s.is_none()));
    add("no replica is ready that has seen no valid catalogue", &|row| {
        usize::from(row.ready_without_catalogue)
    });
    goals
}

fn catalogue() -> String {
    let entry = |name: &str| format!("- name: lucid-{name}-auditor\n  image: {}\n", load::image(name));
    format!("chain:\n{}", ["alpha", "beta", "gamma"].map(entry).concat())
}

async fn write_chain(client: &Client, chain: Chain) -> Result<(), Error> {
    write_map(client, OWN, "lucid-auditor-chain", "chain", &chain.join(",")).await
}

async fn write_map(client: &Client, namespace: &str, name: &str, key: &str, text: &str) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: text}});
    maps.patch(name, &PatchParams::apply("soak").force(), &Patch::Apply(map)).await?;
    Ok(())
}

async fn delete_pods(client: &Client, namespace: &str) -> Result<(), Error> {
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(client.clone(), namespace);
    let params = kube::api::DeleteParams::default().grace_period(0);
    pods.delete_collection(&params, &kube::api::ListParams::default()).await?;
    Ok(())
}

/// Parses the address in a URL such as `https://127.0.0.1:6443`.
fn address(url: &str) -> Result<SocketAddr, Error> {
    let address = reqwest::Url::parse(url)?.socket_addrs(|| None)?.first().copied();
    Ok(address.ok_or_else(|| format!("{url} has no address"))?)
}

/// Runs a program, and returns its success and its standard output.
fn output(program: &Path, arguments: &[&str]) -> Result<(bool, String), Error> {
    let output = lucid_testbed::command(program).args(arguments).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).trim().to_owned()))
}
