//! The control loop of the injector.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use kube::{
    Client,
    runtime::events::{EventType, Recorder, Reporter},
};
use tokio::{
    sync::{mpsc, watch as channel},
    task::{AbortHandle, JoinSet},
    time::{MissedTickBehavior, interval, sleep_until, timeout},
};
use tracing::{debug, error, info, warn};

use super::{
    Injector, InjectorError, InjectorMetrics,
    authority::Dependency,
    conflict::{self, ConflictDetector, ConflictingInjector},
    object::{Kind, Object},
    problem::{Problem, TimedOutSnafu},
    queue::{End, Queue},
    reconcile::{Outcome, Reconciler, Reconciliation},
    watch::{self, Signal},
};
use crate::{chain, events, target::TrustTarget};

const MAX_RUNNING: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Resync interval. Required because certificates expire without an event.
const RESYNC: Duration = Duration::from_secs(600);
/// Interval at which the resync is checked by the wall clock: the monotonic clock stops while a machine is
/// suspended.
const TICK: Duration = Duration::from_secs(15);
const SIGNALS: usize = 256;

/// Waits until no conflicting injector runs, then injects forever.
pub(super) async fn run(injector: Injector) -> Result<(), InjectorError> {
    let Injector { client, reporter, authorities, cert_manager, beside_cert_manager, metrics, ready } =
        injector;
    let openshift = authorities.knows_openshift();
    let cert_manager = if beside_cert_manager { BTreeSet::new() } else { cert_manager };
    let mut detector = ConflictDetector::new(client.clone(), cert_manager, openshift);
    detector.wait_for_none().await?;

    let (signals, mut received) = mpsc::channel(SIGNALS);
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::ConfigMap || openshift);
    let recorder = Recorder::new(client.clone(), reporter.clone());
    let mut run = Run {
        reconciler: Arc::new(Reconciler { client: client.clone(), recorder, authorities }),
        reporter,
        queue: Queue::new(),
        known: BTreeMap::new(),
        running: FuturesUnordered::new(),
        unlisted: kinds.collect(),
        watches: BTreeMap::new(),
        tasks: JoinSet::new(),
        is_paused: false,
        resynced: SystemTime::now(),
        client,
        metrics,
        ready,
        signals,
    };
    for kind in &run.unlisted {
        run.tasks.spawn(watch::objects(run.client.clone(), *kind, run.signals.clone()));
    }
    let (sender, mut injectors) = channel::channel(Vec::new());
    run.tasks.spawn(detector.publish_changes(sender));
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        run.start_due();
        let due = until(run.next_due());
        tokio::select! {
            Some(signal) = received.recv() => run.handle(signal),
            Some((object, result)) = run.running.next() => run.finish(&object, result),
            () = due => {}
            _ = tick.tick() => run.tick(),
            Ok(()) = injectors.changed() => run.pause(&injectors.borrow_and_update()),
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => pending().await,
    }
}

struct Run {
    client: Client,
    reporter: Reporter,
    reconciler: Arc<Reconciler>,
    metrics: InjectorMetrics,
    ready: channel::Sender<bool>,
    queue: Queue<Object>,
    /// Objects with an annotation.
    known: BTreeMap<Object, Known>,
    running: FuturesUnordered<BoxFuture<'static, (Object, Reconciliation)>>,
    /// Kinds that are not completely listed yet.
    unlisted: BTreeSet<Kind>,
    watches: BTreeMap<Dependency, AbortHandle>,
    tasks: JoinSet<()>,
    signals: mpsc::Sender<Signal>,
    is_paused: bool,
    resynced: SystemTime,
}

#[derive(Debug, Default)]
struct Known {
    uid: Option<String>,
    dependencies: BTreeSet<Dependency>,
    problem: Option<String>,
}

