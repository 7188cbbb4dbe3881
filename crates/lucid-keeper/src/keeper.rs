//! The controller: one replica watches, reports and acts.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::events::Reporter;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use kube_lease_manager::{LeaseCreateMode, LeaseManagerBuilder};
use lucid_admission::{ClusterConfiguration, KeeperAction, Owners, Scope};
use lucid_audit::Recorder;
use lucid_notary::NotaryVerdict;
use lucid_notary::client::Notary;
use lucid_text::with_causes;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{Instant, MissedTickBehavior, sleep};

use crate::act::{Done, perform};
use crate::announce::{Announcement, Announcer, QUEUE, What};
use crate::compare::Comparison;
use crate::fleet::{Change, Fleet, RunningPod, Subject};
use crate::metrics::Metrics;
use crate::overview::overview;
use crate::plan::Planned;
use crate::pod::StoredPod;
use crate::reports::{Finding, Reports};
use crate::state::{State, Verdicts};
use crate::steps::{Next, Step, next_steps};
use crate::tried::Tried;

/// Name of the Lease, in Lucid's namespace.
pub const LEASE: &str = "lucid-keeper";
/// Interval at which verdicts and time are applied to the states.
const TICK: Duration = Duration::from_secs(2);
/// Minimum interval between two lists of all pods: each change of the configuration causes one.
const LIST_PACE: Duration = Duration::from_secs(10);
/// Minimum interval between two reports of a namespace.
const REPORT_PACE: Duration = Duration::from_secs(10);
/// Number of pods in a page of a list. Memory holds a page as text and as pods.
const PAGE: u32 = 25;
/// Interval at which the verdict on each running image is requested again.
const RECHECK: Duration = Duration::from_secs(20);
/// Maximum number of images in one request to the Verifier, its timeout, and the pause after it.
const BATCH: usize = 64;
const BATCH_PATIENCE: Duration = Duration::from_secs(10);
const BATCH_PAUSE: Duration = Duration::from_millis(500);
/// Pause after a fault of the election.
const PAUSE: Duration = Duration::from_secs(5);
/// Minimum interval between two steps.
const LEAST_PACE: Duration = Duration::from_millis(100);
/// Time within which the watch delivers the effect of a step.
const EFFECT: Duration = Duration::from_secs(30);

/// The running pods that request a chain, as the leader sees them. Clones share their content.
#[derive(Clone, Debug, Default)]
pub struct RunningPods(Arc<Mutex<Fleet>>);

impl RunningPods {
    fn lock(&self) -> MutexGuard<'_, Fleet> {
        // The guarded value is consistent even if its writer panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of pods by namespace and state.
    pub(crate) fn counts(&self) -> BTreeMap<(String, State), i64> {
        let mut counts = BTreeMap::new();
        for pod in self.lock().pods() {
            *counts.entry((pod.namespace.clone(), pod.state)).or_default() += 1;
        }
        counts
    }

    /// Returns the content of `/audit/pods`: the number of pods by state, and pods, those with problems first.
    #[must_use]
    pub fn overview(&self) -> Value {
        overview(&self.lock())
    }
}

