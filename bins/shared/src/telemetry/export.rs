//! The OTLP exporter.

use std::time::Duration;
use std::{env, fs};

use async_trait::async_trait;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;

use super::ENDPOINTS;
use crate::Error;
use crate::logging::Traces;

/// Target prefix of the crates of this workspace. Spans of other crates are dropped: they would trace the export
/// itself.
const OURS: &str = "lucid_";
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const CERTIFICATES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
/// Timeout of connecting. OTEL_EXPORTER_OTLP_TIMEOUT limits the export as a whole.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Exported {
    provider: SdkTracerProvider,
    service: &'static str,
}

const FAILED: &str = "failed to export traces";

fn refused(variable: &str, expected: &str, found: &str) -> Error {
    Error::new(format!("environment variable {variable}: expected {expected}, found {found:?}"))
}

/// Returns the first of `variables` that is set, with its value. The variable for traces takes precedence over that for
/// all signals.
fn first(variables: [&'static str; 2]) -> Option<(&'static str, String)> {
    let value = |variable| env::var(variable).ok().filter(|value| !value.is_empty());
    variables.into_iter().find_map(|variable| Some((variable, value(variable)?)))
}

impl Exported {
    pub(super) fn start(service: &'static str) -> Result<Self, Error> {
        if let Some((variable, found)) = first(PROTOCOLS).filter(|(_, found)| found != "http/protobuf") {
            return Err(refused(variable, "http/protobuf", &found));
        }
        if let Some((variable, found)) = first(ENDPOINTS) {
            let is_http = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
            // The exporter's errors quote the URL and are logged.
            if let Some((_, rest)) = found.rsplit_once('@') {
                let expected = "a URL without user and password, which OTEL_EXPORTER_OTLP_HEADERS can carry";
                return Err(refused(variable, expected, &format!("…@{rest}")));
            }
            if !reqwest::Url::parse(&found).is_ok_and(|url| is_http(&url)) {
                let expected = "a URL such as http://otel-collector.observability.svc:4318";
                return Err(refused(variable, expected, &found));
            }
        }
        // For spans of requests that continue a trace.
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        let exporter = SpanExporter::builder().with_http().with_http_client(Client::new()?);
        let exporter = exporter.build().map_err(Error::with_context(FAILED))?;
        let resource =
            Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let named = env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty())
            || env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|it| it.contains("service.name="));
        let resource = if named { resource } else { resource.with_service_name(service) };
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
        Ok(Self { provider: provider.build(), service })
    }

    pub(super) fn layer(&self) -> Traces {
        let layer = tracing_opentelemetry::layer().with_tracer(self.provider.tracer(self.service));
        layer.with_filter(filter_fn(|metadata| metadata.target().starts_with(OURS))).boxed()
    }

    pub(super) async fn end(self) {
        // Shutdown blocks on a thread of the provider.
        let ended = tokio::task::spawn_blocking(move || self.provider.shutdown()).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!("the last traces were not exported: {}", crate::with_causes(&error));
        }
    }
}

/// HTTP client for the exporter's thread, which is outside the runtime.
#[derive(Debug)]
struct Client {
    client: reqwest::Client,
    runtime: Handle,
}

impl Client {
    fn new() -> Result<Self, Error> {
        let mut builder = reqwest::Client::builder().connect_timeout(CONNECT_WITHIN);
        if let Some((variable, path)) = first(CERTIFICATES) {
            let unusable = |problem: String| {
                let problem = format!("failed to use {path}: {problem}, expected certificates in PEM");
                Error::new(format!("environment variable {variable}: {problem}"))
            };
            let pem = fs::read(&path).map_err(|error| unusable(error.to_string()))?;
            let certificates = lucid_certs::certificates_from_pem(&pem);
            let certificates = certificates.map_err(|error| unusable(error.to_string()))?;
            let certificates: reqwest::Result<Vec<_>> =
                certificates.iter().map(|der| reqwest::Certificate::from_der(der)).collect();
            builder =
                builder.tls_certs_only(certificates.map_err(|error| unusable(crate::with_causes(&error)))?);
        }
        let client = builder.build().map_err(Error::with_context(FAILED))?;
        Ok(Self { client, runtime: Handle::current() })
    }
}

#[async_trait]
impl opentelemetry_http::HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let response = client.execute(request.try_into()?).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            let mut answer = Response::new(response.bytes().await?);
            (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
            Ok::<_, HttpError>(answer)
        });
        sent.await?
    }
}
