//! Operators that register their own webhooks. [`Operator`] runs a whole program; [`Registration`] is the part that keeps
//! the registration.

mod configuration;
mod conversion;
mod presence;
mod registration;
mod run;

pub use registration::{NAME_LABEL, Registration};
pub use run::Operator;
