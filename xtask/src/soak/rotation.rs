//! `cargo xtask soak rotation`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DeleteParams;
use lucid_certs::target::TrustTarget;
use lucid_certs::{RotationRequest, Timing, TrustBundle};
use lucid_e2e::Error;
use tokio::time::sleep;

use super::api_server::{ApiServer, Tally};
use super::replica::{End, SECRET};
use super::scene::Scene;
use super::subject::{Kind, NAMESPACE};
use super::{eventually, random};
use crate::report::{Percentiles, Report, time};

#[derive(Args)]
pub(crate) struct Rotation {
    /// Number of rotations.
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// Time in milliseconds for which every target must hold an authority before it signs. API servers learn of a change up to
    /// half of that after their watches.
    #[arg(long, default_value_t = 300)]
    settle: u64,
}

impl Rotation {
    /// Durations in whole seconds, the resolution of X.509, except `settle`. Authorities are kept for a short time, so that the
    /// Secret does not accumulate a thousand of them.
    fn timing(&self, quick: bool) -> Timing {
        let ca_lifetime = Duration::from_mins(if quick { 15 } else { 5 });
        let leaf_lifetime = Duration::from_secs(if quick { 45 } else { 12 });
        Timing::default()
            .with_leaf_lifetime(leaf_lifetime)
            .with_ca(ca_lifetime, ca_lifetime / 5)
            .with_settle(Duration::from_millis(self.settle))
            .with_drain(leaf_lifetime * 5 / 3)
            .with_check_interval(CHECK_INTERVAL)
    }
}

/// Number of replicas that share the authority.
const REPLICAS: usize = 3;
/// Number of API servers that call the replicas.
const API_SERVERS: usize = 3;
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of urgent rotations: the authority is declared compromised instead of an ordinary request, and the next rotation
/// waits until trust in all previous authorities has ended. Nothing retires while rotations follow one another faster than
/// replicas are sure to follow.
const URGENT_EACH: usize = 10;

/// Interval of rotations in which the Secret is deleted once.
const DELETED_EACH: usize = 40;

/// Interval of rotations during which a replica is restarted, alternating between graceful and killed.
const RESTART_EACH: usize = 20;

pub(super) async fn run(rotation: &Rotation, quick: bool, report: &mut Report) -> Result<(), Error> {
    let settle = Duration::from_millis(rotation.settle);
    let subjects = [Kind::Mutating, Kind::Validating, Kind::ConfigMap].map(|kind| (kind, "soak".to_owned()));
    let mut scene = Scene::start(&subjects, REPLICAS, rotation.timing(quick)).await?;
    let tally = Arc::new(Tally::default());
    let mut api_servers = Vec::new();
    for number in 0..API_SERVERS {
        let client = scene.new_client().await?;
        let delay = settle / 2;
        api_servers.push(ApiServer::start(number, &client, &scene.subjects, delay, &scene.endpoints, &tally));
    }

    let (mut durations, mut ended) = (Vec::new(), Vec::new());
    let (mut urgent, mut secret_deleted, mut restarts) = (0, 0, 0);
    let begin = Instant::now();
    for number in 1..=rotation.count {
        let before = signer(&scene).await?.ok_or("there is no authority")?;
        let requested = Instant::now();
        let is_urgent = number % URGENT_EACH == 0 || number == rotation.count;
        if is_urgent {
            request(&scene, RotationRequest::Urgent).await?;
            urgent += 1;
        } else if number % DELETED_EACH == 3 {
            secrets(&scene).delete(SECRET, &DeleteParams::default()).await?;
            secret_deleted += 1;
        } else {
            request(&scene, RotationRequest::Ordinary).await?;
        }
        if number % RESTART_EACH == 7 {
            sleep(settle.mul_f64(3.0 * random())).await;
            let end = if restarts % 2 == 0 { End::Orderly } else { End::Killed };
            scene.restart(restarts % scene.replicas.len(), end).await?;
            restarts += 1;
        }
        if let Err(error) = serves_under_another(&scene, &before).await {
            eprintln!("soak: rotation {number}: {error}");
            break;
        }
        durations.push(requested.elapsed());
        if is_urgent {
            let activated = Instant::now();
            if let Err(error) = trusts_one(&scene).await {
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
    sleep(3 * settle).await;
    for api_server in api_servers {
        api_server.stop().await;
    }
    let bundle_at_end = bundles(&scene).await?;
    scene.end().await?;
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
    let at_latest = 2 * (settle + CHECK_INTERVAL) + Duration::from_secs(5);
    let goal = "trust in previous authorities ends in time after an urgent request";
    report.goal(goal, time(ended.max), ended.max <= at_latest.as_secs_f64() * 1e6);
    Ok(())
}

fn secrets(scene: &Scene) -> Api<Secret> {
    Api::namespaced(scene.client.clone(), NAMESPACE)
}

/// Current signer, from the Secret.
async fn signer(scene: &Scene) -> Result<Option<TrustBundle>, Error> {
    let data = secrets(scene).get_opt(SECRET).await?.and_then(|secret| secret.data);
    Ok(data.and_then(|data| TrustBundle::from_pem(&data.get("tls.crt")?.0).ok()))
}

async fn request(scene: &Scene, request: RotationRequest) -> Result<(), Error> {
    request.send(scene.client.clone(), NAMESPACE, SECRET).await?;
    Ok(())
}

/// Waits until there is another signer and all ready replicas serve under it.
async fn serves_under_another(scene: &Scene, before: &TrustBundle) -> Result<(), Error> {
    let other = |signer: Option<TrustBundle>| signer.filter(|signer| signer != before);
    let signer = eventually("another signer", async || Ok(other(signer(scene).await?))).await?;
    for replica in &scene.replicas {
        eventually("service under it", async || {
            let is_done = !replica.is_ready() || replica.is_accepted_with(&signer).await?;
            Ok(is_done.then_some(()))
        })
        .await?;
    }
    Ok(())
}

async fn trusts_one(scene: &Scene) -> Result<(), Error> {
    eventually("one authority in each bundle", async || {
        Ok(bundles(scene).await?.iter().all(|count| *count == 1).then_some(()))
    })
    .await
}

/// Number of authorities in each target.
async fn bundles(scene: &Scene) -> Result<Vec<usize>, Error> {
    let mut counts = Vec::new();
    for subject in scene.subjects.iter() {
        let bundle = subject.target(&scene.client).read().await?.bundle();
        counts.push(bundle.map_or(0, |bundle| bundle.certificates().count()));
    }
    Ok(counts)
}
