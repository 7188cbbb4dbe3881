//! The Lucid validator: refuses pods whose auditor images are not notarized.
//!
//! [`Validator`] is the handler of `/validate`; `lucid-operator` serves it beside `/mutate`. [`review`] says the same of a
//! pod in a file. What both need of the
//! cluster is here too: [`ClusterConfiguration`], [`Scope`] and the record of decisions.

mod args;
mod cluster;
mod record;
mod request;
mod review;
mod scope;
mod validator;

pub use args::{ArgsError, ValidationArgs};
pub use cluster::{ClusterConfiguration, NamespaceView, NotSynced, Settings};
pub use record::{decision, record};
pub use request::{RequestError, pod_of};
pub use review::{ReviewArgs, ReviewError, review};
pub use scope::Scope;
pub use validator::{ValidateError, Validator};
