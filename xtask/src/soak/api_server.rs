//! Simulates kube-apiserver's use of a trust bundle: watches the object, creates a client for the bundle, and calls the
//! replicas.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::runtime::{WatchStreamExt, watcher};
use lucid_certs::TrustBundle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::call::{call, review};
use super::random;
use super::replica::{Endpoints, clients, url};
use super::subject::Subject;

/// Maximum pause between two rounds of calls by one API server for one object; half of it on average.
const PAUSE: Duration = Duration::from_millis(200);

/// Interval of rounds whose calls dial. Others use established connections.
const DIALS_EACH: usize = 4;

#[derive(Default)]
pub(super) struct Tally(Mutex<Seen>);

#[derive(Default)]
pub(super) struct Seen {
    /// Calls over a new connection.
    pub(super) handshakes: usize,
    /// Calls over a kept connection, if there is one.
    pub(super) requests: usize,
    /// Failures of both kinds.
    pub(super) failed: usize,
    /// Maximum number of certificates in a bundle.
    pub(super) largest: usize,
}

impl Tally {
    pub(super) fn with<T>(&self, update: impl FnOnce(&mut Seen) -> T) -> T {
        update(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type Trust = Option<[reqwest::Client; 2]>;

pub(super) struct ApiServer {
    tasks: JoinSet<()>,
}

impl ApiServer {
    /// Starts an API server, which learns of each change up to `delay` after its watch.
    pub(super) fn start(
        number: usize,
        client: &Client,
        subjects: &Arc<[Subject]>,
        delay: Duration,
        endpoints: &Arc<Endpoints>,
        tally: &Arc<Tally>,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for index in 0..subjects.len() {
            let (client, subjects) = (client.clone(), Arc::clone(subjects));
            let (endpoints, tally) = (Arc::clone(endpoints), Arc::clone(tally));
            tasks.spawn(async move {
                let subject = &subjects[index];
                let name = format!("API server {number}, {}", subject.what());
                let (trust, trusted) = watch::channel(None);
                tokio::join!(
                    watch_bundle(&client, subject, delay, &trust, &tally),
                    call_replicas(&name, &trusted, &endpoints, &tally),
                );
            });
        }
        Self { tasks }
    }

    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Applies each version of the object in order, some time after the watch delivered it.
async fn watch_bundle(
    client: &Client,
    subject: &Subject,
    delay: Duration,
    trust: &watch::Sender<Trust>,
    tally: &Tally,
) {
    let config = watcher::Config::default().fields(&format!("metadata.name={}", subject.name));
    let objects = watcher(subject.api_with(client), config).default_backoff().applied_objects();
    let mut objects = pin!(objects);
    let mut coming: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut held = Vec::new();
    loop {
        let due = coming.front().map(|(due, _)| *due);
        tokio::select! {
            object = objects.next() => {
                let Some(Ok(object)) = object else { continue };
                let pem = subject.bundle(&object);
                let count = TrustBundle::from_pem(&pem).map_or(0, |bundle| bundle.certificates().count());
                tally.with(|seen| seen.largest = seen.largest.max(count));
                let soonest = coming.back().map_or_else(Instant::now, |(due, _)| *due);
                coming.push_back((soonest.max(Instant::now() + delay.mul_f64(random())), pem));
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let Some((_, pem)) = coming.pop_front() else { continue };
                // The same bundle keeps the same clients.
                if held == pem {
                    continue;
                }
                trust.send_replace(TrustBundle::from_pem(&pem).ok().and_then(|bundle| clients(&bundle).ok()));
                held = pem;
            }
        }
    }
}

/// Calls all replicas, one after the other. A new bundle has new clients, and so new connections.
async fn call_replicas(name: &str, trusted: &watch::Receiver<Trust>, endpoints: &Endpoints, tally: &Tally) {
    let review = review();
    for round in 0.. {
        sleep(PAUSE.mul_f64(random())).await;
        let known = endpoints.borrow().clone();
        for number in known.into_keys() {
            // Another task may have removed the endpoint meanwhile.
            let Some(address) = endpoints.borrow().get(&number).copied() else { continue };
            // The object may not have been delivered yet.
            let Some([dialling, keeping]) = trusted.borrow().clone() else { continue };
            let Ok(url) = url(address) else { continue };
            let dials = round % DIALS_EACH == 0;
            let outcome = call(if dials { &dialling } else { &keeping }, url, Some(&review)).await;
            tally.with(|seen| {
                *if dials { &mut seen.handshakes } else { &mut seen.requests } += 1;
                seen.failed += usize::from(outcome.is_err());
            });
            if let Err(error) = outcome {
                let error = snafu::Report::from_error(&*error);
                eprintln!("soak: failed: {name}, replica {number}: {error}");
            }
        }
    }
}
