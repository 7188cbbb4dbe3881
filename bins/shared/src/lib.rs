//! Shared parts of the Lucid programs: arguments, logging, traces, signals and exit codes.
//!
//! Feature `serving` adds [`serving`], which hosts webhooks, and [`options`], the options of operator and validator. The
//! command line uses them as well, to read the options of a deployed program.

mod arguments;
mod bidirectional;
mod changes;
mod error;
mod exit;
mod logging;
mod names;
#[cfg(feature = "serving")]
pub mod options;
#[cfg(feature = "serving")]
pub mod serving;
mod telemetry;

pub use arguments::{parse, parse_address, try_parse_from, within};
pub use bidirectional::is_bidirectional;
pub use changes::{follow, parent};
pub use error::Error;
pub use exit::{Output, complain, end, output};
pub use logging::{LogArgs, LogFormat, init_logging};
pub use lucid_text::with_causes;
pub use lucid_webhook::shutdown_signal;
pub use names::{parse_namespace, parse_object_name};
pub use telemetry::{Telemetry, init_telemetry};
