//! Trust bundles in objects of a real API server.

mod calls;
mod drift;
mod gitops;
mod rbac;
mod subject;
