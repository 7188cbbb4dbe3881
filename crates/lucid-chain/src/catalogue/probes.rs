//! `probes` of an entry.

use std::num::NonZeroU16;

use serde::de::{Error as _, MapAccess};
use serde_json::{Value, json};

use super::fields::{self, Budget, Found, Keys, Map, OrNull, ReadMap};

/// The largest number of the API's fields (int32).
const MOST: u32 = i32::MAX.unsigned_abs();

const PATH_ACCEPTED: &str = "a path such as /health: it starts with '/' and holds visible ASCII characters";

/// How the kubelet asks whether an auditor's container is well. A container has only those probes that its catalogue
/// entry writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probes {
    /// Whether the pod may get traffic (`readinessProbe`).
    pub readiness: Option<Probe>,
    /// Whether the container has to be restarted (`livenessProbe`).
    pub liveness: Option<Probe>,
    /// Whether it has come up (`startupProbe`): the other two wait for it, and what starts after a native sidecar too.
    pub startup: Option<Probe>,
}

/// One probe: HTTP GET on the port that the auditor is given in the pod, with the fields of core/v1 Probe.
///
/// The default asks `/health` every 10 seconds, waits 1 second for the answer, and takes one success and three failures
/// in a row as decisive: what the API server fills in. See [`Probe::default_startup`] for the other default.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// Path of the request. Any status from 200 to 399 is a success.
    pub path: String,
    /// Seconds from the start of the container to the first request.
    pub initial_delay_seconds: u32,
    /// Seconds between two requests, at least 1.
    pub period_seconds: u32,
    /// Seconds to wait for the answer, at least 1.
    pub timeout_seconds: u32,
    /// Successes in a row after a failure that count as one, at least 1; 1 for liveness and startup.
    pub success_threshold: u32,
    /// Failures in a row that count as one, at least 1.
    pub failure_threshold: u32,
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
    /// The default of a startup probe: it asks each second, since an application may be waiting, and gives an auditor
    /// two minutes, since some load a model first.
    pub fn default_startup() -> Self {
        Self { period_seconds: 1, failure_threshold: 120, ..Self::default() }
    }

    /// How long a container has until the probe fails for good, in seconds; no more than a field of the API holds.
    pub(crate) fn longest_seconds(&self) -> u32 {
        let asked = self.period_seconds.saturating_mul(self.failure_threshold);
        self.initial_delay_seconds.saturating_add(asked).min(MOST)
    }

    /// The probe as core/v1 writes it for a container that listens on `port`, with what the API server would fill in
    /// and without what it would leave out.
    pub fn manifest(&self, port: NonZeroU16) -> Value {
        let mut manifest = json!({
            "httpGet": {"path": self.path, "port": port, "scheme": "HTTP"},
            "timeoutSeconds": self.timeout_seconds,
            "periodSeconds": self.period_seconds,
            "successThreshold": self.success_threshold,
            "failureThreshold": self.failure_threshold,
        });
        if self.initial_delay_seconds > 0 {
            manifest["initialDelaySeconds"] = self.initial_delay_seconds.into();
        }
        manifest
    }
}

/// Reads `probes`.
pub(super) struct ReadProbes<'b> {
    pub(super) budget: &'b Budget,
}

impl ReadMap for ReadProbes<'_> {
    type Value = Probes;

    fn expected(&self) -> String {
        "a map with the keys readiness, liveness, startup".to_owned()
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Probes, A::Error> {
        let budget = self.budget;
        let mut keys = Keys::new(budget, &["readiness", "liveness", "startup"]);
        let mut probes = Probes::default();
        while let Some(key) = keys.next(&mut map)? {
            let (probe, successes) = match key {
                "readiness" => (Probe::default(), MOST),
                "liveness" => (Probe::default(), 1),
                _ => (Probe::default_startup(), 1),
            };
            let read = map.next_value_seed(OrNull(Map(ReadProbe { budget, probe, successes })))?;
            // Nothing at all may mean "none" as well as "the default".
            let probe = Some(read.ok_or_else(|| {
                A::Error::custom(format!("`{key}` has no value, accepted a map ({{}} for the default probe)"))
            })?);
            match key {
                "readiness" => probes.readiness = probe,
                "liveness" => probes.liveness = probe,
                _ => probes.startup = probe,
            }
        }
        Ok(probes)
    }
}

/// Reads one probe.
struct ReadProbe<'b> {
    budget: &'b Budget,
    /// What holds for the keys that are not written.
    probe: Probe,
    /// The most for `successThreshold`.
    successes: u32,
}

const PROBE_KEYS: &[&str] = &[
    "path",
    "initialDelaySeconds",
    "periodSeconds",
    "timeoutSeconds",
    "successThreshold",
    "failureThreshold",
];

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

impl ReadMap for ReadProbe<'_> {
    type Value = Probe;

    fn expected(&self) -> String {
        format!("a map with the keys {}", PROBE_KEYS.join(", "))
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Probe, A::Error> {
        let Self { budget, mut probe, successes } = self;
        let mut keys = Keys::new(budget, PROBE_KEYS).refusing(REFUSED);
        while let Some(key) = keys.next(&mut map)? {
            let (field, accepted) = match key {
                "path" => {
                    probe.path = map.next_value_seed(budget.scalar(path))?;
                    continue;
                }
                "initialDelaySeconds" => (&mut probe.initial_delay_seconds, 0..=MOST),
                "periodSeconds" => (&mut probe.period_seconds, 1..=MOST),
                "timeoutSeconds" => (&mut probe.timeout_seconds, 1..=MOST),
                "successThreshold" => (&mut probe.success_threshold, 1..=successes),
                _ => (&mut probe.failure_threshold, 1..=MOST),
            };
            *field = map.next_value_seed(budget.scalar(|text: &str| fields::number(text, accepted)))?;
        }
        Ok(probe)
    }
}

/// The path of a request.
fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err(format!("found {}, accepted {PATH_ACCEPTED}", Found(text)))
    }
}
