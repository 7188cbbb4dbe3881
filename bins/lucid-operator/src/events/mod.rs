//! Events about pods that did not get what they asked for, or not as it is written.
//!
//! A pod that a controller could not create is nowhere: its user looks at the controller. [`owner`] knows which object
//! that is, [`publisher`] brings the events to the API server. Both work behind a queue, after the request was answered; what
//! does not fit into the queue is counted and dropped.

mod owner;
mod publisher;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Reporter;
use lucid_webhook::AdmissionRequest;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;

use crate::metrics::{EventOutcome, Metrics};
use crate::notice::Notice;
use owner::{Owners, Subject};
use publisher::{Occurrence, Publisher};

/// How many pods may wait to be reported.
const QUEUE: usize = 256;
/// How much is reported of one pod.
const NOTICES: usize = 16;
/// How long the API server may take for one event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where events are handed in. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: Sender<(Subject, Vec<Notice>)>,
    metrics: Metrics,
}

impl Events {
    /// Starts a task that reports to `client`'s cluster, for as long as there are clones of the result.
    pub(crate) fn start(client: Client, reporter: Reporter, metrics: Metrics) -> Self {
        let (queue, reports) = mpsc::channel(QUEUE);
        let owners = Owners::new(client.clone());
        let publisher = Publisher::new(client, reporter);
        tokio::spawn(work(reports, owners, publisher, metrics.clone()));
        Self { queue, metrics }
    }

    /// Reports `notices` about the pod of `request`; nothing of a dry run, which leaves nothing behind. Does not wait.
    pub(crate) fn report(&self, request: &AdmissionRequest, mut notices: Vec<Notice>) {
        if request.dry_run || notices.is_empty() {
            return;
        }
        let dropped = notices.len().saturating_sub(NOTICES);
        notices.truncate(NOTICES);
        let taken = notices.len();
        let dropped = match self.queue.try_send((Subject::of(request), notices)) {
            Ok(()) => dropped,
            Err(_) => dropped + taken,
        };
        self.metrics.events(EventOutcome::Dropped, u64::try_from(dropped).unwrap_or(u64::MAX));
    }
}

async fn work(
    mut reports: Receiver<(Subject, Vec<Notice>)>,
    mut owners: Owners,
    mut publisher: Publisher,
    metrics: Metrics,
) {
    let mut batch = Vec::new();
    while reports.recv_many(&mut batch, QUEUE).await > 0 {
        // A controller creates pods in bursts: what is said of all of them is sent once.
        let mut occurrences = BTreeMap::<Occurrence, u32>::new();
        for (subject, notices) in batch.drain(..) {
            let regarding = owners.regarding(&subject).await;
            for notice in notices {
                *occurrences.entry(Occurrence::new(&regarding, notice)).or_default() += 1;
            }
        }
        for (occurrence, times) in occurrences {
            let sent = match timeout(PATIENCE, publisher.publish(&occurrence, times)).await {
                Ok(Ok(())) => EventOutcome::Sent,
                Ok(Err(error)) => {
                    let error = lucid_process::with_causes(&error);
                    tracing::warn!(error, %occurrence, "failed to report an event");
                    EventOutcome::Failed
                }
                Err(_) => {
                    tracing::warn!(error = "no answer", %occurrence, "failed to report an event");
                    EventOutcome::Failed
                }
            };
            metrics.events(sent, times.into());
        }
    }
}
