//! Traces, exported by OTLP over HTTP (`http/protobuf`) and configured by the environment variables of OpenTelemetry
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>).
//!
//! Unlike an SDK by default, nothing is exported unless an endpoint is set: many clusters have no collector. Without an
//! endpoint no tracing layer is installed.

#[cfg(feature = "opentelemetry")]
mod export;

use std::env;

use crate::Error;
use crate::logging::{self, LogArgs};

/// Variables that set an endpoint and thereby enable traces.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Handle of the trace exporter of a process.
#[derive(Debug)]
#[must_use = "what was not exported yet is lost without `end`"]
pub struct Telemetry {
    #[cfg(feature = "opentelemetry")]
    exported: Option<export::Exported>,
}

/// Starts logging as [`init_logging`](crate::init_logging) does, and exports traces if the environment sets an
/// endpoint. `service` is the service name unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES sets another. Call it
/// once, first, in a Tokio runtime.
pub fn init_telemetry(args: &LogArgs, service: &'static str) -> Result<Telemetry, Error> {
    let is_set = |variable: &&str| env::var_os(variable).is_some_and(|value| !value.is_empty());
    let has = |variable: &str, value: &str| {
        env::var(variable).is_ok_and(|found| found.trim().eq_ignore_ascii_case(value))
    };
    let asked = ENDPOINTS.iter().find(|variable| is_set(variable));
    let asked = asked.filter(|_| !has("OTEL_SDK_DISABLED", "true") && !has("OTEL_TRACES_EXPORTER", "none"));
    start(args, service, asked.copied())
}

#[cfg(feature = "opentelemetry")]
fn start(args: &LogArgs, service: &'static str, asked: Option<&str>) -> Result<Telemetry, Error> {
    let exported = asked.map(|_| export::Exported::start(service)).transpose()?;
    logging::start(args, exported.as_ref().map(export::Exported::layer))?;
    if let (Some(variable), Some(_)) = (asked, &exported) {
        tracing::info!("exporting traces, as {variable} is set");
    }
    Ok(Telemetry { exported })
}

#[cfg(not(feature = "opentelemetry"))]
fn start(args: &LogArgs, _service: &'static str, asked: Option<&str>) -> Result<Telemetry, Error> {
    logging::start(args, None)?;
    if let Some(variable) = asked {
        tracing::warn!("{variable} is set, but this program was built without feature opentelemetry");
    }
    Ok(Telemetry {})
}

impl Telemetry {
    /// Flushes pending spans, for five seconds at most.
    pub async fn end(self) {
        #[cfg(feature = "opentelemetry")]
        if let Some(exported) = self.exported {
            exported.end().await;
        }
    }
}
