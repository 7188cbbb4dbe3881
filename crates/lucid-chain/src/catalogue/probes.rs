//! The `probes` of a catalogue entry.

use std::num::NonZeroU16;

use lucid_text::json::to_string;
use serde::Deserialize;
use serde_json::Value;

use super::{
    scalars::{self, Found},
    schema::{Fields, Parse, Shape},
};

/// Largest number in fields of the API (int32).
const MOST: u32 = i32::MAX.unsigned_abs();

const PATH_EXPECTED: &str = "a path such as /health: it starts with '/' and holds visible ASCII characters";

/// Probes of an auditor's container. Only probes that the catalogue entry specifies are set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Probes {
    /// `readinessProbe`: controls if the pod receives traffic.
    pub(crate) readiness: Option<Probe>,
    /// `livenessProbe`: restarts the container on failure.
    pub(crate) liveness: Option<Probe>,
    /// `startupProbe`: delays the other probes and, for a native sidecar, the containers that start after it.
    pub(crate) startup: Option<Probe>,
}

/// A probe: HTTP GET on the auditor's port in the pod, with the fields of core/v1 Probe.
///
/// The default, equal to that of the API server, requests `/health` every 10 seconds with a timeout of 1 second, and
/// requires one success or three consecutive failures. Startup probes have another default:
/// [`Probe::default_startup`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Probe {
    pub(crate) path: String,
    pub(crate) initial_delay_seconds: u32,
    /// Seconds between requests, at least 1.
    pub(crate) period_seconds: u32,
    /// Timeout in seconds, at least 1.
    pub(crate) timeout_seconds: u32,
    /// Consecutive successes after which a failed probe succeeds, at least 1; always 1 for liveness and startup.
    pub(crate) success_threshold: u32,
    /// Consecutive failures after which the probe fails, at least 1.
    pub(crate) failure_threshold: u32,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            path: "/health".to_owned(),
            initial_delay_seconds: 0,
            period_seconds: 10,
            timeout_seconds: 1,
            success_threshold: 1,
            failure_threshold: 3,
        }
    }
}

impl Probe {
    /// Returns the default startup probe. It has a period of one second, because applications may be waiting, and
    /// allows two minutes, because some auditors load a model first.
    pub(crate) fn default_startup() -> Self {
        Self { period_seconds: 1, failure_threshold: 120, ..Self::default() }
    }

    /// Returns the time until the probe fails, in seconds, limited to the range of an API field.
    pub(crate) fn longest_seconds(&self) -> u32 {
        let asked = self.period_seconds.saturating_mul(self.failure_threshold);
        self.initial_delay_seconds.saturating_add(asked).min(MOST)
    }

    /// Includes API server defaults and excludes fields that the API server omits.
    pub(crate) fn json(&self, port: NonZeroU16) -> String {
        let delay = match self.initial_delay_seconds {
            0 => String::new(),
            delay => format!("\"initialDelaySeconds\":{delay},"),
        };
        let (path, failures, successes) =
            (to_string(&self.path), self.failure_threshold, self.success_threshold);
        let (period, timeout) = (self.period_seconds, self.timeout_seconds);
        format!(
            "{{\"failureThreshold\":{failures},\"httpGet\":{{\"path\":{path},\"port\":{port},\"scheme\":\"HTTP\"}},{delay}\
             \"periodSeconds\":{period},\"successThreshold\":{successes},\"timeoutSeconds\":{timeout}}}"
        )
    }
}

pub(super) const FIELDS: Fields = Fields {
    keys: &[
        ("readiness", Shape::NotNull(&Shape::Map(&READINESS))),
        ("liveness", Shape::NotNull(&Shape::Map(&LIVENESS))),
        ("startup", Shape::NotNull(&Shape::Map(&STARTUP))),
    ],
    refused: &[],
    finish: |_, _| Ok(()),
};

const READINESS: Fields = Fields { keys: &const { keys(positive) }, refused: REFUSED, finish: |_, _| Ok(()) };

const LIVENESS: Fields = Fields { keys: &const { keys(one) }, ..READINESS };

const STARTUP: Fields = Fields {
    finish: |probe, _| {
        let default = Probe::default_startup();
        probe.entry("periodSeconds").or_insert_with(|| default.period_seconds.into());
        probe.entry("failureThreshold").or_insert_with(|| default.failure_threshold.into());
        Ok(())
    },
    ..LIVENESS
};

const fn keys(successes: Parse) -> [(&'static str, Shape); 6] {
    [
        ("path", Shape::Scalar(path)),
        ("initialDelaySeconds", Shape::Scalar(|text| scalars::number(text, 0..=MOST))),
        ("periodSeconds", Shape::Scalar(positive)),
        ("timeoutSeconds", Shape::Scalar(positive)),
        ("successThreshold", Shape::Scalar(successes)),
        ("failureThreshold", Shape::Scalar(positive)),
    ]
}

const OWN_PORT: &str = "a probe asks the port that the auditor is given in the pod";
const HTTP_GET: &str = "a probe is an HTTP GET request to the auditor, of which only the path can be chosen";

const REFUSED: &[(&str, &str)] = &[
    ("port", OWN_PORT),
    ("httpGet", HTTP_GET),
    ("scheme", HTTP_GET),
    ("host", HTTP_GET),
    ("httpHeaders", HTTP_GET),
    ("exec", HTTP_GET),
    ("tcpSocket", HTTP_GET),
    ("grpc", HTTP_GET),
];

fn positive(text: &str) -> Result<Value, String> {
    scalars::number(text, 1..=MOST)
}

fn one(text: &str) -> Result<Value, String> {
    scalars::number(text, 1..=1)
}

fn path(text: &str) -> Result<Value, String> {
    if text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text.into())
    } else {
        Err(format!("expected {PATH_EXPECTED}, found {}", Found(text)))
    }
}
