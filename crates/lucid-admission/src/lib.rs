//! Lucid's admission webhooks as handlers for any [`Router`](lucid_webhook::Router).
//!
//! [`PodInjector`] adds auditor chains to pods (`/mutate`), and [`PodValidator`] checks pods and workloads against the
//! policy (`/validate`). Both read the cluster from a [`ClusterConfiguration`], which follows the API server, and
//! record their decisions in a [`Recorder`](lucid_audit::Recorder). [`Audit`] serves the recorded decisions at
//! `/audit`.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use lucid_admission::{ChainSettings, ClusterConfiguration, PodInjector, PodValidator, Registrations};
//! use lucid_webhook::{Readiness, Router};
//!
//! # async fn webhooks(client: kube::Client, readiness: &Readiness) -> Router {
//! let cluster = ClusterConfiguration::new(ChainSettings::default()).with_publishing();
//! cluster.start(client.clone(), "lucid-system", readiness.condition("configuration"));
//! let recorder = Arc::new(lucid_audit::Recorder::new(1000));
//! let registrations = Registrations::new("lucid-system");
//! let injector = PodInjector::new(registrations.clone(), cluster.clone(), Arc::clone(&recorder));
//! let validator = PodValidator::new(registrations, cluster, recorder);
//! validator.mount(injector.mount(Router::new(), client.clone()), client)
//! # }
//! ```
//!
//! Applications register the router with [`lucid_webhook::registration`] and serve it with [`lucid_webhook::Server`]
//! ([complete program](https://github.com/lucid/lucid/tree/main/examples/admission)).
//!
//! # Failure
//!
//! Requests fail, as `failurePolicy` of the registration says, until the cluster has been read once. Invalid configuration leaves the
//! last valid one in force. A handler that fails is answered as the [`FailureAction`](lucid_webhook::FailureAction) of its webhook says, and recorded.
//!
//! # Features
//!
//! None. The program enables a Kubernetes version of k8s-openapi, such as `v1_36`.
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

mod audit;
mod auditor_status;
mod break_glass;
mod cluster;
mod error;
mod events;
mod injection_metrics;
mod injector;
mod metadata;
mod names;
mod notice;
mod record;
mod registration;
mod scope;
mod validation_metrics;
mod validator;

pub use audit::{Audit, STYLE as AUDIT_STYLE, VKEY as VKEY_PATH};
pub use break_glass::BreakGlassReview;
pub use cluster::{
    ChainSettings, ClusterConfiguration, GENERATIONS_CONFIG_MAP, KeeperAction, KeeperSettings, NamespaceView,
    NotSynced, POLICY_CONFIG_MAP, WEBHOOKS_CONFIG_MAP, auditor, parse_exemptions,
};
pub use error::{InjectError, RequestError, ValidateError};
pub use events::{Events, Occurrence, Owners, is_plausible_owner};
pub use injection_metrics::InjectionMetrics;
pub use injector::{PodInjector, pod_of, respond};
pub use names::{MUTATE_NAME, MUTATE_PATH, VALIDATE_NAME, VALIDATE_PATH, WORKLOADS_NAME, WORKLOADS_PATH};
pub use record::record_modes;
pub use registration::{Registrations, Selectors};
pub use scope::Scope;
pub use validation_metrics::ValidationMetrics;
pub use validator::{Evaluated, PodValidator, evaluate_case, verifier_deadline};
