//! Plans an ordered chain of auditor sidecars for a Kubernetes pod and writes it as a JSON patch.
//!
//! An *auditor* is a container that inspects the requests and answers of an AI model. Auditors of
//! a pod form a *chain*: each forwards to the next on localhost, the last one to the model. This
//! crate decides which chain a pod gets and what must change in the pod for that. It does no I/O,
//! reads no clock and no environment, so a webhook, an offline command and a check of a live
//! cluster come to the same answer.
//!
//! # From a pod to a patch
//!
//! ```
//! use lucid_chain::{Catalogue, Configuration, Decision, Inputs, PodView, plan};
//!
//! let pod = r#"{
//!     "metadata": {
//!         "labels": {"lucid.io/secured": "true"},
//!         "annotations": {"lucid.computing/auditor-chain": "injection, toxicity"}
//!     },
//!     "spec": {"containers": [
//!         {"name": "model", "image": "registry.example/model:1", "ports": [{"name": "http", "containerPort": 5000}]}
//!     ]}
//! }"#;
//!
//! // The operator's part: the auditors of the cluster and its own settings.
//! let configuration = Configuration::new(Catalogue::builtin(), None)?;
//!
//! let view = PodView::from_json(pod)?;
//! let outcome = plan(&view, &Inputs::new(&configuration));
//! assert!(outcome.warnings.is_empty());
//! let Decision::Planned(plan) = outcome.decision else { return Err("no chain".into()) };
//!
//! // The plan says what is injected, and why so.
//! let hops: Vec<_> = plan.containers.iter().map(|c| (c.port.get(), c.next_port.get())).collect();
//! assert_eq!(hops, [(8090, 8093), (8093, 5000)]);
//! assert_eq!(plan.source.to_string(), "annotation lucid.computing/auditor-chain");
//! assert_eq!(plan.model_port.source.to_string(), "port named http of container model");
//!
//! // Every setting says who made it.
//! assert_eq!(plan.containers[0].port_reason.explain(plan.containers[0].port), "port 8090 because its own port is free");
//! assert_eq!(plan.sidecar_mode.value.to_string(), "containers");
//! assert_eq!(plan.sidecar_mode.source.to_string(), "restartPolicy of the pod");
//! assert_eq!(plan.intercept.value.to_string(), "redirect");
//!
//! // The patch is what an AdmissionReview carries, before base64. It has warnings of its own, about what it found in
//! // the pod: tell the user these too.
//! let patch = plan.patch(&view);
//! assert!(patch.warnings().is_empty());
//! let text = serde_json::to_string(&patch)?;
//! assert!(text.contains(r#"{"op":"add","path":"/spec/containers/-","value":{"#));
//!
//! // A pod that already follows its plan needs no operation.
//! let mut injected: serde_json::Value = serde_json::from_str(pod)?;
//! json_patch::patch(&mut injected, &serde_json::from_str::<json_patch::Patch>(&text)?)?;
//! let injected = injected.to_string();
//! assert!(plan.patch(&PodView::from_json(&injected)?).is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who decides
//!
//! A pod asks for a chain by the label `lucid.io/secured: "true"` or by the presence of the
//! annotation `lucid.computing/auditors` ([`Trigger`]). The chain comes from the first of these
//! that has a valid one ([`ChainSource`]):
//!
//! 1. the pod annotation `lucid.computing/auditor-chain`,
//! 2. the pod annotation `lucid.computing/auditors`,
//! 3. the ConfigMap `lucid-auditor-chain` in the pod's namespace ([`NamespaceChain`]),
//! 4. the operator ([`Configuration`]),
//! 5. the built-in default ([`DEFAULT_CHAIN`]).
//!
//! For single settings the operator's [`Overrides`] win over the pod's annotations, these over the [`Defaults`] of an
//! `auditors.yaml`, and these over what is built in or follows from the pod and its namespace ([`SettingSource`]). An
//! annotation that cannot be understood, or that the namespace's [`PodChoices`] exclude, never blocks the pod: it counts as
//! absent and leaves a [`Warning`].
//!
//! Names of auditors are looked up in a [`Catalogue`]: the built-in one, a file `auditors.yaml`
//! over it, a namespace's own entries over both.
//!
//! # What a plan promises
//!
//! - Container names are unique in the pod, also for one auditor several times. A container that
//!   is there under a planned name is the auditor's: it stays if it is exactly the planned one
//!   ([`PlannedContainer::difference`]) and is replaced otherwise, with a warning.
//! - An auditor in the pod that is no part of the chain, such as a copied pod brings along, stays. It counts as no
//!   application, its ports are taken, and there is a warning.
//! - Ports are unique in the pod. An auditor keeps the port of its catalogue entry while no
//!   container, no auditor before it and not the model has it ([`PortReason`]).
//! - Every auditor runs without root, under a uid of its own ([`FIRST_UID`]), with no capability,
//!   a read-only root file system and the runtime's seccomp profile, which a catalogue can make tighter
//!   ([`SecurityContext`]): a pod that satisfies the Pod Security level `restricted` still does with its auditors, unless
//!   network rules are asked for.
//! - Auditors are plain containers in a pod that runs for ever, and native sidecars in one that comes to an end
//!   ([`SidecarMode`]): a Job completes. They are native too where the model is, for it starts before any plain container. The application starts when the native sidecars answer, or at once where they
//!   only observe.
//! - Traffic is redirected to the first auditor by an init container with the one capability NET_ADMIN
//!   ([`PlannedInit`], [`redirect`]), unless Pod Security admission refuses that capability in the namespace
//!   ([`PodSecurity`]) or somebody asks for environment variables alone ([`Intercept`]). A pod on the node's network is
//!   refused: the rules would be the node's.
//! - The pod's own init containers run before ours, with the network as they know it, such as for a download of a
//!   model. Native auditors follow, then the rules, so that the kubelet can ask each auditor whether it is up. No
//!   connection to the model is older than the rules: it starts after them, also as a native sidecar.
//! - The kubelet's probes of the model go through the chain like everything else; auditors are told the paths of HTTP
//!   probes in `LUCID_PROBE_PATHS`, so that they can let them pass.
//! - With network rules, the pod's own containers lose what leads past them: NET_RAW, and new privileges by setuid files
//!   ([`Plan::hardened`]). Changes of what the author wrote are reported, and [`uninject()`] takes them back.
//! - No auditor and no init container of ours sees the token of the pod's ServiceAccount, unless the cluster's catalogue says
//!   so ([`Auditor::service_account_token`]): an empty volume ([`keys::NO_TOKEN_VOLUME`]) is mounted in its place.
//! - Nothing else of the pod is touched. An application gets `AUDITOR_URL` when its outbound
//!   traffic is audited and it does not set that variable itself; if it does, it keeps its value and there is a warning.
//! - Planning again for the patched pod gives the same chain, also when another injector has added containers since.
//!   Auditors and the application's `AUDITOR_URL` move only where such a container takes a port of theirs.
//! - Planning depends only on its arguments. What a pod says about itself, the status annotation
//!   and container names included, is never taken as proof that it has its chain.
//!
//! A pod for which no such plan exists is [`Decision::Impossible`], with the reason ([`ImpossibleReason`]): the caller
//! should refuse it, for it asked for a chain that it would not have.
//!
//! # Layout
//!
//! [`PodView`] borrows what planning reads from the pod's JSON. [`plan()`] turns it and the
//! [`Inputs`] into an [`Outcome`], which may hold a [`Plan`]; [`Plan::patch`] gives the [`Patch`].
//! [`keys`] has the names users write; [`redirect`] has the network rules that make traffic take the chain.

