//! The Lucid validator: refuses pods that violate the policy, and warns of workloads whose pods will.
//!
//! [`Validator`] is the handler of `/validate` and `/validate-workloads`; what is wrong with a pod is for [`lucid_policy`] to say. `lucid-operator` serves it beside `/mutate`, or [`run`] does, as a process
//! of its own; [`review`] says the same of a pod in a file. What both webhooks need is here too: [`Scope`], [`Calls`]
//! and the record of decisions.

mod args;
mod audit;
mod break_glass;
mod calls;
mod decisions;
mod image;
mod metrics;
mod policy_args;
mod record;
mod request;
mod review;
mod ring;
mod run;
mod scope;
mod validator;
mod verifier;

pub use args::{ArgsError, ValidationArgs};
pub use audit::{AuditArgs, AuditError, audit};
pub use break_glass::BreakGlassReview;
pub use calls::{
    Calls, FailurePolicy, SelectorArgs, VALIDATE_NAME, VALIDATE_PATH, ValidationWebhookArgs, WORKLOADS_NAME,
    WORKLOADS_PATH,
};
pub use decisions::{DecisionArgs, DecisionLogError, close, report_readiness};
pub use image::{ImageArgs, ImageError, image};
pub use metrics::Metrics;
pub use policy_args::{AdmissionMode, BreakGlassArgs, PolicyArgs, PolicyArgsError};
pub use record::{decision, record};
pub use request::{RequestError, pod_of};
pub use review::{ReviewArgs, ReviewError, ReviewFormat, review};
pub use ring::{RingArgs, RingArgsError, RingService};
pub use run::{PROGRAM, RunArgs, RunError, run};
pub use scope::Scope;
pub use validator::{ValidateError, Validator};
pub use verifier::{VerifierArgs, VerifierArgsError};
