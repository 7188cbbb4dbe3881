//! Comparison of a pod with the chain that it would get now, by the webhook's planner.

use std::collections::BTreeSet;

use jiff::Timestamp;
use lucid_admission::NamespaceView;
use lucid_chain::{ContainerView, Decision, Inputs, Plan, PodView, Warning, keys, plan};
use lucid_notary::ImageReference;
use serde_json::{Value, json};

use crate::pod::StoredPod;
use crate::state::State;

/// Maximum length of a reason, in bytes. Authors of pods choose parts of it.
const LONGEST_REASON: usize = 1_024;
/// Maximum number of images of a pod.
const MOST_IMAGES: usize = 16;

/// State of a pod without regard to verdicts and time: it changes with the pod and the configuration only.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub(crate) state: State,
    pub(crate) reason: String,
    /// Images of the auditors that run, with their digests.
    pub(crate) images: Vec<ImageReference>,
    /// Change that makes the running pod as planned, if only images differ.
    pub(crate) update: Option<Box<Update>>,
    /// Images of the planned auditors.
    pub(crate) planned: Vec<String>,
    pub(crate) readiness: Readiness,
}

/// Change of the auditors' images in a running pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    /// `initContainers` or `containers`.
    pub(crate) list: &'static str,
    /// Images by container.
    pub(crate) images: Vec<(String, String)>,
    /// The status annotation that belongs to them.
    pub(crate) status: Option<String>,
}

/// Readiness of the planned auditors.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Readiness {
    /// Each of them is ready and runs the image of the pod's spec.
    pub(crate) is_ready: bool,
    /// The kubelet has begun to start them.
    pub(crate) is_tried: bool,
    /// The first that is not ready, and since when. `None` while the kubelet has not reported on it.
    pub(crate) unready: Option<(Timestamp, String)>,
}

impl Comparison {
    /// Plans `pod` of `namespace` as the webhook does, and compares. Returns `None` if the pod requests no chain or is
    /// not live.
    #[must_use]
    pub fn new(pod: &StoredPod, namespace: &str, view: &NamespaceView) -> Option<Self> {
        if !pod.is_live() {
            return None;
        }
        let of = |state, mut reason: String| {
            reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
            let (images, planned) = (Vec::new(), Vec::new());
            Self { state, reason, images, update: None, planned, readiness: Readiness::default() }
        };
        let spec = match PodView::from_json(pod.json()) {
            Ok(spec) => spec,
            Err(error) => return Some(of(State::Unknown, error.to_string())),
        };
        let exempt = view.policy.exempt_images(namespace, &spec);
        let has_auditors = all(&spec).any(|found| found.env(keys::AUDITOR_ID_ENV).is_some());
        let inputs = Inputs {
            namespace: Some(namespace),
            exempt_images: Some(&exempt),
            // Labels of a running pod can be removed, containers cannot.
            forced: has_auditors,
            ..view.inputs()
        };
        let outcome = plan(&spec, &inputs);
        let plan = match outcome.decision {
            Decision::NotRequested => {
                let misread = outcome.warnings.iter().find(|warning| {
                    matches!(warning, Warning::InvalidSecuredLabel { .. } | Warning::TriggerMissing)
                });
                return misread.map(|warning| of(State::Ignored, warning.to_string()));
            }
            Decision::Skipped { reason } => return Some(of(State::Skipped, reason.to_string())),
            _ if view.invalid_chain.is_some() => {
                return Some(of(State::Unknown, view.invalid_chain.clone().unwrap_or_default()));
            }
            Decision::Impossible { reason } => return Some(of(State::Missing, reason.to_string())),
            Decision::Planned(plan) => plan,
        };
        let planned = plan.containers.iter().map(|planned| planned.auditor.image().to_owned()).collect();
        if !has_auditors && !all(&spec).any(|found| is_planned(&plan, found)) {
            return Some(Self { planned, ..of(State::Missing, why_missing(pod).to_owned()) });
        }
        let (state, reason) = compare(&plan, &spec, pod);
        let readiness = Readiness::of(&plan, &spec, pod);
        let update =
            if state == State::Stale { Update::new(&plan, pod, &inputs).map(Box::new) } else { None };
        Some(Self {
            images: images(&plan, &spec, pod, &exempt),
            update,
            planned,
            readiness,
            ..of(state, reason)
        })
    }

    /// Returns the images of the pod's auditors with their digests, at most 16.
    #[must_use]
    pub fn images(&self) -> &[ImageReference] {
        &self.images
    }

