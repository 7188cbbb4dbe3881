//! Plans an ordered chain of auditor sidecars for a Kubernetes pod and writes it as a JSON patch.
//!
//! An *auditor* is a container that inspects the requests and answers of an AI model. The auditors of
//! a pod form a *chain*: each forwards to the next on localhost, the last one to the model. This
//! crate decides which chain a pod gets and computes the changes to the pod. It does no I/O and
//! reads neither the clock nor the environment, so webhooks, offline commands and checks of live
//! clusters get the same result.
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
//! // Configuration of the cluster: the catalogue of auditors and the operator's settings.
//! let configuration = Configuration::new(Catalogue::builtin(), None)?;
//!
//! let view = PodView::from_json(pod)?;
//! let outcome = plan(&view, &Inputs::new(&configuration));
//! assert!(outcome.warnings.is_empty());
//! let Decision::Planned(plan) = outcome.decision else { return Err("no chain".into()) };
//!
//! // The plan lists the injected containers and the source of each choice.
//! let hops: Vec<_> = plan.containers.iter().map(|c| (c.port.get(), c.next_port.get())).collect();
//! assert_eq!(hops, [(8090, 8093), (8093, 5000)]);
//! assert_eq!(plan.containers[0].port_reason(), "port 8090 because its own port is free");
//!
//! // Every setting has a source.
//! let settings = plan.settings();
//! let setting = |name| settings.iter().find(|[found, ..]| found == name).map(|[_, value, source]| (&**value, &**source));
//! assert_eq!(setting("model port"), Some(("5000", "the only declared port, of container model")));
//! assert_eq!(setting("sidecar mode"), Some(("containers", "restartPolicy of the pod")));
//!
//! // The text is the JSON Patch of an AdmissionReview, before base64. Report the warnings too.
//! let patch = plan.patch(&view);
//! assert!(patch.warnings.is_empty());
//! assert!(patch.text.contains(r#"{"op":"add","path":"/spec/containers/-","value":{"#));
//!
//! // A pod that already follows its plan gets an empty patch.
//! let mut injected: serde_json::Value = serde_json::from_str(pod)?;
//! json_patch::patch(&mut injected, &patch.operations())?;
//! let injected = injected.to_string();
//! assert!(plan.patch(&PodView::from_json(&injected)?).is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Precedence of settings
//!
//! The label `lucid.io/secured: "true"` or the annotation `lucid.computing/auditors` triggers injection.
//! The chain comes from the first of these sources that has a valid one:
//!
//! 1. the pod annotation `lucid.computing/auditor-chain`,
//! 2. the pod annotation `lucid.computing/auditors`,
//! 3. the ConfigMap `lucid-auditor-chain` in the pod's namespace ([`NamespaceChain`]),
//! 4. the operator ([`Configuration`]),
//! 5. the built-in default.
//!
//! For other settings, the operator's [`Overrides`] take precedence over pod annotations, these over the `defaults`
//! of an `auditors.yaml`, and these over values derived from the pod and its namespace and built-in values
//! ([`SettingSource`]). An annotation that is invalid or excluded by the namespace's [`PodChoices`] never blocks the
//! pod: it counts as absent and produces a [`Warning`].
//!
//! An entry of a chain may set mode, failure and timeout of its auditor alone: `injection?mode=observe&failure=allow`.
//! These take precedence over the members of the auditor's entry in an `auditors.yaml`, and both over the pod's audit
//! mode. [`Overrides::audit_mode`] takes precedence over all modes, and then only the operator's chain and the cluster's
//! catalogue set the rest. The annotations of a pod may have parameters where it may set its audit mode.
//!
//! A [`Catalogue`] resolves the names of auditors: the built-in one, overlaid with the cluster's `auditors.yaml`,
//! overlaid with the namespace's own entries.
//!
//! # Guarantees
//!
//! ## Containers
//!
//! - Container names are unique in the pod, even if an auditor occurs several times in the chain. An existing
//!   container with a planned name stays if it equals the planned one, apart from additions by the API
//!   server and admission plugins. Otherwise it is replaced, with a warning.
//! - Auditors that are in the pod but not part of the chain, as in a copy of an injected pod, stay. They do not count
//!   as applications, their ports are taken, and a warning is produced.
//! - Ports are unique in the pod. An auditor uses the port of its catalogue entry unless a container, the model or an
//!   earlier auditor holds it ([`PlannedContainer::port_reason`]).
//! - Auditors run as non-root with a uid of their own ([`keys::SCC_UID_RANGE`]), without capabilities, with a read-only
//!   root file system and the runtime's seccomp profile, which a catalogue can tighten. A pod that satisfies the Pod
//!   Security level `restricted` still does with its auditors, unless network rules are requested.
//! - Auditors are plain containers if the pod's `restartPolicy` is `Always` and native sidecars otherwise, so that Jobs
//!   complete ([`SidecarMode`]). They are also native sidecars if the model is one, because it starts before any plain
//!   container. Applications start once the startup probes of native auditors succeed; auditors that only observe have
//!   none.
//! - Auditors and the injected init container cannot read the pod's ServiceAccount token, unless the cluster's
//!   catalogue grants it (`serviceAccountToken`). An empty volume ([`keys::NO_TOKEN_VOLUME`]) is mounted in its place.
//! - Auditors mount the files of their catalogue entry, from volumes ([`keys::FILES_VOLUME`]) whose names follow from
//!   the source. A volume of the pod with such a name and another source is replaced, with a warning.
//!
//! ## Network rules
//!
//! - An init container with the single capability NET_ADMIN redirects traffic to the first auditor ([`PlannedInit`],
//!   [`redirect`]). No rules are installed if a setting selects [`Intercept::Env`], which is the default if Pod
//!   Security admission in the namespace rejects that capability. No chain with rules fits into pods with
//!   `hostNetwork`, because the rules would apply to the whole node.
//! - The pod's own init containers run before the injected ones, with the original network, for example to download a
//!   model. Native auditors follow, then the rules, so that the kubelet can probe each auditor. No connection to the
//!   model predates the rules: the model starts after them, even as a native sidecar.
//! - The kubelet's probes of the model pass through the chain like all other traffic. `LUCID_PROBE_PATHS` lists the
//!   paths of HTTP probes, so that auditors can forward them.
//! - With network rules, the pod's own containers lose privileges that bypass them: NET_RAW, and privilege escalation
//!   by setuid files. Removing an explicitly configured privilege produces a warning, and
//!   [`uninject()`] restores it.
//!
//! ## The rest of the pod
//!
//! - All other fields stay unchanged. If outbound traffic is audited, applications get `AUDITOR_URL`. An application
//!   that sets this variable itself keeps its value, with a warning.
//! - Planning the patched pod again yields the same chain, even if another injector has added containers since.
//!   Auditors and `AUDITOR_URL` move only if such a container takes one of their ports.
//! - Planning depends only on its arguments. Statements of the pod about itself, such as the status annotation and
//!   container names, never prove that it has its chain.
//!
//! A pod for which no such plan exists is [`Decision::Impossible`], with the reason ([`ImpossibleReason`]). If the
//! caller admits it, it runs without the requested chain.
//!
//! # Layout
//!
//! [`PodView`] borrows the fields that planning reads from the pod's JSON. [`plan()`] combines it with the
//! [`Inputs`] into an [`Outcome`], which may hold a [`Plan`]. [`Plan::patch`] computes the [`PodPatch`], and
//! [`uninject()`] reverts it. [`keys`] lists the names of the user-facing API, and [`redirect`] generates the network
//! rules.
//!
//! # Failure
//!
//! Planning has no errors: a pod gets a plan, or none with the reason, and warnings. Reading a pod or a configuration returns an error with the path of
//! the invalid value.
//!
//! # Features
//!
//! None.
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

