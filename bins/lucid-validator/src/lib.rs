//! The Lucid validator: rejects pods that violate the policy, and warns about workloads whose pods would be rejected.
//!
//! [`Validator`] handles `/validate` and `/validate-workloads`; [`lucid_policy`] defines the rules. `lucid-operator`
//! serves it next to `/mutate`, and [`run`] serves it as a separate process. [`review`] evaluates manifests without a
//! cluster. The crate also contains the parts that both webhooks share: [`Scope`], [`Calls`] and the record of
//! decisions.

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
