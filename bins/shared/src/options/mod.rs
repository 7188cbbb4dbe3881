//! Options of operator and validator. Common ones have an environment variable; a flag takes precedence.

mod audit;
mod decisions;
mod error;
mod injection;
mod operator;
mod policy;
mod registration;
mod validation;
mod validator;
mod verifier;

pub use audit::AuditEndpointArgs;
pub(crate) use decisions::serve_and_close;
pub use decisions::{DecisionArgs, DecisionLogError, Opening, default_origin, parse_origin, read_key};
pub use error::ArgsError;
pub use injection::InjectionArgs;
pub use operator::{OperatorArgs, RegistrationArgs};
pub use policy::{AdmissionMode, BreakGlassArgs, PolicyArgs};
pub use registration::{SelectorArgs, ValidationWebhookArgs};
pub use validation::ValidationArgs;
pub use validator::ValidatorArgs;
pub use verifier::VerifierArgs;