mod annotations;
mod catalogue;
mod chain;
mod configuration;
mod egress;
mod entry_policy;
mod error;
pub mod keys;
mod mode;
mod namespace;
mod patch;
mod plan;
mod pod;
mod pod_security;
mod port;
mod port_list;
mod privileges;
mod quantity;
pub mod redirect;
mod setting_source;
mod skip;
mod template;
mod trigger;
mod uid_range;
mod uninject;
mod volume;
mod warning;

pub use catalogue::{Auditor, Catalogue, RESERVED_ENV, stem as short_name};
pub use chain::MAX_CHAIN;
pub use configuration::{Configuration, Overrides};
pub use egress::{AllowedHosts, Egress, Upstream};
pub use error::Error;
pub use mode::{AuditMode, Direction, Intercept, PodChoices, SidecarMode};
pub use namespace::{NamespaceChain, NamespaceSettings};
pub use patch::{PodPatch, TOKEN_PATHS, identity_env};
pub use plan::{Decision, ImpossibleReason, Inputs, Outcome, Plan, PlannedContainer, PlannedInit, plan};
pub use pod::{ContainerView, PodError, PodView};
pub use port_list::PortList;
pub use privileges::Privileges;
pub use quantity::Quantity;
pub use setting_source::SettingSource;
pub use skip::{SkipPolicy, SkipReason};
pub use uninject::uninject;
pub use warning::Warning;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
