//! What people get to read: log lines and events

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

/// Why the Secret was written without a step being due
#[derive(Debug, Snafu)]
pub(super) enum Why {
    /// There was none, and nobody knew of one
    #[snafu(display("there was none"))]
    Created,
    /// There was none any more
    #[snafu(display("deleted"))]
    Deleted,
    /// It could not be used, and was put back from memory
    #[snafu(display("{}", chain(source)))]
    Restored { source: Unusable },
    /// It could not be used, and nobody knew what it had been
    #[snafu(display("{}", chain(source)))]
    Replaced { source: Unusable },
    /// Something in it could not be used
    #[snafu(display("{damage}"))]
    Damaged { damage: String },
    /// It did not say any more what is revoked or in service
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

    /// The Secret was put in order.
    pub(super) async fn mended(&self, why: &Why, secret: &ObjectReference, signer: &Ca) {
        let signer = signer.fingerprint;
        let (type_, reason, outcome) = match why {
            Why::Created => (
                EventType::Normal,
                "CertificateAuthorityCreated",
                format!("made the certificate authority with SHA-256 {signer}"),
            ),
            Why::Deleted => (
                EventType::Normal,
                "CertificateAuthorityRestored",
                format!("put back with the certificate authority {signer}, which is rotated now"),
            ),
            Why::Restored { .. } => (
                EventType::Warning,
                "CertificateAuthorityRestored",
                format!("the certificate authority {signer} was put back"),
            ),
            Why::Replaced { .. } => (
                EventType::Warning,
                "CertificateAuthorityReplaced",
                format!(
                    "replaced by the certificate authority with SHA-256 {signer}. What callers trusted before stays \
                     trusted for a while"
                ),
            ),
            Why::Damaged { .. } | Why::Forgotten => {
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

    /// A step was made.
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
            Step::HandOn(ca) => (
                "CertificateAuthorityHandedOn",
                format!("{} is still in service and stays trusted; {signer} signs", ca.fingerprint),
            ),
            Step::Rest => return,
        };
        info!("{note}");
        let type_ = if step == Step::Replace { EventType::Warning } else { EventType::Normal };
        self.publish(type_, reason, note, "Rotate", secret).await;
    }

    /// That an event is refused is logged and nothing more: the authority works without it.
    async fn publish(
        &self,
        type_: EventType,
        reason: &str,
        note: String,
        action: &str,
        secret: &ObjectReference,
    ) {
        // The API server takes at most 1,024 bytes.
        let note = Some(note.chars().take(250).collect());
        let event =
            Event { type_, reason: reason.to_owned(), note, action: action.to_owned(), secondary: None };
        // Of several with one reason, a recorder would show the note of the first.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        if let Err(error) = recorder.publish(&event, secret).await {
            warn!(error = chain(&error), "event about the certificate authority refused");
        }
    }
}
