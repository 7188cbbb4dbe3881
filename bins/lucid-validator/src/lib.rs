//! The Lucid validator: refuses pods whose auditor images are not notarized.
//!
//! [`Validator`] is the handler of `/validate`. `lucid-operator` serves it beside `/mutate`, or [`run`] does, as a process
//! of its own; [`review`] says the same of a pod in a file. What both webhooks need is here too: [`Scope`], [`Calls`]
//! and the record of decisions.

mod args;
mod audit;
mod calls;
mod decisions;
mod record;
mod request;
mod review;
mod run;
mod scope;
mod validator;
mod verifier;

pub use args::{ArgsError, ValidationArgs};
pub use audit::{AuditArgs, AuditError, audit};
pub use calls::{Calls, SelectorArgs, VALIDATE_NAME, VALIDATE_PATH};
pub use decisions::{DecisionArgs, DecisionLogError, close};
pub use record::{decision, record};
pub use request::{RequestError, pod_of};
pub use review::{ReviewArgs, ReviewError, review};
pub use run::{RunArgs, RunError, run};
pub use scope::Scope;
pub use validator::{ValidateError, Validator};
pub use verifier::{VerifierArgs, VerifierArgsError};
