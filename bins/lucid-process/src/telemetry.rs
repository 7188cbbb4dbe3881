//! Traces, exported by OTLP over HTTP (`http/protobuf`) as OpenTelemetry's own variables say
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>).
//!
//! Unlike an SDK by default, nothing is exported unless an endpoint is named: a process in a cluster without a collector has
//! nobody to tell. Then no layer is there that would see a span.

#[cfg(feature = "opentelemetry")]
mod export;

use std::env;

use snafu::Snafu;

use crate::logging::{self, LogArgs, LoggingError};

/// The variables that ask for traces: where they go.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Why traces cannot be exported as the environment wants.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum TelemetryError {
    /// Logging could not be started.
    #[snafu(transparent)]
    Logging {
        /// What is wrong.
        source: LoggingError,
    },
    /// A variable has a value that is of no use.
    #[snafu(display("environment variable {variable}: found {found:?}, {accepted}"))]
    Variable {
        /// Which.
        variable: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        accepted: String,
    },
    /// There is no exporter.
    #[snafu(display("failed to export traces: {problem}"))]
    Export {
        /// What is wrong.
        problem: String,
    },
}

/// What is exported while a process runs.
#[derive(Debug)]
#[must_use = "what was not exported yet is lost without `end`"]
pub struct Telemetry {
    #[cfg(feature = "opentelemetry")]
    exported: Option<export::Exported>,
}

/// Starts logging as [`init_logging`](crate::init_logging), and the export of traces where the environment asks for it.
/// `service` is the name of the service unless OTEL_SERVICE_NAME says another. Call it once, first, in a Tokio runtime.
///
/// # Errors
///
/// When a variable has a value that is of no use, or logging was started before.
pub fn init_telemetry(args: &LogArgs, service: &'static str) -> Result<Telemetry, TelemetryError> {
    let is_set = |variable: &&str| env::var_os(variable).is_some_and(|value| !value.is_empty());
    let has = |variable: &str, value: &str| {
        env::var(variable).is_ok_and(|found| found.trim().eq_ignore_ascii_case(value))
    };
    let asked = ENDPOINTS.iter().find(|variable| is_set(variable));
    let asked = asked.filter(|_| !has("OTEL_SDK_DISABLED", "true") && !has("OTEL_TRACES_EXPORTER", "none"));
    start(args, service, asked.copied())
}

#[cfg(feature = "opentelemetry")]
fn start(args: &LogArgs, service: &'static str, asked: Option<&str>) -> Result<Telemetry, TelemetryError> {
    let exported = asked.map(|_| export::Exported::start(service)).transpose()?;
    logging::start(args, exported.as_ref().map(export::Exported::layer))?;
    if let (Some(variable), Some(_)) = (asked, &exported) {
        tracing::info!("traces are exported, as {variable} says");
    }
    Ok(Telemetry { exported })
}

#[cfg(not(feature = "opentelemetry"))]
fn start(args: &LogArgs, _service: &'static str, asked: Option<&str>) -> Result<Telemetry, TelemetryError> {
    logging::start(args, None)?;
    if let Some(variable) = asked {
        tracing::warn!("{variable} is set, and this program was built without feature opentelemetry");
    }
    Ok(Telemetry {})
}

impl Telemetry {
    /// Exports what was not exported yet, for five seconds at most.
    pub async fn end(self) {
        #[cfg(feature = "opentelemetry")]
        if let Some(exported) = self.exported {
            exported.end().await;
        }
    }
}
