//! The control loops of the injector.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant, SystemTime},
};

use futures::{
    FutureExt, StreamExt,
    future::{AbortHandle, abortable, join_all, join3, select_all},
    stream::FuturesUnordered,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, PartialObjectMeta},
    runtime::{
        events::{EventType, Recorder, Reporter},
        watcher::{Config, Event},
    },
};
use tokio::{
    sync::{
        Semaphore,
        watch::{Receiver, Sender},
    },
    time::{sleep, timeout},
};
use tracing::{debug, error, info, warn};

use super::{
    CaInjector, InjectorMetrics,
    annotation::CaReference,
    authority::Authorities,
    conflict::{self, ConflictDetector},
    object::Kind,
    pace::{End, Pace},
    problem::Problem,
    watch::{Dependency, Watches},
};
use crate::{
    bundle::TrustBundle,
    error::Error,
    events,
    target::{ObjectTarget, Reading, Slot, TargetError, TrustTarget},
    watch,
};

/// Maximum number of objects that are reconciled at the same time.
const MAX_RUNNING: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Resync interval. Required because certificates expire without an event.
const RESYNC: Duration = Duration::from_secs(600);
/// Interval at which the resync is checked by the wall clock: the monotonic clock stops while a machine is
/// suspended.
const TICK: Duration = Duration::from_secs(15);

/// Waits until no conflicting injector runs, then injects forever.
pub(super) async fn run(injector: CaInjector) -> Result<(), Error> {
    let CaInjector { client, authorities, cert_manager, metrics, ready } = injector;
    let openshift = authorities.openshift.is_some();
    let mut detector = ConflictDetector::new(client.clone(), cert_manager, openshift);
    detector.wait_for_none().await?;

    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::ConfigMap || openshift);
    let kinds: Vec<_> = kinds.collect();
    let control = Control {
        reporter: super::FIELD_MANAGER.into(),
        watches: Watches::new(client.clone()),
        permits: Semaphore::new(MAX_RUNNING),
        unlisted: AtomicUsize::new(kinds.len()),
        paused: Sender::new(false),
        resync: Sender::new(()),
        client,
        authorities,
        metrics,
        ready,
    };
    // One task runs all loops, so that nothing is written after it was dropped.
    let kinds = join_all(kinds.into_iter().map(|kind| control.follow(kind)));
    join3(kinds, control.resync_regularly(), control.pause_beside_others(detector)).await;
    Ok(())
}

struct Control {
    client: Client,
    reporter: Reporter,
    authorities: Authorities,
    watches: Watches,
    permits: Semaphore,
    metrics: InjectorMetrics,
    ready: Sender<bool>,
    /// Number of kinds that are not completely listed yet.
    unlisted: AtomicUsize,
    paused: Sender<bool>,
    resync: Sender<()>,
}

/// An annotated object. Its loop ends when this is dropped.
struct Followed {
    changed: Sender<()>,
    task: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
enum Outcome {
    /// The object does not exist or has no annotation.
    NotRequested,
    /// The bundle is up to date, or the object has no field for one.
    UpToDate,
    Written {
        reference: CaReference,
        bundle: TrustBundle,
        before: Reading,
    },
    Conflict,
}

impl Control {
    /// Keeps all annotated objects of a kind up to date. Never ends.
    async fn follow(&self, kind: Kind) {
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(self.client.clone(), &kind.resource());
        let mut events = pin!(watch::events(api, Config::default(), format!("{kind}s")));
        let (mut objects, mut listed) = (BTreeMap::new(), BTreeSet::new());
        let mut running = FuturesUnordered::new();
        let mut was_listed = false;
        loop {
            let event = tokio::select! {
                Some(event) = events.next() => event,
                Some(_) = running.next() => continue,
                else => return,
            };
            match event {
                Event::Init => listed.clear(),
                Event::Apply(object) | Event::InitApply(object) => {
                    let key = (object.namespace(), object.name_any());
                    if matches!(CaReference::of(kind, object.annotations()), Ok(None)) {
                        objects.remove(&key);
                        continue;
                    }
                    listed.insert(key.clone());
                    let followed = objects.entry(key).or_insert_with_key(|(namespace, name)| {
                        let target = kind.target(self.client.clone(), namespace.as_deref(), name);
                        let changed = Sender::new(());
                        let (object, task) = abortable(self.keep(kind, target, changed.subscribe()));
                        running.push(object);
                        Followed { changed, task }
                    });
                    followed.changed.send_replace(());
                }
                Event::Delete(object) => drop(objects.remove(&(object.namespace(), object.name_any()))),
                Event::InitDone => {
                    objects.retain(|key, _| listed.contains(key));
                    if !std::mem::replace(&mut was_listed, true) {
                        self.unlisted.fetch_sub(1, Ordering::Relaxed);
                        self.update_readiness();
                    }
                }
            }
        }
    }