    /// Returns `true` if the pod has the planned chain.
    pub(crate) const fn is_current(&self) -> bool {
        self.state.is_current()
    }
}

fn all<'p, 'a>(pod: &'p PodView<'a>) -> impl Iterator<Item = &'p ContainerView<'a>> {
    pod.containers().iter().chain(pod.init_containers())
}

fn is_planned(plan: &Plan, found: &ContainerView<'_>) -> bool {
    plan.containers.iter().any(|planned| planned.name == found.name())
}

/// Returns a certain reason for a missing chain, or an empty text.
fn why_missing(pod: &StoredPod) -> &'static str {
    if pod.annotation("kubernetes.io/config.mirror").is_some() {
        return "a static pod: the kubelet runs it regardless of webhooks";
    }
    ""
}

/// Images of the auditors, with the digest of the spec, or else the one that the kubelet reports. Without images that need
/// not be notarized.
fn images(
    plan: &Plan,
    spec: &PodView<'_>,
    pod: &StoredPod,
    exempt: &BTreeSet<String>,
) -> Vec<ImageReference> {
    let auditors = all(spec).filter(|found| {
        let is_exempt = found.image().is_some_and(|image| exempt.contains(image));
        // Others could be any number of made-up digests.
        let is_auditor = is_planned(plan, found) || plan.leftovers.iter().any(|name| name == found.name());
        is_auditor && !is_exempt
    });
    let images = auditors.filter_map(|found| {
        let image: ImageReference = found.image()?.parse().ok()?;
        if image.digest().is_some() {
            return Some(image);
        }
        let (_, digest) = pod.status.container(found.name())?.image_id.rsplit_once('@')?;
        format!("{image}@{digest}").parse().ok()
    });
    images.take(MOST_IMAGES).collect()
}

impl Readiness {
    fn of(plan: &Plan, spec: &PodView<'_>, pod: &StoredPod) -> Self {
        let (mut is_ready, mut unready) = (true, None);
        for planned in &plan.containers {
            let Some(status) = pod.status.container(&planned.name) else { return Self::default() };
            let image = all(spec).find(|found| found.name() == planned.name).and_then(ContainerView::image);
            let waiting = status.state.waiting.as_ref().map(|waiting| waiting.reason.as_str());
            if waiting == Some("PodInitializing") {
                return Self::default();
            }
            is_ready &= status.ready && image.is_none_or(|image| is_of(status, image));
            if unready.is_none() && !status.ready {
                unready = Some(format!("{}: {}", planned.name, waiting.unwrap_or("it is not ready")));
            }
        }
        let since = match pod.status.condition("ContainersReady") {
            Some(ready) if ready.status == "True" => None,
            found => found.and_then(|it| it.last_transition_time).or(pod.created()),
        };
        Self { is_ready, is_tried: true, unready: since.zip(unready) }
    }
}

/// Returns `true` if a container runs the image of its spec. After a change of the image, the kubelet reports the former
/// one until the container is restarted.
fn is_of(status: &crate::pod::ContainerStatus, image: &str) -> bool {
    match image.rsplit_once('@') {
        Some((_, digest)) if status.image_id.contains('@') => status.image_id.ends_with(digest),
        _ => {
            let same = |reported: &ImageReference| {
                image.parse().is_ok_and(|image: ImageReference| image == *reported)
            };
            status.image.is_empty() || status.image.parse().is_ok_and(|reported| same(&reported))
        }
    }
}

impl Update {
    /// Returns the update of images after which the pod is as planned; `None` if more differs.
    fn new(plan: &Plan, pod: &StoredPod, inputs: &Inputs<'_>) -> Option<Self> {
        let list = if plan.is_native() { "initContainers" } else { "containers" };
        let mut updated: Value = serde_json::from_str(pod.json()).ok()?;
        let mut images = Vec::new();
        for planned in &plan.containers {
            let image = planned.auditor.image();
            let mut containers = updated["spec"][list].as_array_mut()?.iter_mut();
            let container = containers.find(|found| found["name"] == planned.name.as_str())?;
            if container["image"] != image {
                container["image"] = json!(image);
                images.push((planned.name.clone(), image.to_owned()));
            }
        }
        if images.is_empty() {
            return None;
        }
        let updated: StoredPod = serde_json::from_value(updated).ok()?;
        let spec = PodView::from_json(updated.json()).ok()?;
        let Decision::Planned(plan) = lucid_chain::plan(&spec, inputs).decision else { return None };
        let (state, _) = compare(&plan, &spec, &updated);
        state.is_current().then(|| Self { list, images, status: status(&plan, &spec) })
    }
}