impl Run {
    fn handle(&mut self, signal: Signal) {
        let now = Instant::now();
        match signal {
            Signal::Seen { object, is_annotated: true } => {
                self.known.entry(object.clone()).or_default();
                self.queue.request(&object, now);
            }
            Signal::Seen { object, is_annotated: false } | Signal::Gone(object) => self.forget(&object),
            Signal::Listed(kind) => {
                // Objects missing from the list are detected as deleted by their reconciliation.
                for object in self.known.keys().filter(|object| object.kind == kind) {
                    self.queue.request(object, now);
                }
                self.unlisted.remove(&kind);
                self.update_readiness();
            }
            Signal::Changed(dependency) => {
                let dependents =
                    self.known.iter().filter(|(_, known)| known.dependencies.contains(&dependency));
                dependents.for_each(|(object, _)| self.queue.request(object, now));
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let has_room = !self.is_paused && self.running.len() < MAX_RUNNING;
        self.queue.next_due().filter(|_| has_room)
    }

    fn start_due(&mut self) {
        while !self.is_paused && self.running.len() < MAX_RUNNING {
            let Some(object) = self.queue.take(Instant::now()) else { return };
            let reconciler = Arc::clone(&self.reconciler);
            self.running.push(Box::pin(async move {
                let result = timeout(TIMEOUT, reconciler.reconcile(&object)).await;
                let timed_out = |_| Reconciliation {
                    dependencies: BTreeSet::new(),
                    uid: None,
                    outcome: TimedOutSnafu { seconds: TIMEOUT.as_secs() }.fail(),
                };
                let result = result.unwrap_or_else(timed_out);
                (object, result)
            }));
        }
    }

    fn finish(&mut self, object: &Object, result: Reconciliation) {
        let Reconciliation { dependencies, uid, outcome } = result;
        let end = match &outcome {
            Ok(Outcome::NotRequested | Outcome::UpToDate) => End::Settled,
            Ok(Outcome::Written { reference, bundle, .. }) => {
                let bundle: Vec<_> =
                    bundle.fingerprints().map(|fingerprint| fingerprint.to_string()).collect();
                info!(%object, from = %reference, ?bundle, "CA injected");
                self.metrics.wrote(object.kind, "written");
                End::Written
            }
            Ok(Outcome::Conflict) => {
                debug!(%object, "another client changed the object concurrently");
                self.metrics.wrote(object.kind, "overtaken");
                End::Conflict
            }
            Err(problem) if problem.is_transient() => {
                self.metrics.wrote(object.kind, "failed");
                End::Failed
            }
            Err(_) => End::Settled,
        };
        let now = Instant::now();
        let contention_begins = self.queue.done(object, end, now);
        // The annotation may have been added again since the reconciliation began.
        if matches!(outcome, Ok(Outcome::NotRequested)) && !self.queue.is_requested(object) {
            return self.forget(object);
        }
        let Some(known) = self.known.get_mut(object) else { return };
        known.uid = uid.or(known.uid.take());
        let before = known.dependencies.clone();
        if end == End::Failed {
            // The reconciliation may have ended before it reached all dependencies.
            known.dependencies.extend(dependencies);
        } else {
            known.dependencies = dependencies;
        }
        if known.dependencies != before {
            self.watch_dependencies();
            // A new dependency may have changed between its read and the start of its watch.
            self.queue.request(object, now);
        }
        match outcome {
            Ok(Outcome::Written { target, before, .. }) if contention_begins => {
                warn!(%object, "another client keeps changing the injected bundle; restoring it once a minute");
                self.tasks.spawn(async move { target.report_contention(&before).await });
                self.report(object, None);
            }
            outcome => self.report(object, outcome.err()),
        }
    }

    fn forget(&mut self, object: &Object) {
        self.queue.forget(object);
        if let Some(known) = self.known.remove(object) {
            self.metrics.refused(object.kind, -i64::from(known.problem.is_some()));
            self.watch_dependencies();
        }
    }

    /// Watches exactly the current dependencies.
    fn watch_dependencies(&mut self) {
        let wanted: BTreeSet<&Dependency> =
            self.known.values().flat_map(|known| &known.dependencies).collect();
        self.watches.retain(|dependency, watch| {
            let is_wanted = wanted.contains(dependency);
            if !is_wanted {
                watch.abort();
            }
            is_wanted
        });
        for dependency in wanted {
            if !self.watches.contains_key(dependency) {
                let watch = watch::dependency(self.client.clone(), dependency.clone(), self.signals.clone());
                self.watches.insert(dependency.clone(), self.tasks.spawn(watch));
            }
        }
    }

    /// Reports the problem of an object, or its resolution, once.
    fn report(&mut self, object: &Object, problem: Option<Problem>) {
        let Some(known) = self.known.get_mut(object) else { return };
        let text = problem.as_ref().map(|problem| chain(problem));
        if known.problem == text {
            return;
        }
        let change = i64::from(text.is_some()) - i64::from(known.problem.is_some());
        known.problem = text;
        self.metrics.refused(object.kind, change);
        match problem {
            Some(problem) => self.publish(object, &problem),
            None => info!(%object, "CA can be injected again"),
        }
    }

    fn publish(&mut self, object: &Object, problem: &Problem) {
        let note = chain(problem);
        warn!(%object, problem = note, "CA not injected");
        if !problem.is_actionable() {
            return;
        }
        let reason = problem.reason();
        let uid = self.known.get(object).and_then(|known| known.uid.clone());
        let reference = object.reference(uid);
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        self.tasks.spawn(async move {
            events::publish(&recorder, EventType::Warning, reason, "Inject", note, &reference).await;
        });
    }

    fn tick(&mut self) {
        // Reap finished tasks; watches never finish by themselves.
        while self.tasks.try_join_next().is_some() {}
        let now = SystemTime::now();
        // If the clock was set back, the elapsed time is unknown.
        if now.duration_since(self.resynced).is_ok_and(|age| age < RESYNC) {
            return;
        }
        self.resynced = now;
        self.queue.request_all();
    }

    fn pause(&mut self, injectors: &[ConflictingInjector]) {
        self.is_paused = !injectors.is_empty();
        self.metrics.paused(self.is_paused);
        if self.is_paused {
            error!(found = conflict::list(injectors), "writes are paused while a conflicting injector runs");
        } else {
            info!("the conflicting injector is gone: writes continue");
            self.queue.request_all();
        }
        self.update_readiness();
    }

    fn update_readiness(&self) {
        let is_ready = self.unlisted.is_empty() && !self.is_paused;
        if !self.ready.send_replace(is_ready) && is_ready {
            info!("watching all kinds of annotated objects");
        }
    }
}