    /// Keeps one object up to date. Never ends.
    async fn keep(&self, kind: Kind, target: ObjectTarget, mut changed: Receiver<()>) {
        let target = target.with_recorder(self.recorder());
        let object = target.name();
        let (mut paused, mut resync) = (self.paused.subscribe(), self.resync.subscribe());
        let mut dependencies: BTreeMap<Dependency, Receiver<()>> = BTreeMap::new();
        let mut pace = Pace::default();
        let mut refusal = Refusal { metrics: &self.metrics, kind, problem: None };
        let mut uid = None;
        loop {
            // Neither the semaphore nor the channel is ever closed.
            let permit = self.permits.acquire().await;
            drop(paused.wait_for(|paused| !paused).await);
            for receiver in [&mut changed, &mut resync].into_iter().chain(dependencies.values_mut()) {
                receiver.mark_unchanged();
            }
            let mut found = BTreeSet::new();
            let outcome = timeout(TIMEOUT, self.reconcile(kind, &target, &mut uid, &mut found)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(Problem::timed_out(TIMEOUT)));
            drop(permit);

            let end = match &outcome {
                Ok(Outcome::NotRequested | Outcome::UpToDate) => End::Settled,
                Ok(Outcome::Written { reference, bundle, .. }) => {
                    let bundle: Vec<_> = bundle.fingerprints().map(|it| it.to_string()).collect();
                    info!(object, from = %reference, ?bundle, "CA injected");
                    self.metrics.wrote(kind, "written");
                    End::Written
                }
                Ok(Outcome::Conflict) => {
                    debug!(object, "another client changed the object concurrently");
                    self.metrics.wrote(kind, "overtaken");
                    End::Conflict
                }
                Err(problem) if problem.is_transient => {
                    self.metrics.wrote(kind, "failed");
                    End::Failed
                }
                Err(_) => End::Settled,
            };
            let pause = pace.after(end, Instant::now());
            if end != End::Failed {
                // A failed reconciliation may have ended before it reached all dependencies.
                dependencies.retain(|dependency, _| found.contains(dependency));
            }
            // A new dependency may have changed between its read and the start of its watch.
            let has_new = found.iter().any(|dependency| !dependencies.contains_key(dependency));
            for dependency in found {
                dependencies.entry(dependency).or_insert_with_key(|it| self.watches.subscribe(it));
            }
            match outcome {
                Ok(Outcome::NotRequested) => drop(refusal.replace(None)),
                Ok(outcome) => {
                    if refusal.replace(None) {
                        info!(object, "CA can be injected again");
                    }
                    if let Outcome::Written { before, .. } = outcome
                        && pause.contention_begins
                    {
                        warn!(
                            object,
                            "another client keeps changing the injected bundle; restoring it once a minute"
                        );
                        timeout(TIMEOUT, target.report_contention(&before)).await.ok();
                    }
                }
                Err(problem) => {
                    if refusal.replace(Some(problem.to_string())) {
                        warn!(object, %problem, "CA not injected");
                        timeout(TIMEOUT, self.publish(&target, uid.clone(), &problem)).await.ok();
                    }
                }
            }

            sleep(pause.length).await;
            if !pause.retry && !has_new {
                let receivers = [&mut changed, &mut resync].into_iter().chain(dependencies.values_mut());
                select_all(receivers.map(|receiver| next_change(receiver).boxed())).await;
            }
        }
    }