/// Returns the status annotation that injection would write.
fn status(plan: &Plan, spec: &PodView<'_>) -> Option<String> {
    let patch = serde_json::from_str::<Vec<Value>>(&plan.patch(spec).text).ok()?;
    let path = format!("/metadata/annotations/{}", keys::STATUS.replace('/', "~1"));
    let operation = patch.into_iter().find(|operation| operation["path"] == path.as_str())?;
    operation["value"].as_str().map(str::to_owned)
}

/// Injection as recorded in the status annotation. The annotation can be forged, so it only refines the reason.
struct Injected {
    chain: Vec<String>,
    images: Vec<String>,
}

impl Injected {
    fn of(pod: &StoredPod) -> Option<Self> {
        let status: Value = serde_json::from_str(pod.annotation(keys::STATUS)?).ok()?;
        let texts = |key: &str| {
            let items = status[key].as_array()?.iter();
            Some(items.filter_map(|item| item.as_str().map(str::to_owned)).collect::<Vec<_>>())
        };
        Some(Self { chain: texts("chain")?, images: texts("images")? })
    }

    fn image(&self, container: &str) -> Option<&str> {
        let place = self.chain.iter().position(|name| name == container)?;
        self.images.get(place).map(String::as_str)
    }
}

fn compare(plan: &Plan, spec: &PodView<'_>, pod: &StoredPod) -> (State, String) {
    let injected = Injected::of(pod);
    let was_injected = |name: &str| injected.as_ref().is_some_and(|it| it.chain.iter().any(|it| it == name));
    let (mut stale, mut wrong) = (Vec::new(), Vec::new());
    let patch = plan.chain_patch(spec);
    for warning in &patch.warnings {
        match warning {
            Warning::ContainerReplaced { name, difference } => {
                let found = all(spec).find(|found| found.name() == name);
                let planned = plan.containers.iter().find(|planned| planned.name == *name);
                let image = found.and_then(ContainerView::image).unwrap_or_default();
                let recorded = injected.as_ref().and_then(|it| it.image(name));
                // Images change most often with a catalogue, and only the first difference is reported.
                let what = match planned.filter(|planned| planned.auditor.image() != image) {
                    Some(planned) => format!("image of {name} is {image}, now {}", planned.auditor.image()),
                    None => format!("{difference} of {name} differs"),
                };
                let is_auditor =
                    found.and_then(|found| found.env(keys::AUDITOR_ID_ENV)).as_deref() == Some(name.as_str());
                if planned.is_some() && !is_auditor {
                    wrong.push(format!("container {name} is not one of Lucid's"));
                } else if recorded.is_some_and(|recorded| recorded != image) {
                    wrong.push(format!("{what}; injected was {}", recorded.unwrap_or_default()));
                } else {
                    stale.push(what);
                }
            }
            Warning::ContainerReplanned { name, difference } => {
                stale.push(format!("{difference} of {name} differs"))
            }
            Warning::ContainerMoved { name } => {
                wrong.push(format!("init container {name} is in the wrong position"))
            }
            _ => {}
        }
    }
    let init = plan.init.as_ref().map(|init| init.name.as_str());
    for name in plan.containers.iter().map(|planned| planned.name.as_str()).chain(init) {
        let list =
            if plan.is_native() || Some(name) == init { spec.init_containers() } else { spec.containers() };
        if list.iter().all(|found| found.name() != name) {
            if all(spec).any(|found| found.name() == name) {
                let kind = if plan.is_native() { "native" } else { "containers" };
                stale.push(format!("{name} is now a different kind of container ({kind})"));
            } else if was_injected(name) {
                wrong.push(format!("{name} is missing"));
            } else {
                stale.push(format!("{name} is missing, a new part of the chain"));
            }
        }
    }
    stale.extend(plan.leftovers.iter().map(|name| format!("{name} is no longer part of the chain")));
    if stale.is_empty() && wrong.is_empty() {
        let operations = patch.operations();
        let concerns = |path: &&str| !path.starts_with("/metadata");
        let operation = operations.iter().map(|operation| operation.path().as_str()).find(concerns);
        stale.extend(operation.map(|path| format!("{path} differs")));
    }
    match (wrong.is_empty(), stale.is_empty()) {
        (false, _) => (State::Altered, wrong.join("; ")),
        (true, false) => (State::Stale, stale.join("; ")),
        (true, true) => match plan.assumed_port() {
            Some(warning) => (State::AssumedPort, warning.to_string()),
            None => (State::Audited, String::new()),
        },
    }
}