mod annotations;
mod catalogue;
mod chain;
mod configuration;
pub mod keys;
mod mode;
mod namespace;
mod patch;
mod plan;
mod pod;
mod pod_security;
mod port;
mod privileges;
mod quantity;
pub mod redirect;
mod skip;
mod text;
mod trigger;
mod uninject;
mod volume;
mod warning;

pub use annotations::Annotations;
pub use catalogue::{
    Auditor, Catalogue, CatalogueError, DEFAULT_PORT, Defaults, Probe, Probes, Profile, RESERVED_ENV,
    Resources, SecurityContext, UnknownAuditor, nearest, stem as short_name,
};
pub use chain::{ChainError, ChainSource, MAX_CHAIN};
pub use configuration::{Configuration, ConfigurationError, DEFAULT_CHAIN, DEFAULT_INIT_IMAGE, Overrides};
pub use mode::{AuditMode, Direction, Intercept, ModeError, PodChoices, SidecarMode, requires_chain};
pub use namespace::{AuditorImages, NamespaceChain, NamespaceChainError};
pub use patch::{IDENTITY_ENV, IdentityForm, Operation, Patch, TOKEN_PATHS};
pub use plan::{
    DEFAULT_MODEL_PORT, DEFAULT_OUTBOUND_PORT, Decision, FIRST_UID, ImpossibleReason, Inputs, ModelPort,
    ModelPortSource, Outcome, Plan, PlannedContainer, PlannedInit, PortHolder, PortReason, Setting,
    SettingSource, plan,
};
pub use pod::{ContainerView, PodError, PodView, PortView};
pub use pod_security::PodSecurity;
pub use privileges::Privileges;
pub use skip::{SkipPolicy, SkipReason};
pub use trigger::Trigger;
pub use uninject::uninject;
pub use volume::MountView;
pub use warning::Warning;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
