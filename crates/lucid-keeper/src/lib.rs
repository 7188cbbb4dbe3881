//! Keeps the auditor chains of running pods as planned.
//!
//! Admission sees a pod once. [`Keeper`] watches the pods afterwards: [`Comparison`] compares a pod with the chain that
//! it would get now, and [`state`] adds what changes without the pod, the verdicts on its auditors' digests and time.
//!
//! ```no_run
//! use lucid_admission::{ClusterConfiguration, KeeperAction};
//! use lucid_keeper::Keeper;
//!
//! # async fn keep(client: kube::Client, cluster: ClusterConfiguration) {
//! let keeper = Keeper::new(client, cluster, "lucid-system", std::env::var("POD_NAME").ok())
//!     .with_actions(&[KeeperAction::Update]);
//! keeper.run(std::future::pending()).await;
//! # }
//! ```
//!
//! # Failure
//!
//! Everything that a keeper does follows from the objects of the cluster: another replica that takes over decides the
//! same. Requests carry the version of the object that was decided on. Faults of the API server are retried, and faults
//! of one namespace or workload do not hold back others.
//!
//! # Features
//!
//! None. The program enables a Kubernetes version of k8s-openapi, such as `v1_36`.
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

mod act;
mod announce;
mod compare;
mod fleet;
mod keeper;
mod metrics;
mod overview;
mod plan;
mod pod;
mod reports;
mod state;
mod steps;
mod tried;
mod workload;

pub use compare::Comparison;
pub use keeper::{Keeper, LEASE, RunningPods};
pub use plan::{Planned, When};
pub use pod::StoredPod;
pub use reports::{NAME as REPORT, delete_reports};
pub use state::{State, Verdicts, state};
pub use workload::Workload;