    /// Updates the bundle of an object. Adds everything that the result depends on to `dependencies`, also on
    /// error.
    async fn reconcile(
        &self,
        kind: Kind,
        target: &ObjectTarget,
        uid: &mut Option<String>,
        dependencies: &mut BTreeSet<Dependency>,
    ) -> Result<Outcome, Problem> {
        let found = target.get().await?;
        let Some(found) = found.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
            return Ok(Outcome::NotRequested);
        };
        *uid = found.uid();
        // Annotations and slots are from one reading, and the write is conditional on it: removing the
        // annotation meanwhile causes a conflict.
        let Some(reference) = CaReference::of(kind, found.annotations())? else {
            return Ok(Outcome::NotRequested);
        };
        if reference == CaReference::OpenShift && self.authorities.openshift.is_none() {
            return Ok(Outcome::NotRequested);
        }
        let before = target.reading(&found)?;
        let Some(version) = before.version() else { return Ok(Outcome::UpToDate) };
        let now = SystemTime::now();
        let bundle = self.authorities.find(&reference, now, dependencies).await?;
        let wanted: Vec<Slot> = before.slots.iter().map(|slot| merged(slot, &bundle, now)).collect();
        if before.slots == wanted {
            return Ok(Outcome::UpToDate);
        }
        match target.apply(&wanted, version).await {
            Ok(_) => Ok(Outcome::Written { reference, bundle, before }),
            Err(TargetError::Changed { .. }) => Ok(Outcome::Conflict),
            Err(error) => Err(error.into()),
        }
    }

    async fn publish(&self, target: &ObjectTarget, uid: Option<String>, problem: &Problem) {
        if problem.is_actionable {
            let (object, note) = (target.reference(uid), problem.to_string());
            events::publish(&self.recorder(), EventType::Warning, problem.reason, "Inject", note, &object)
                .await;
        }
    }

    fn recorder(&self) -> Recorder {
        Recorder::new(self.client.clone(), self.reporter.clone())
    }

    async fn resync_regularly(&self) {
        let mut last = SystemTime::now();
        loop {
            sleep(TICK).await;
            let now = SystemTime::now();
            // If the clock was set back, the elapsed time is unknown.
            if now.duration_since(last).is_ok_and(|age| age < RESYNC) {
                continue;
            }
            last = now;
            self.resync.send_replace(());
        }
    }

    async fn pause_beside_others(&self, mut detector: ConflictDetector) {
        loop {
            sleep(conflict::CHECK).await;
            let Ok(found) = detector.detect().await else { continue };
            let pauses = !found.is_empty();
            if self.paused.send_replace(pauses) == pauses {
                continue;
            }
            self.metrics.paused(pauses);
            if pauses {
                let found = conflict::list(&found);
                error!(found, "writes are paused while a conflicting injector runs");
            } else {
                info!("the conflicting injector is gone: writes continue");
                self.resync.send_replace(());
            }
            self.update_readiness();
        }
    }

    fn update_readiness(&self) {
        let is_ready = self.unlisted.load(Ordering::Relaxed) == 0 && !*self.paused.borrow();
        if !self.ready.send_replace(is_ready) && is_ready {
            info!("watching all kinds of annotated objects");
        }
    }
}

/// The reported problem of an object, counted until it is resolved or the object is no longer followed.
struct Refusal<'a> {
    metrics: &'a InjectorMetrics,
    kind: Kind,
    problem: Option<String>,
}

impl Refusal<'_> {
    fn replace(&mut self, problem: Option<String>) -> bool {
        let change = i64::from(problem.is_some()) - i64::from(self.problem.is_some());
        self.metrics.refused(self.kind, change);
        let differs = self.problem != problem;
        self.problem = problem;
        differs
    }
}

impl Drop for Refusal<'_> {
    fn drop(&mut self) {
        self.replace(None);
    }
}

async fn next_change(receiver: &mut Receiver<()>) {
    if receiver.changed().await.is_err() {
        pending().await
    }
}

/// Merges `wanted` with the unexpired certificates of a slot. Drops certificates that do not parse.
fn merged(slot: &Slot, wanted: &TrustBundle, now: SystemTime) -> Slot {
    let held = slot.bundle().and_then(|held| held.without_expired(now));
    let bundle = held.map_or_else(|| wanted.clone(), |held| held.merge(wanted));
    Slot::new(slot.name.clone(), bundle.to_pem())
}
