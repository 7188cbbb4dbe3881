//! The Lucid operator: injects auditor chains into pods and validates them.
//!
//! The binary is a thin shell around [`run`] and [`cainjector`]. `config` says what it is told, `injector` is the handler
//! of `/mutate`, `registration` what that is called for; `/validate` is `lucid_validator`'s, and certificates are
//! `lucid_serving`'s.

mod auditors;
mod cainjector;
mod certs;
mod config;
mod injector;
mod registration;
mod run;

pub use cainjector::{CainjectorArgs, CainjectorError, cainjector};
pub use certs::{CertsArgs, CertsError, certs};
pub use config::RunArgs;
pub use run::run;
