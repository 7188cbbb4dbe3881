//! `cargo xtask soak faults`: injects faults into one of three replicas of the operator, under load.
//!
//! The replicas are behind a TCP balancer of this process. It probes `/readyz` of each once a second, as kubelet does, and
//! spreads new connections over the replicas that were ready at the latest probe, as kube-proxy does. Established connections
//! stay, and a replica that has just died still gets connections, which fail.
//!
//! The webhooks are registered by a URL on loopback. kube-apiserver speaks HTTP/2 only to such webhooks: all calls are on one
//! connection to one replica, and the fault hits all of them.

mod disk;
mod load;
mod records;
mod relay;
mod replica;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use kube::{Api, Client};
use lucid_e2e::{ClusterExt as _, Error, program};
use lucid_testbed::Cluster;
use rustix::process::{Signal, geteuid};
use tokio::net::TcpListener;
use tokio::time::{sleep, sleep_until};

use self::load::{Call, Chain, Load, NAMESPACES, OWN, Outcome};
use self::records::Records;
use self::relay::{Balancer, Endpoint, until};
use self::replica::Replica;
use crate::report::Report;
use crate::testbed::apply_config_map;

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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

#[derive(Default)]
struct Figures {
    /// Failed calls: begun before the fault or before the first failure, then until the Service noticed, and after that.
    in_flight: usize,
    unnoticed: usize,
    later: usize,
    /// First reason among the calls begun after the fault, or else among all.
    failure: Option<String>,
    /// Pods admitted without their complete chain.
    incomplete: Vec<String>,
    /// Pods with a chain that had changed before they were created, and the time from the fault to the latest of them.
    outdated: usize,
    outdated_until: Duration,
    /// Pods without a record of each webhook, and pods with more than one.
    lost: usize,
    repeated: usize,
    /// Output of `audit verify` for each log that is not intact.
    damaged_logs: Vec<String>,
    /// Time from the fault until the Service removed the replica.
    noticed: Option<Duration>,
    /// Time from the end of the fault until the replica was ready; none within a minute.
    ready: Option<Duration>,
    /// `true` if the replica was ready without a valid catalogue.
    ready_without_catalogue: bool,
}

