//! `cargo xtask soak rotation`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use kube::{Api, Client};
use lucid_certs::{RotationRequest, Timing, TrustBundle, request_rotation};
use lucid_e2e::Error;
use lucid_testbed::Cluster;
use tokio::time::{sleep, timeout};

use super::api_server::{ApiServer, Tally};
use super::replica::{End, Endpoints, Replica, SECRET, trusting};
use super::subject::{self, Kind, NAMESPACE, Subject};
use super::{eventually, random};
use crate::report::{Output, Percentiles, Report, time};

#[derive(Args)]
pub(crate) struct Rotation {
    /// Number of rotations.
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// Number of replicas that share the authority.
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// Number of API servers that call the replicas.
    #[arg(long, default_value_t = 3)]
    apiservers: usize,
    /// Time in milliseconds for which every target must hold an authority before it signs. API servers learn of a change up to
    /// half of that after their watches.
    #[arg(long, default_value_t = 300)]
    settle: u64,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[arg(skip)]
    is_quick: bool,
}

impl Rotation {
    /// Takes some seconds, and tolerates stalls of the machine.
    pub(super) const QUICK: Self =
        Self { count: 4, replicas: 3, apiservers: 3, settle: 1500, output: Output::Table, is_quick: true };

    /// Durations in whole seconds, the resolution of X.509, except `settle`. Authorities are kept for a short time, so that the
    /// Secret does not accumulate a thousand of them.
    fn timing(&self) -> Timing {
        let mut timing = Timing::default();
        timing.ca_lifetime = Duration::from_mins(if self.is_quick { 15 } else { 5 });
        timing.ca_renew_before = timing.ca_lifetime / 5;
        timing.leaf_lifetime = Duration::from_secs(if self.is_quick { 45 } else { 12 });
        timing.settle = Duration::from_millis(self.settle);
        timing.drain = timing.leaf_lifetime * 5 / 3;
        timing.check_interval = Duration::from_secs(1);
        timing
    }
}

/// Interval of urgent rotations: the authority is declared compromised instead of an ordinary request, and the next rotation
/// waits until trust in all previous authorities has ended. Nothing retires while rotations follow one another faster than
/// replicas are sure to follow.
const URGENT_EACH: usize = 10;

/// Interval of rotations in which the Secret is deleted once.
const DELETED_EACH: usize = 40;

/// Interval of rotations during which a replica is restarted, alternating between graceful and killed.
const RESTART_EACH: usize = 20;

pub(super) fn run(rotation: &Rotation) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = Report::new("Cargo.lock")?.strict(!rotation.is_quick);
    runtime.block_on(measure(rotation, &mut report))?;
    report.print(rotation.output)
}

/// Participants of the soak.
struct Scene {
    cluster: Cluster,
    client: Client,
    subjects: Arc<[Subject]>,
    timing: Timing,
    endpoints: Arc<Endpoints>,
    replicas: Vec<Replica>,
    started: usize,
}

