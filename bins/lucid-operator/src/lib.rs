//! The Lucid operator: injects auditor chains into pods and validates them.
//!
//! The binary is a thin shell around [`run`] and [`cainjector`]. `config` says what it is told, `injector` is the handler
//! of `/mutate`, `registration` how the API server learns of the webhooks; `/validate` is `lucid_validator`'s.

mod cainjector;
mod certificates;
mod certs;
mod config;
mod injector;
mod registration;
mod run;

pub use cainjector::{CainjectorArgs, CainjectorError, cainjector};
pub use certificates::CertificatesError;
pub use certs::{CertsArgs, CertsError, certs};
pub use config::RunArgs;
pub use run::{RunError, run};