/// Watches running pods on one of all replicas, reports changes of their states, and acts where namespaces ask for it.
pub struct Keeper {
    client: Client,
    prompt: Client,
    cluster: ClusterConfiguration,
    namespace: String,
    scope: Scope,
    reporter: Reporter,
    owners: Arc<Owners>,
    recorder: Option<Arc<Recorder>>,
    notary: Option<Notary>,
    metrics: Metrics,
    actions: Vec<KeeperAction>,
    pods: RunningPods,
    verdicts: Mutex<Verdicts>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Keeper {
    /// Creates a keeper of the pods in the cluster of `client`, whose Lease is in `namespace`, in which Lucid runs.
    /// `replica` names this process in the Lease and in events, such as the name of its pod; `None` for a random name.
    #[must_use]
    pub fn new(
        client: Client,
        cluster: ClusterConfiguration,
        namespace: &str,
        replica: Option<String>,
    ) -> Self {
        Self {
            owners: Arc::new(Owners::new(client.clone())),
            prompt: client.clone(),
            client,
            cluster,
            namespace: namespace.to_owned(),
            scope: Scope::new(namespace),
            reporter: Reporter { controller: LEASE.to_owned(), instance: replica },
            recorder: None,
            notary: None,
            metrics: Metrics::default(),
            actions: Vec::new(),
            pods: RunningPods::default(),
            verdicts: Mutex::default(),
        }
    }

    /// Uses a client with a short timeout and without retries for the Lease and for evictions. With retries, a leader may
    /// not notice that its Lease has expired, and an eviction that a PodDisruptionBudget forbids takes minutes.
    #[must_use]
    pub fn with_prompt_client(self, prompt: Client) -> Self {
        Self { prompt, ..self }
    }

    /// Permits these actions. Without this, it only reports, whatever namespaces ask for.
    #[must_use]
    pub fn with_actions(self, actions: &[KeeperAction]) -> Self {
        Self { actions: actions.to_vec(), ..self }
    }

    /// Asks `notary` again about the images of running auditors. Without it, no pod is `Revoked`.
    #[must_use]
    pub fn with_notary(self, notary: Notary) -> Self {
        Self { notary: Some(notary), ..self }
    }

    /// Records changes of states and actions as decisions of `keeper`.
    #[must_use]
    pub fn with_recorder(self, recorder: Arc<Recorder>) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// Registers the metrics `running_pods` and `keeper_actions`.
    #[must_use]
    pub fn with_metrics(self, registry: &mut Registry) -> Self {
        self.metrics.register(registry, &self.pods);
        self
    }

    /// Returns the running pods, which change while the keeper runs.
    #[must_use]
    pub fn running_pods(&self) -> RunningPods {
        self.pods.clone()
    }

    /// Runs until `shutdown`, on the replica that holds the Lease. Faults are retried.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        loop {
            match AssertUnwindSafe(self.serve(&mut shutdown)).catch_unwind().await {
                Ok(None) => return,
                Ok(Some(error)) => tracing::warn!(error, "the keeper's Lease cannot be read or written"),
                Err(_) => tracing::error!("the keeper panicked; it starts again"),
            }
            *self.pods.lock() = Fleet::default();
            tokio::select! {
                () = &mut shutdown => return,
                () = sleep(PAUSE) => {}
            }
        }
    }

    /// Takes part in the election and keeps the pods while elected. Returns `None` at `shutdown`, and an error if the Lease
    /// cannot be read or written.
    async fn serve(&self, shutdown: &mut (impl Future<Output = ()> + Unpin)) -> Option<String> {
        // By server-side apply, which a permission for this name allows.
        let leases: Api<Lease> = Api::namespaced(self.prompt.clone(), &self.namespace);
        let lease = Patch::Apply(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE},
        }));
        if let Err(error) = leases.patch(LEASE, &PatchParams::apply(LEASE), &lease).await {
            return Some(with_causes(&error));
        }
        let builder = LeaseManagerBuilder::new(self.prompt.clone(), LEASE)
            .with_namespace(&self.namespace)
            .with_create_mode(LeaseCreateMode::UseExistent);
        let builder = match &self.reporter.instance {
            Some(instance) => builder.with_identity(instance),
            None => builder,
        };
        let manager = match builder.build().await {
            Ok(manager) => manager,
            Err(error) => return Some(with_causes(&error)),
        };
        let mut leads = false;
        let error = loop {
            tokio::select! {
                () = &mut *shutdown => {
                    manager.release().await.ok();
                    return None;
                }
                changed = manager.changed() => match changed {
                    Ok(now) => leads = now,
                    Err(error) => break error,
                },
                never = self.keep(), if leads => match never {},
            }
            tracing::info!(leads, "the keeper's Lease changed hands");
            *self.pods.lock() = Fleet::default();
        };
        Some(with_causes(&error))
    }

    /// Everything that the leader does.
    async fn keep(&self) -> Infallible {
        let (announcements, queue) = mpsc::channel(QUEUE);
        let announcer = Announcer {
            client: self.client.clone(),
            reporter: self.reporter.clone(),
            owners: Arc::clone(&self.owners),
            recorder: self.recorder.clone(),
            metrics: self.metrics.clone(),
        };
        let watching = self.watch(&announcements);
        tokio::join!(watching, self.ask(), announcer.run(queue), self.report(), self.act(&announcements)).0
    }

    /// Follows the pods. A change of the configuration lists them again: their specs, which are most of their size, are
    /// not kept.
    async fn watch(&self, announcements: &Sender<Announcement>) -> Infallible {
        // Without a plan, a pod would count as one that requests none.
        self.cluster.synced().await;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut events: Option<BoxStream<'_, watcher::Result<Event<StoredPod>>>> = None;
        let (mut configured, mut listed, mut is_listing) = (None, Instant::now(), false);
        let mut has_failed = false;
        loop {
            let event = async {
                match &mut events {
                    Some(events) => events.next().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                event = event => match event {
                    Some(Ok(event)) => {
                        has_failed = false;
                        is_listing &= !matches!(event, Event::InitDone);
                        self.apply(event).await;
                    }
                    Some(Err(error)) if !has_failed => {
                        has_failed = true;
                        tracing::warn!(error = with_causes(&error), "failed to watch pods");
                    }
                    Some(Err(_)) => {}
                    // The watch is endless.
                    None => events = None,
                },
                _ = ticks.tick() => {
                    let changes = Some(self.cluster.changes());
                    let is_due = configured.is_none() || listed.elapsed() >= LIST_PACE;
                    if changes != configured && is_due && !is_listing {
                        (configured, listed, is_listing) = (changes, Instant::now(), true);
                        let pods = Api::<StoredPod>::all(self.client.clone());
                        let listing = watcher(pods, watcher::Config::default().page_size(PAGE)).default_backoff();
                        events = Some(listing.boxed());
                    }
                    self.settle(announcements);
                }
            }
        }
    }

    async fn apply(&self, event: Event<StoredPod>) {
        match event {
            Event::Init => self.pods.lock().begin_list(),
            Event::InitDone => self.pods.lock().end_list(),
            Event::InitApply(pod) | Event::Apply(pod) => match self.evaluate(&pod).await {
                Some(pod) => self.pods.lock().set(pod),
                None => self.pods.lock().remove(&pod.namespace().unwrap_or_default(), &pod.name_any()),
            },
            Event::Delete(pod) => {
                self.pods.lock().remove(&pod.namespace().unwrap_or_default(), &pod.name_any());
            }
        }
    }

    /// Returns `None` for a pod without a request for a chain, or of a namespace that is not enabled.
    async fn evaluate(&self, pod: &StoredPod) -> Option<RunningPod> {
        let namespace = pod.namespace().filter(|namespace| self.scope.covers(namespace))?;
        let view = self.cluster.namespace(&namespace).await.ok().filter(|view| view.enabled)?;
        let comparison = Comparison::new(pod, &namespace, &view)?;
        Some(RunningPod::new(pod, comparison, &self.verdicts(), Timestamp::now()))
    }

    fn settle(&self, announcements: &Sender<Announcement>) {
        let time = Timestamp::now();
        let changes = self.pods.lock().settle(&self.verdicts(), time);
        for Change { subject, before, state, reason } in changes {
            let note = if reason.is_empty() { "it has the planned chain".to_owned() } else { reason };
            let what = if before.is_some() { What::Changed(state) } else { What::Found(state) };
            if announcements.try_send(Announcement { subject, what, note, time }).is_err() {
                self.metrics.count("announce", "failed");
            }
        }
    }

    fn verdicts(&self) -> MutexGuard<'_, Verdicts> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests the verdict on each running image again and again, at a bounded rate.
    async fn ask(&self) -> Infallible {
        loop {
            self.ask_once().await;
            sleep(RECHECK).await;
        }
    }

    async fn ask_once(&self) {
        let Some(notary) = &self.notary else { return };
        let images: Vec<_> = self.pods.lock().images().into_iter().cloned().collect();
        self.verdicts().retain(|image, _| images.binary_search(image).is_ok());
        for batch in images.chunks(BATCH) {
            let deadline = std::time::Instant::now() + BATCH_PATIENCE;
            for (image, checked) in notary.recheck_all(batch.iter().cloned(), deadline).await {
                // A missing response changes nothing.
                if !matches!(checked.verdict, NotaryVerdict::Unknown { .. }) {
                    self.verdicts().insert(image, checked.verdict.is_notarized());
                }
            }
            sleep(BATCH_PAUSE).await;
        }
    }

    /// Writes the reports of the namespaces whose findings have changed.
    async fn report(&self) -> Infallible {
        let mut reports = Reports::new(self.client.clone());
        let mut has_failed = false;
        loop {
            sleep(REPORT_PACE).await;
            if !self.pods.lock().is_complete() {
                continue;
            }
            let written = self.write_reports(&mut reports).await;
            if let Some(error) = written.as_ref().err().filter(|_| !has_failed) {
                tracing::warn!(error = with_causes(error), "failed to write reports on running pods");
            }
            has_failed = written.is_err();
        }
    }

    async fn write_reports(&self, reports: &mut Reports) -> kube::Result<()> {
        let namespaces = self.pods.lock().namespaces();
        let mut written = reports.retain(|namespace| namespaces.contains(namespace)).await;
        for namespace in namespaces {
            let (mut findings, mut audited) = (Vec::new(), 0);
            for pod in self.pods.lock().of(&namespace) {
                match pod.state {
                    State::Audited => audited += 1,
                    _ => findings.push(Finding::of(pod)),
                }
            }
            // A namespace may refuse its report, by a quota or because it ends.
            written = written.and(reports.write(&namespace, &findings, audited).await);
        }
        written
    }

    /// Performs one step at a time, at the rate of `lucid-policy`. A new leader waits first, so that the rate holds while
    /// leaders change.
    async fn act(&self, announcements: &Sender<Announcement>) -> Infallible {
        let mut tried = Tried::default();
        // The last step's pod as it was then, until the watch delivers its effect.
        let mut last: Option<(RunningPod, Instant)> = None;
        loop {
            let rate = self.cluster.keeper().map_or(0, |settings| settings.rate);
            let Some(pace) = Duration::from_mins(1).checked_div(rate) else {
                sleep(TICK).await;
                continue;
            };
            sleep(pace.max(LEAST_PACE)).await;
            if last.as_ref().is_some_and(|(pod, at)| at.elapsed() < EFFECT && self.is_unchanged(pod)) {
                continue;
            }
            let Some((pod, step)) = self.next(|pod, step| tried.may_act(pod, step)).await else { continue };
            let action = step.action().as_str();
            let (namespace, name) = (pod.namespace.as_str(), pod.name.as_str());
            let outcome = perform(&self.client, &self.prompt, &self.owners, &pod, &step).await;
            tried.note(&pod, &step, &outcome);
            match outcome {
                Done::Yes(note) => {
                    tracing::info!(namespace, pod = name, action, note, "acted on a running pod");
                    self.metrics.count(action, "done");
                    let what = What::Acted(step.reason());
                    let told =
                        Announcement { subject: Subject::of(&pod), what, note, time: Timestamp::now() };
                    if let Some(recorder) = &self.recorder {
                        told.record(recorder).await;
                    }
                    announcements.try_send(told).ok();
                    if step != Step::Rollout {
                        last = Some((pod, Instant::now()));
                    }
                }
                Done::NotYet(reason) => {
                    tracing::info!(namespace, pod = name, action, reason, "an action on a running pod waits");
                    self.metrics.count(action, "waits");
                }
                Done::Failed(error) => {
                    tracing::warn!(namespace, pod = name, action, error, "an action on a running pod failed");
                    self.metrics.count(action, "failed");
                }
            }
        }
    }

    /// Returns the next step that is due and that `may_act` permits.
    async fn next(&self, may_act: impl Fn(&RunningPod, &Step) -> bool) -> Option<(RunningPod, Step)> {
        let wanted = self.wanted_actions().await;
        let fleet = self.pods.lock();
        if !fleet.is_complete() {
            return None;
        }
        let steps = next_steps(fleet.pods().map(|pod| (pod, self.permitted(&wanted, pod))), may_act);
        steps.into_iter().find_map(|(pod, next)| match next {
            Next::Act(step) => Some((pod.clone(), step)),
            Next::Wait(_) | Next::Never(_) => None,
        })
    }

    /// Returns the action that each namespace with pods asks for.
    async fn wanted_actions(&self) -> HashMap<String, KeeperAction> {
        let namespaces = self.pods.lock().namespaces();
        let mut actions = HashMap::new();
        for namespace in namespaces {
            if let Ok(view) = self.cluster.namespace(&namespace).await {
                actions.insert(namespace, view.keeper);
            }
        }
        actions
    }

    fn permitted(&self, wanted: &HashMap<String, KeeperAction>, pod: &RunningPod) -> KeeperAction {
        let wanted = wanted.get(&pod.namespace).copied().unwrap_or_default();
        if self.actions.contains(&wanted) { wanted } else { KeeperAction::Report }
    }

    /// Lists the running pods that need an action, with what this keeper would do and why. Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if pods cannot be listed.
    pub async fn plan(&self) -> kube::Result<Vec<Planned>> {
        let pods = Api::<StoredPod>::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        self.apply(Event::Init).await;
        loop {
            let page = pods.list(&params).await?;
            for pod in page.items {
                self.apply(Event::InitApply(pod)).await;
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => break,
            }
        }
        self.apply(Event::InitDone).await;
        self.ask_once().await;
        self.pods.lock().settle(&self.verdicts(), Timestamp::now());
        let wanted = self.wanted_actions().await;
        let fleet = self.pods.lock();
        let pods = fleet.pods().map(|pod| (pod, self.permitted(&wanted, pod)));
        let steps = next_steps(pods, |_, _| true);
        let planned = steps.into_iter().map(|(pod, next)| {
            let wanted = wanted.get(&pod.namespace).copied().unwrap_or_default();
            Planned::new(pod, next, wanted, self.actions.contains(&wanted))
        });
        Ok(planned.collect())
    }

    /// Returns `true` while the watch has delivered no change of a pod since `then`.
    fn is_unchanged(&self, then: &RunningPod) -> bool {
        let fleet = self.pods.lock();
        let now = fleet.get(&then.namespace, &then.name);
        now.is_some_and(|now| now.uid == then.uid && now.resource_version == then.resource_version)
    }
}
