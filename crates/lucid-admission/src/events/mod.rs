//! Events about pods whose injection failed or differs from the request.
//!
//! The events of a pod that was not created are reported on its controller, where users look. [`owner`] finds the
//! controller and [`publisher`] sends the events. Both run behind a queue, after the response is sent; overflow is
//! counted and dropped.

mod owner;
mod publisher;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Reporter;
use lucid_text::with_causes;
use lucid_webhook::AdmissionRequest;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;

use crate::injection_metrics::{EventOutcome, InjectionMetrics};
use crate::notice::Notice;
pub(crate) use owner::Subject;
pub use owner::{Owners, is_plausible as is_plausible_owner};
pub use publisher::Occurrence;
use publisher::Publisher;

const QUEUE: usize = 256;
const NOTICES: usize = 16;
/// Timeout of one event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reports events about pods whose injection failed or differs from the request. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Sender<(Subject, Vec<Notice>)>,
    metrics: InjectionMetrics,
}

impl Events {
    /// Starts a task that reports to `client`'s cluster until all clones of the result are dropped.
    #[must_use]
    pub fn start(client: Client, reporter: Reporter, metrics: InjectionMetrics) -> Self {
        let (queue, reports) = mpsc::channel(QUEUE);
        let owners = Owners::new(client.clone());
        let publisher = Publisher::new(client, reporter);
        tokio::spawn(work(reports, owners, publisher, metrics.clone()));
        Self { queue, metrics }
    }

    /// Queues `notices` about the `subject` of `request`, without waiting. Dry runs have no side effects. Callers
    /// without a client certificate are ignored: anyone could make the operator write events with its own permissions.
    pub(crate) fn report(&self, request: &AdmissionRequest, subject: Subject, mut notices: Vec<Notice>) {
        if !request.is_authenticated() || request.dry_run || notices.is_empty() {
            return;
        }
        let dropped = notices.len().saturating_sub(NOTICES);
        notices.truncate(NOTICES);
        let taken = notices.len();
        let dropped = match self.queue.try_send((subject, notices)) {
            Ok(()) => dropped,
            Err(_) => dropped + taken,
        };
        self.metrics.events(EventOutcome::Dropped, u64::try_from(dropped).unwrap_or(u64::MAX));
    }
}

async fn work(
    mut reports: Receiver<(Subject, Vec<Notice>)>,
    owners: Owners,
    mut publisher: Publisher,
    metrics: InjectionMetrics,
) {
    let mut batch = Vec::new();
    while reports.recv_many(&mut batch, QUEUE).await > 0 {
        // Controllers create pods in bursts: equal events of a batch are sent as one.
        let mut occurrences = BTreeMap::<String, (Occurrence, u32)>::new();
        for (subject, notices) in batch.drain(..) {
            let regarding = owners.regarding(&subject).await;
            for notice in notices {
                let Notice { severity, reason, text, .. } = notice;
                let occurrence = Occurrence::new(regarding.clone(), severity, reason, text);
                occurrences.entry(occurrence.key()).or_insert((occurrence, 0)).1 += 1;
            }
        }
        for (occurrence, times) in occurrences.into_values() {
            let sent = match timeout(PATIENCE, publisher.publish(&occurrence, times)).await {
                Ok(sent) => sent.map_err(|error| with_causes(&error)),
                Err(_) => Err("no response".to_owned()),
            };
            let outcome = match sent {
                Ok(()) => EventOutcome::Sent,
                Err(error) => {
                    tracing::warn!(error, %occurrence, "failed to report an event");
                    EventOutcome::Failed
                }
            };
            metrics.events(outcome, times.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use lucid_webhook::PeerCertificate;
    use prometheus_client::registry::Registry;
    use rustls::pki_types::CertificateDer;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::metadata::Metadata;
    use crate::notice::FailureReason;

    /// Builds a request of an authenticated caller.
    fn request(dry_run: bool) -> AdmissionRequest {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "shop",
                "operation": "CREATE", "userInfo": {}, "dryRun": dry_run, "object": {"metadata": {"name": "web"}},
            },
        });
        let body = Bytes::from(review.to_string());
        let mut request = AdmissionRequest::from_json(&body, Instant::now() + PATIENCE).unwrap();
        request.extensions.insert(PeerCertificate::new(CertificateDer::from(Vec::new())));
        request
    }

    fn report(events: &Events, request: &AdmissionRequest, notices: Vec<Notice>) {
        events.report(request, Subject::of(request, &Metadata::of(request, None)), notices);
    }

    fn notices(count: usize) -> Vec<Notice> {
        vec![Notice::of_failure(FailureReason::Internal, "it failed"); count]
    }

    #[test]
    fn excess_events_are_dropped_and_dry_runs_cause_none() {
        let mut registry = Registry::default();
        let metrics = InjectionMetrics::new(&mut registry);
        let dropped = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(r#"injection_events_total{outcome="dropped"} "#));
            line.unwrap().parse::<usize>().unwrap()
        };
        let (queue, mut reports) = mpsc::channel(2);
        let events = Events { queue, metrics };
        report(&events, &request(true), notices(1));
        report(&events, &request(false), notices(0));
        let mut anybody = request(false);
        anybody.extensions.remove::<PeerCertificate>();
        report(&events, &anybody, notices(1));
        assert!(reports.try_recv().is_err());
        assert_eq!(dropped(), 0);
        report(&events, &request(false), notices(NOTICES + 3));
        assert_eq!(dropped(), 3, "one pod fills no queue");
        report(&events, &request(false), notices(1));
        report(&events, &request(false), notices(2));
        assert_eq!(dropped(), 5, "nobody waits for room");
        assert_eq!(reports.try_recv().unwrap().1.len(), NOTICES);
        assert_eq!(reports.try_recv().unwrap().1.len(), 1);
    }
}
