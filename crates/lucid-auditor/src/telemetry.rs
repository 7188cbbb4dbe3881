//! Metrics and log lines. Neither contains text of requests and answers.

use std::{borrow::Cow, io, sync::Arc, time::Duration};

use hmac::{Hmac, Mac as _};
use hyper::StatusCode;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use sha2::Sha256;

use crate::{Direction, Passage};

/// Upper bounds of the durations of verdicts, in seconds.
const DURATIONS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0];

#[derive(Debug)]
pub(crate) struct Telemetry {
    registry: Registry,
    requests: Family<Answered, Counter>,
    verdicts: Family<Judged, Counter>,
    failures: Family<Judge, Counter>,
    durations: Family<Judge, Histogram, fn() -> Histogram>,
    bytes: Family<Message, Counter>,
    streams: Gauge,
    key: Hmac<Sha256>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Judge {
    judge: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Judged {
    judge: String,
    direction: &'static str,
    action: &'static str,
    rule: Cow<'static, str>,
    enforced: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Message {
    message: &'static str,
}

/// Metrics of an auditor: see [`Auditor::metrics`](crate::Auditor::metrics).
#[derive(Debug, Clone)]
pub struct Metrics(pub(crate) Arc<Telemetry>);

impl Metrics {
    /// Returns the metrics in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut text, &self.0.registry);
        text
    }
}

impl Telemetry {
    /// Creates the metrics. Texts are hashed with `key`, or with a random one.
    pub(crate) fn new(key: Option<&str>) -> io::Result<Self> {
        let random: [u8; 32];
        let key = match key {
            Some(key) => key.as_bytes(),
            None => {
                random = random_key()?;
                &random
            }
        };
        let key = Hmac::new_from_slice(key).map_err(io::Error::other)?;
        let durations: fn() -> Histogram = || Histogram::new(DURATIONS);
        let mut telemetry = Self {
            registry: Registry::with_prefix("lucid_auditor"),
            requests: Family::default(),
            verdicts: Family::default(),
            failures: Family::default(),
            durations: Family::new_with_constructor(durations),
            bytes: Family::default(),
            streams: Gauge::default(),
            key,
        };
        let registry = &mut telemetry.registry;
        registry.register("requests", "Requests by status code", telemetry.requests.clone());
        registry.register(
            "verdicts",
            "Verdicts by judge, direction (prompt, completion, tool_call, tool_result), action (allow, deny, mask), rule and enforced",
            telemetry.verdicts.clone(),
        );
        registry.register("judge_failures", "Errors and timeouts of judges", telemetry.failures.clone());
        registry.register_with_unit(
            "verdict_duration",
            "Time of one verdict",
            Unit::Seconds,
            telemetry.durations.clone(),
        );
        registry.register_with_unit(
            "forwarded",
            "Received bodies by message (request, answer)",
            Unit::Bytes,
            telemetry.bytes.clone(),
        );
        registry.register("streams", "Answers in progress", telemetry.streams.clone());
        Ok(telemetry)
    }

    pub(crate) fn count_request(&self, status: StatusCode) {
        self.requests.get_or_create(&Answered { code: status.as_u16() }).inc();
    }

    pub(crate) fn count_bytes(&self, message: &'static str, bytes: usize) {
        self.bytes.get_or_create(&Message { message }).inc_by(bytes as u64);
    }

    /// Counts a verdict of `judge`, which took `elapsed`.
    pub(crate) fn count_verdict(
        &self,
        judge: &str,
        direction: Direction,
        (action, rule): (&'static str, &Cow<'static, str>),
        is_enforced: bool,
    ) {
        let (judge, direction, rule) = (judge.to_owned(), direction.as_str(), rule.clone());
        let enforced = if is_enforced { "true" } else { "false" };
        self.verdicts.get_or_create(&Judged { judge, direction, action, rule, enforced }).inc();
    }

    pub(crate) fn count_failure(&self, judge: &str) {
        self.failures.get_or_create(&Judge { judge: judge.to_owned() }).inc();
    }

    pub(crate) fn observe_duration(&self, judge: &str, elapsed: Duration) {
        self.durations.get_or_create(&Judge { judge: judge.to_owned() }).observe(elapsed.as_secs_f64());
    }

    /// Logs a denial, or the replacement of a part of the text.
    pub(crate) fn log(
        &self,
        judge: &str,
        passage: &Passage<'_>,
        (action, rule): (&str, &str),
        text: &str,
        is_enforced: bool,
    ) {
        tracing::warn!(
            judge,
            action,
            rule,
            enforced = is_enforced,
            direction = passage.direction.as_str(),
            role = passage.role.as_deref(),
            choice = passage.choice,
            location = &*passage.location,
            text_hmac = self.hash(text),
            "verdict"
        );
    }

    /// Returns the HMAC-SHA256 of a text (RFC 2104), shortened to 128 bits, in hexadecimal digits. Equal texts have equal
    /// hashes, and the text cannot be guessed without the key.
    fn hash(&self, text: &str) -> String {
        let code = self.key.clone().chain_update(text).finalize().into_bytes();
        code.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Open {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        telemetry.streams.inc();
        Self(telemetry.streams.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn random_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    Ok(key)
}
