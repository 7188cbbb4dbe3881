//! Shared process setup of all Lucid binaries: arguments, logging, traces and shutdown signals.
//!
//! Options, log lines and signals behave alike in all binaries. This crate is internal: nothing under `crates/` depends
//! on it.

mod arguments;
mod bearer;
mod exit;
mod logging;
mod manual;
mod names;
mod shutdown;
mod telemetry;

pub use arguments::{parse, parse_address, try_parse_from, within};
pub use bearer::{TokenFile, TokenFileError};
pub use exit::{Output, complain, end, output, with_causes};
pub use logging::{LogArgs, LogFormat, init_logging};
pub use manual::{ManualCommand, ManualError};
pub use names::{is_label_key, parse_namespace, parse_object_name};
pub use shutdown::shutdown_signal;
pub use telemetry::{Telemetry, TelemetryError, init_telemetry};
