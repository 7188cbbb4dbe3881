//! Trust bundles in objects of a real API server.

mod calls;
mod cluster_trust_bundle;
mod drift;
mod gitops;
mod rbac;
mod subject;
