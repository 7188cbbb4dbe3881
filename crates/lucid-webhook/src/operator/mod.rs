//! Operators: webhooks that register themselves. [`Operator`] runs a whole program; [`Registration`] is its part that
//! keeps the registration.

mod configuration;
mod conversion;
mod presence;
mod registration;
mod run;

pub use registration::{NAME_LABEL, Registration};
pub use run::Operator;
