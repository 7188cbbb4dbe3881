//! Keeps the auditor chains of running pods as planned.
//!
//! Admission sees a pod once. [`Keeper`] watches the pods afterwards: [`Comparison`] compares a pod with the chain that
//! it would get now, and [`state`] adds what changes without the pod, the verdicts on its auditors' digests and time.

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
