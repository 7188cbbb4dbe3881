//! Decisions, and their events in the format of the API server.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use lucid_audit::correlate::{Correlator, Drift};
use lucid_audit::log::Options;
use lucid_audit::note::SigningKey;
use lucid_audit::{Anchor, Decision, Log};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{again, key};

pub(crate) const GRACE: SignedDuration = SignedDuration::from_secs(30);

pub(crate) fn time(number: u64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(number as i64 * 20)
}

pub(crate) fn decision(number: u64) -> Decision {
    let mut decision = Decision::new("validate", format!("u-{number}"));
    decision.time = time(number);
    decision.kind = "Pod".to_owned();
    decision.operation = "CREATE".to_owned();
    decision.namespace = "shop".to_owned();
    decision.name = format!("web-{number}");
    decision.user = "alice".to_owned();
    decision
}

pub(crate) fn event(number: u64) -> Value {
    let at = |millis| (time(number) + SignedDuration::from_millis(millis)).to_string();
    json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": format!("a-{number}"),
        "stage": "ResponseComplete", "verb": "create", "user": {"username": "alice"},
        "objectRef": {"resource": "pods", "namespace": "shop", "name": format!("web-{number}"), "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201}, "annotations": {},
        "requestReceivedTimestamp": at(-5), "stageTimestamp": at(20),
    })
}

pub(crate) fn annotate(event: &mut Value, anchor: &Anchor) {
    event["annotations"]["validate.lucid.computing/anchor"] = serde_json::to_string(anchor).unwrap().into();
}

pub(crate) fn feed(correlator: &mut Correlator, events: &[Value]) {
    events.iter().for_each(|event| correlator.event(event.to_string().as_bytes()));
}

pub(crate) fn brief(drifts: &[Drift]) -> Vec<String> {
    let brief = drifts.iter().map(|drift| {
        let json = json!(drift);
        let class = json["class"].as_str().unwrap();
        match (json["seq"].as_u64(), json["last"].as_u64()) {
            (Some(seq), Some(last)) => format!("{class} {seq} to {last}"),
            (Some(seq), None) => format!("{class} {seq}"),
            _ => class.to_owned(),
        }
    });
    brief.collect()
}

/// Counters of a correlation, from their JSON.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) unreadable: u64,
    pub(crate) records: u64,
    pub(crate) matched: u64,
    pub(crate) explained: u64,
    pub(crate) overruled: u64,
    pub(crate) uncovered: u64,
    pub(crate) pruned: u64,
    pub(crate) own: u64,
    pub(crate) orphans: u64,
    pub(crate) pending: u64,
}

impl Counts {
    pub(crate) fn of(correlator: &Correlator) -> Self {
        serde_json::from_value(json!(correlator.tally())).unwrap()
    }
}

pub(crate) struct Recorded {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) key: SigningKey,
    pub(crate) events: Vec<Value>,
    pub(crate) anchors: Vec<Anchor>,
    pub(crate) segment_bytes: u64,
    pub(crate) keep_bytes: u64,
}

impl Recorded {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            directory,
            key: key(),
            events: Vec::new(),
            anchors: Vec::new(),
            segment_bytes: 64 << 20,
            keep_bytes: u64::MAX,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn open(&self) -> Log {
        let options = Options::new().with_key(again(&self.key)).with_segment_bytes(self.segment_bytes);
        Log::open(self.path(), options.with_keep_bytes(self.keep_bytes)).unwrap()
    }

    /// Adds decisions, and events with their anchors.
    pub(crate) async fn decide(&mut self, numbers: impl IntoIterator<Item = u64>) {
        let log = self.open();
        for number in numbers {
            let anchor = log.append(serde_json::to_vec(&decision(number)).unwrap()).await.unwrap();
            let mut event = event(number);
            annotate(&mut event, &anchor);
            self.events.push(event);
            self.anchors.push(anchor);
        }
    }

    pub(crate) async fn append(&self, record: &impl Serialize) -> Anchor {
        self.open().append(serde_json::to_vec(record).unwrap()).await.unwrap()
    }

    pub(crate) fn correlator(&self) -> Correlator {
        let mut correlator = Correlator::new(GRACE);
        correlator.add_log(self.path(), vec![self.key.verifier().clone()]);
        correlator
    }

    pub(crate) fn correlate(&self) -> (Vec<String>, Counts) {
        let mut correlator = self.correlator();
        feed(&mut correlator, &self.events);
        correlator.read().unwrap();
        (brief(&correlator.finish(Timestamp::now())), Counts::of(&correlator))
    }

    pub(crate) fn drifts(&self) -> Vec<String> {
        self.correlate().0
    }
}