async fn measure(rotation: &Rotation, report: &mut Report) -> Result<(), Error> {
    let timing = rotation.timing();
    let cluster = Cluster::builder().start().await?;
    let client = cluster.client();
    let mut subjects = Vec::new();
    for kind in [Kind::Mutating, Kind::Validating, Kind::ConfigMap] {
        subjects.push(Subject::create(&client, kind, "soak").await?);
    }
    let mut scene = Scene {
        client,
        subjects: subjects.into(),
        timing,
        endpoints: Arc::new(Endpoints::new(BTreeMap::new())),
        replicas: Vec::new(),
        started: 0,
        cluster,
    };
    for _ in 0..rotation.replicas.max(1) {
        let replica = scene.start().await?;
        scene.replicas.push(replica);
    }
    eventually("all replicas are ready", async || {
        Ok(scene.replicas.iter().all(Replica::is_ready).then_some(()))
    })
    .await?;
    let tally = Arc::new(Tally::default());
    let mut api_servers = Vec::new();
    for number in 0..rotation.apiservers {
        let client = subject::client(&scene.cluster).await?;
        let delay = timing.settle / 2;
        api_servers.push(ApiServer::start(number, &client, &scene.subjects, delay, &scene.endpoints, &tally));
    }

    let (mut durations, mut ended) = (Vec::new(), Vec::new());
    let (mut urgent, mut secret_deleted, mut restarts) = (0, 0, 0);
    let begin = Instant::now();
    for number in 1..=rotation.count {
        let before = scene.signer().await?.ok_or("there is no authority")?;
        let requested = Instant::now();
        let is_urgent = number % URGENT_EACH == 0 || number == rotation.count;
        if is_urgent {
            scene.request(RotationRequest::Urgent).await?;
            urgent += 1;
        } else if number % DELETED_EACH == 3 {
            scene.secrets().delete(SECRET, &DeleteParams::default()).await?;
            secret_deleted += 1;
        } else {
            scene.request(RotationRequest::Ordinary).await?;
        }
        if number % RESTART_EACH == 7 {
            sleep(timing.settle.mul_f64(3.0 * random())).await;
            let end = if restarts % 2 == 0 { End::Orderly } else { End::Killed };
            scene.restart(restarts % scene.replicas.len(), end).await?;
            restarts += 1;
        }
        if let Err(error) = scene.serves_under_another(&before).await {
            eprintln!("soak: rotation {number}: {error}");
            break;
        }
        durations.push(requested.elapsed());
        if is_urgent {
            let activated = Instant::now();
            if let Err(error) = scene.trusts_one().await {
                eprintln!("soak: rotation {number}: {error}");
                break;
            }
            ended.push(activated.elapsed());
        }
        if number % 10 == 0 || number == rotation.count {
            let seconds = begin.elapsed().as_secs();
            let failed = tally.with(|seen| seen.failed);
            eprintln!("soak: {number} rotations in {seconds} s, {failed} calls failed");
        }
    }

    // Calls with the final bundle succeed, too.
    sleep(3 * timing.settle).await;
    for api_server in api_servers {
        api_server.stop().await;
    }
    let bundle_at_end = scene.bundles().await?;
    for replica in scene.replicas {
        replica.end(End::Orderly).await?;
    }
    let (rotations, count) = (durations.len(), rotation.count);
    let ended = Percentiles::of(ended);
    let failed = tally.with(|seen| {
        let cells = [
            ("rotations", rotations.to_string()),
            ("urgent", urgent.to_string()),
            ("Secret deleted", secret_deleted.to_string()),
            ("restarts", restarts.to_string()),
            ("handshakes", seen.handshakes.to_string()),
            ("requests on open connections", seen.requests.to_string()),
            ("failed", seen.failed.to_string()),
        ];
        report.row(cells.into_iter().chain(Percentiles::of(durations).cells()).chain([
            ("end of trust after an urgent one", ended.to_string()),
            ("CAs in a bundle at most", seen.largest.to_string()),
        ]));
        seen.failed
    });
    report.require("every rotation ends", format!("{rotations} of {count}"), rotations == count);
    report.require("no call fails", failed, failed == 0);
    let found = format!("{bundle_at_end:?}");
    report.require(
        "at the end each bundle has one authority",
        found,
        bundle_at_end.iter().all(|count| *count == 1),
    );
    // Allows for other load on the machine.
    let at_latest = timing.urgent_drain() + Duration::from_secs(5);
    let goal = "trust in previous authorities ends in time after an urgent request";
    report.goal(goal, time(ended.max), ended.max <= at_latest.as_secs_f64() * 1e6);
    Ok(())
}

impl Scene {
    async fn start(&mut self) -> Result<Replica, Error> {
        let client = subject::client(&self.cluster).await?;
        let targets = self.subjects.iter().map(|subject| subject.target(&client)).collect();
        self.started += 1;
        Replica::start(self.started, client, targets, self.timing, &self.endpoints).await
    }

    /// Restarts a replica: gracefully as a Deployment does, where it leaves when its successor is ready, or by a kill that
    /// does not wait for the successor.
    async fn restart(&mut self, place: usize, end: End) -> Result<(), Error> {
        let mut new = self.start().await?;
        if matches!(end, End::Orderly) {
            let ready = timeout(Duration::from_secs(60), new.ready.wait_for(|ready| *ready)).await;
            drop(ready.map_err(|_| "a replica that was started is not ready within a minute")??);
        }
        std::mem::replace(&mut self.replicas[place], new).end(end).await
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Current signer, from the Secret.
    async fn signer(&self) -> Result<Option<TrustBundle>, Error> {
        let data = self.secrets().get_opt(SECRET).await?.and_then(|secret| secret.data);
        Ok(data.and_then(|data| TrustBundle::from_pem(&data.get("tls.crt")?.0).ok()))
    }

    async fn request(&self, request: RotationRequest) -> Result<(), Error> {
        request_rotation(self.client.clone(), NAMESPACE, SECRET, request).await?;
        Ok(())
    }

    /// Waits until there is another signer and all ready replicas serve under it.
    async fn serves_under_another(&self, before: &TrustBundle) -> Result<(), Error> {
        let other = |signer: Option<TrustBundle>| signer.filter(|signer| signer != before);
        let signer = eventually("another signer", async || Ok(other(self.signer().await?))).await?;
        let client = trusting(&signer)?;
        for replica in &self.replicas {
            eventually("service under it", async || {
                let is_done = !replica.is_ready() || replica.is_accepted_by(&client).await;
                Ok(is_done.then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until each target holds one authority.
    async fn trusts_one(&self) -> Result<(), Error> {
        eventually("one authority in each bundle", async || {
            Ok(self.bundles().await?.iter().all(|count| *count == 1).then_some(()))
        })
        .await
    }

    /// Number of authorities in each target.
    async fn bundles(&self) -> Result<Vec<usize>, Error> {
        let mut counts = Vec::new();
        for subject in self.subjects.iter() {
            let pem = subject.bundle(&subject.api.get(&subject.name).await?);
            counts.push(TrustBundle::from_pem(&pem).map_or(0, |bundle| bundle.fingerprints().count()));
        }
        Ok(counts)
    }
}
