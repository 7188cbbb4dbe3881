//! Log messages and events about the CA.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use snafu::Snafu;
use tracing::{info, warn};

use super::contents::Unusable;
use crate::chain;
use crate::rotation::{Ca, Shared, Step};

/// Reason why the Secret was written outside of a rotation step.
#[derive(Debug, Snafu)]
pub(super) enum RepairReason {
    /// There was no Secret and no memory of one.
    #[snafu(display("there was none"))]
    Created,
    #[snafu(display("deleted"))]
    Deleted,
    /// The Secret was unusable and was restored from memory.
    #[snafu(display("{}", chain(source)))]
    Restored { source: Unusable },
    /// The Secret was unusable and there was no memory of it.
    #[snafu(display("{}", chain(source)))]
    Replaced { source: Unusable },
    /// Part of the Secret was unusable.
    #[snafu(display("{damage}"))]
    Damaged { damage: String },
    /// Records of revoked or previous CAs were missing.
    #[snafu(display("it did not tell any more which authorities are revoked or in service"))]
    Forgotten,
}

pub(super) struct Report {
    client: Client,
    reporter: Reporter,
}

impl Report {
    pub(super) fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter }
    }

    /// Reports a repair of the Secret.
    pub(super) async fn report_repair(&self, why: &RepairReason, secret: &ObjectReference, signer: &Ca) {
        let signer = signer.fingerprint;
        let (type_, reason, outcome) = match why {
            RepairReason::Created => (
                EventType::Normal,
                "CertificateAuthorityCreated",
                format!("made the certificate authority with SHA-256 {signer}"),
            ),
            RepairReason::Deleted => (
                EventType::Normal,
                "CertificateAuthorityRestored",
                format!("put back with the certificate authority {signer}, which is rotated now"),
            ),
            RepairReason::Restored { .. } => (
                EventType::Warning,
                "CertificateAuthorityRestored",
                format!("the certificate authority {signer} was put back"),
            ),
            RepairReason::Replaced { .. } => (
                EventType::Warning,
                "CertificateAuthorityReplaced",
                format!(
                    "replaced by the certificate authority with SHA-256 {signer}. What callers trusted before stays \
                     trusted for a while"
                ),
            ),
            RepairReason::Damaged { .. } | RepairReason::Forgotten => {
                (EventType::Warning, "CertificateAuthorityMended", "put in order".to_owned())
            }
        };
        let note = format!("{why}; {outcome}");
        if type_ == EventType::Warning {
            warn!(%signer, "Secret {}: {note}", secret.name.as_deref().unwrap_or_default());
        } else {
            info!(%signer, "Secret {}: {note}", secret.name.as_deref().unwrap_or_default());
        }
        self.publish(type_, reason, note, "Mend", secret).await;
    }

    pub(super) async fn step(&self, step: Step, secret: &ObjectReference, before: &Shared, after: &Shared) {
        let signer = after.signer.fingerprint;
        let (reason, note) = match step {
            Step::Publish => {
                let next = after.next.map(|next| next.fingerprint.to_string()).unwrap_or_default();
                let note = format!("the certificate authority {next} will sign when every target trusts it");
                ("CertificateAuthorityPublished", note)
            }
            Step::Activate => (
                "CertificateAuthorityActivated",
                format!(
                    "the certificate authority {signer} signs from now on, {} before",
                    before.signer.fingerprint
                ),
            ),
            Step::Replace => (
                "CertificateAuthorityReplaced",
                format!(
                    "the certificate authority {} is expired, and so are all its certificates; {signer} signs at once",
                    before.signer.fingerprint
                ),
            ),
            Step::Retire => {
                let retired = before.previous.difference(&after.previous);
                let retired: Vec<_> = retired.map(|previous| previous.ca.fingerprint.to_string()).collect();
                ("CertificateAuthorityRetired", format!("not trusted any more: {}", retired.join(", ")))
            }
            Step::RecordIssuer(ca) => (
                "CertificateAuthorityHandedOn",
                format!("{} is still in service and stays trusted; {signer} signs", ca.fingerprint),
            ),
            Step::None => return,
        };
        info!("{note}");
        let type_ = if step == Step::Replace { EventType::Warning } else { EventType::Normal };
        self.publish(type_, reason, note, "Rotate", secret).await;
    }

    /// Publishes an event. A failure is only logged, because the CA works without events.
    async fn publish(
        &self,
        type_: EventType,
        reason: &str,
        note: String,
        action: &str,
        secret: &ObjectReference,
    ) {
        // Notes are limited to 1,024 bytes.
        let note = Some(note.chars().take(250).collect());
        let event =
            Event { type_, reason: reason.to_owned(), note, action: action.to_owned(), secondary: None };
        // A shared recorder would aggregate events with the same reason and keep only the first note.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        if let Err(error) = recorder.publish(&event, secret).await {
            warn!(error = chain(&error), "event about the certificate authority refused");
        }
    }
}