pub(super) async fn run(faults: &Faults, quick: bool, report: &mut Report) -> Result<(), Error> {
    if !geteuid().is_root() {
        let message = "the soak of faults mounts disks, which needs root";
        if !quick {
            return Err(message.into());
        }
        eprintln!("soak: skipped: {message}");
        return Ok(());
    }
    let mut scene = Scene::start().await?;
    let selected = if faults.only.is_empty() { Fault::value_variants() } else { &faults.only };
    let mut all = Vec::new();
    for (number, fault) in selected.iter().enumerate() {
        let figures = scene.measure(number, *fault, faults).await?;
        let seconds = |time: Option<Duration>| {
            time.map_or("-".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
        };
        report.row([
            ("fault", fault.name()),
            ("failed in flight", figures.in_flight.to_string()),
            ("unnoticed", figures.unnoticed.to_string()),
            ("later", figures.later.to_string()),
            ("noticed after", seconds(figures.noticed)),
            ("ready after the end", seconds(figures.ready)),
            ("outdated chains", figures.outdated.to_string()),
            // The cause, without the URL.
            ("first failure", figures.failure.iter().flat_map(|text| text.rsplit("\": ").next()).collect()),
        ]);
        for line in figures.damaged_logs.iter().chain(&figures.incomplete) {
            eprintln!("soak: {line}");
        }
        all.push((*fault, figures));
    }
    goals(&all, quick, report);
    Ok(())
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
    async fn start() -> Result<Self, Error> {
        let (operator, cli) = (program("lucid-operator")?, program("lucid")?);
        let cluster = Cluster::builder().webhook_client(lucid_e2e::API_SERVER).start().await?;
        // A copy, so that a rebuild does not change the program of a restart.
        let copy = cluster.folder().join("lucid-operator");
        fs::copy(operator, &copy)?;
        let client = cluster.client();
        cluster.create_namespace("lucid-system", &[]).await?;
        for namespace in NAMESPACES.into_iter().chain([OWN]) {
            cluster.create_namespace(namespace, &[("lucid.computing/enabled", "true")]).await?;
        }
        apply_config_map(&client, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue()).await?;
        write_chain(&client, OWN_CHAIN).await?;

        let listener = TcpListener::bind((cluster.host_address(), 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let mut replicas = Vec::new();
        for number in 0..replica::NAMES.len() {
            replicas.push(Replica::start(&cluster, number, &copy, &cli, &url).await?);
        }
        let endpoints = replicas.iter().map(Replica::endpoint).collect::<Result<Vec<Endpoint>, _>>()?;
        let balancer = Balancer::start(listener, endpoints)?;
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
            damaged_logs.extend(replica.verify(&self.cli));
        }
        let since = |since: Instant| move |at: Instant| at.saturating_duration_since(since);
        let mut figures = compare(&calls, &records, injected, noticed, changed);
        figures.damaged_logs = damaged_logs;
        figures.noticed = noticed.map(since(injected));
        figures.ready = ready.map(since(healed));
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
            apply_config_map(&self.client, "lucid-system", "lucid-auditors", "auditors.yaml", broken).await?;
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
                apply_config_map(&self.client, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue)
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

/// Compares the calls with the times of the fault, of its detection, and of the change of the namespace's chain.
fn compare(
    calls: &[Call],
    records: &Records,
    injected: Instant,
    noticed: Option<Instant>,
    changed: Option<Instant>,
) -> Figures {
    let (lost, repeated) = records.compare(calls);
    let mut figures = Figures { lost, repeated, ..Figures::default() };
    let mut calls: Vec<_> = calls.iter().collect();
    calls.sort_by_key(|call| call.began);
    // A replica detects a failing disk by the first decision that it cannot write.
    let is_failed = |call: &&&Call| matches!(call.outcome, Outcome::Failed(_));
    let later = calls.iter().filter(is_failed).filter(|call| call.began > injected);
    let found = later.map(|call| call.ended).min();
    let found = found.map_or(injected, |found| found.min(injected + DETECTION));
    let mut first = None;
    for call in calls {
        match &call.outcome {
            Outcome::Failed(reason) => {
                *if call.began <= found {
                    &mut figures.in_flight
                } else if noticed.is_some_and(|noticed| call.began <= noticed) {
                    &mut figures.unnoticed
                } else {
                    &mut figures.later
                } += 1;
                figures.failure.get_or_insert_with(|| reason.clone());
                if call.began > found {
                    first.get_or_insert_with(|| reason.clone());
                }
            }
            Outcome::Outdated => {
                if changed.is_some_and(|changed| call.began > changed + PROPAGATION) {
                    figures.outdated += 1;
                    figures.outdated_until = call.began.saturating_duration_since(injected);
                }
            }
            Outcome::Incomplete(found) => {
                let pod = format!("{}/{} has containers {found:?}", call.namespace, call.name);
                figures.incomplete.push(pod);
            }
            Outcome::Complete => {}
        }
    }
    figures.failure = first.or(figures.failure);
    figures
}

fn goals(all: &[(Fault, Figures)], is_quick: bool, report: &mut Report) {
    let mut require = |goal: &str, count: &dyn Fn(Fault, &Figures) -> usize| {
        let counts = all.iter().map(|(fault, figures)| (fault, count(*fault, figures)));
        let missed = counts.filter(|(_, count)| *count > 0);
        let missed: Vec<_> = missed.map(|(fault, count)| format!("{count} with {}", fault.name())).collect();
        report.require(
            goal,
            if missed.is_empty() { "0".to_owned() } else { missed.join(", ") },
            missed.is_empty(),
        );
    };
    let goal = "no call fails that began after the fault, or once the Service noticed a killed replica";
    require(goal, &|fault, figures| match fault {
        fault if fault.fails_later_calls() => 0,
        // Until the Service notices, the replica of a new connection is random.
        fault if fault.is_abrupt() || is_quick => figures.later,
        _ => figures.unnoticed + figures.later,
    });
    require("no pod is admitted without its chain", &|_, figures| figures.incomplete.len());
    require("no pod gets an outdated chain longer than the age limit of watches", &|_, figures| {
        usize::from(figures.outdated_until > STALE)
    });
    require("no record is lost", &|_, figures| figures.lost);
    require("no record is repeated", &|_, figures| figures.repeated);
    require("all logs are intact", &|_, figures| figures.damaged_logs.len());
    require("each replica is ready within a minute after the fault", &|_, figures| {
        usize::from(figures.ready.is_none())
    });
    require("no replica is ready that has seen no valid catalogue", &|_, figures| {
        usize::from(figures.ready_without_catalogue)
    });
}

fn catalogue() -> String {
    let entry = |name: &str| format!("- name: lucid-{name}-auditor\n  image: {}\n", load::image(name));
    format!("chain:\n{}", ["alpha", "beta", "gamma"].map(entry).concat())
}

async fn write_chain(client: &Client, chain: Chain) -> Result<(), Error> {
    apply_config_map(client, OWN, "lucid-auditor-chain", "chain", &chain.join(",")).await
}

async fn delete_pods(client: &Client, namespace: &str) -> Result<(), Error> {
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(client.clone(), namespace);
    let params = kube::api::DeleteParams::default().grace_period(0);
    pods.delete_collection(&params, &kube::api::ListParams::default()).await?;
    Ok(())
}
