//! `cargo xtask soak rotation --starters`: concurrent start of many replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use lucid_certs::{Fingerprint, Timing, TrustBundle};
use lucid_e2e::Error;
use lucid_testbed::Cluster;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::Latency;
use super::replica::{End, Endpoints, Replica, SECRET, trusting};
use super::subject::{self, Kind, NAMESPACE, Subject};
use crate::old_report::{Goal, Output, Report, Row};

const TARGETS: [Kind; 3] = [Kind::Mutating, Kind::Validating, Kind::ConfigMap];

#[derive(Serialize)]
struct Figures {
    replicas: usize,
    /// Time until the source offers a certificate of the common authority.
    offered_ms: Latency,
    /// Time until callers accept the served certificate.
    ready_ms: Latency,
    /// Number of distinct authorities that signed.
    signers: usize,
    /// Number of replicas that serve under the last of them at the end.
    under_it: usize,
    /// Number of certificates in each target.
    bundles: Vec<usize>,
}

impl Row for Figures {
    const HEADER: &'static [&'static str] = &[
        "replicas",
        "has a certificate\np50 / p99 / max",
        "ready\np50 / p99 / max",
        "signers",
        "serve under it",
        "CAs in the bundles",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.replicas.to_string(),
            self.offered_ms.cell(),
            self.ready_ms.cell(),
            self.signers.to_string(),
            self.under_it.to_string(),
            format!("{:?}", self.bundles),
        ]
    }
}

pub(super) async fn run(count: usize, output: Output) -> Result<(), Error> {
    let mut report = Report::new(super::versions()?)?;
    let figures = measure(count).await?;
    let is_one =
        figures.signers == 1 && figures.under_it == count && figures.bundles.iter().all(|count| *count == 1);
    report.goals = vec![
        Goal {
            goal: "one authority",
            found: format!("{}, bundles of {:?}", figures.signers, figures.bundles),
            reached: is_one,
        },
        Goal {
            goal: "all hold it within 5 s",
            found: format!("{:.1} s", figures.offered_ms.max / 1000.0),
            reached: figures.offered_ms.max <= 5000.0,
        },
    ];
    report.rows.push(figures);
    super::finish(&report, output, false)
}

async fn measure(count: usize) -> Result<Figures, Error> {
    let cluster = Cluster::builder().start().await?;
    let client = cluster.client();
    let mut subjects = Vec::new();
    for kind in TARGETS {
        subjects.push(Subject::create(&client, kind, "soak").await?);
    }
    let (seen, signers) = watch::channel(BTreeSet::new());
    let watching = tokio::spawn(note_signers(Api::namespaced(client.clone(), NAMESPACE), seen));
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(subject::client(&cluster).await?);
    }

    eprintln!("soak: {count} replicas start");
    let endpoints = Arc::new(Endpoints::new(BTreeMap::new()));
    let begin = Instant::now();
    let started = clients.into_iter().enumerate().map(|(number, client)| {
        let targets = subjects.iter().map(|subject| subject.target(&client)).collect();
        Replica::start(number, client, targets, Timing::default(), &endpoints)
    });
    let replicas = try_join_all(started).await?;
    let offered = try_join_all(replicas.iter().map(|replica| after(begin, replica.offered.clone())));
    let ready = try_join_all(replicas.iter().map(|replica| after(begin, replica.ready.clone())));
    let (offered, ready) = tokio::try_join!(offered, ready)?;
    eprintln!("soak: all are ready");

    let secret = Api::<Secret>::namespaced(client, NAMESPACE).get(SECRET).await?;
    let signer = signer(&secret).ok_or("there is no authority")?;
    let connector = trusting(&signer)?;
    let (mut under_it, mut bundles) = (0, Vec::new());
    for replica in &replicas {
        under_it += usize::from(replica.is_accepted_by(&connector).await);
    }
    for subject in &subjects {
        let pem = subject.bundle(&subject.api.get(&subject.name).await?);
        bundles.push(TrustBundle::from_pem(&pem).map_or(0, |bundle| bundle.fingerprints().count()));
    }
    for replica in replicas {
        replica.end(End::Killed).await?;
    }
    watching.abort();
    let signers = signers.borrow().len();
    Ok(Figures {
        replicas: count,
        offered_ms: Latency::of(offered),
        ready_ms: Latency::of(ready),
        signers,
        under_it,
        bundles,
    })
}

/// Records the signer of every version of the Secret.
async fn note_signers(secrets: Api<Secret>, seen: watch::Sender<BTreeSet<Fingerprint>>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={SECRET}"));
    let mut secrets = pin!(watcher(secrets, config).default_backoff().applied_objects());
    while let Some(secret) = secrets.next().await {
        let signer = secret.ok().and_then(|secret| signer(&secret));
        seen.send_modify(|seen| seen.extend(signer.iter().flat_map(TrustBundle::fingerprints)));
    }
}

fn signer(secret: &Secret) -> Option<TrustBundle> {
    TrustBundle::from_pem(&secret.data.as_ref()?.get("tls.crt")?.0).ok()
}

async fn after(begin: Instant, mut happened: watch::Receiver<bool>) -> Result<Duration, Error> {
    let happened = timeout(Duration::from_secs(120), happened.wait_for(|happened| *happened)).await;
    drop(happened.map_err(|_| "a replica is not ready within two minutes")??);
    Ok(begin.elapsed())
}
