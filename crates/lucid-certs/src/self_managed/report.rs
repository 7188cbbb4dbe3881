//! Log messages and events about the CA.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{EventType, Recorder, Reporter},
};
use tracing::{info, warn};

use crate::{
    events,
    rotation::{Ca, Shared, Step},
};

/// A write of the Secret outside of a rotation step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repair {
    /// There was no Secret and no memory of one.
    Created,
    Deleted,
    Restored,
    /// The Secret was unusable, and there was no memory of it.
    Replaced,
    /// Part of the Secret was unusable or missing.
    Mended,
}

pub(super) struct Report {
    client: Client,
    reporter: Reporter,
}

impl Report {
    pub(super) fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter }
    }

    pub(super) fn set_reporter(&mut self, reporter: Reporter) {
        self.reporter = reporter;
    }

    pub(super) async fn repair(&self, repair: Repair, why: &str, secret: &ObjectReference, signer: &Ca) {
        let signer = signer.fingerprint;
        let (type_, reason, outcome) = match repair {
            Repair::Created => (
                EventType::Normal,
                "CertificateAuthorityCreated",
                format!("generated the certificate authority {signer}"),
            ),
            Repair::Deleted => (
                EventType::Normal,
                "CertificateAuthorityRestored",
                format!("restored with the certificate authority {signer}, and a rotation begins"),
            ),
            Repair::Restored => (
                EventType::Warning,
                "CertificateAuthorityRestored",
                format!("restored with the certificate authority {signer}"),
            ),
            Repair::Replaced => (
                EventType::Warning,
                "CertificateAuthorityReplaced",
                format!(
                    "replaced by the certificate authority {signer}; earlier ones stay trusted until they drain"
                ),
            ),
            Repair::Mended => (EventType::Warning, "CertificateAuthorityMended", "repaired".to_owned()),
        };
        let note = format!("{why}; {outcome}");
        let name = secret.name.as_deref().unwrap_or_default();
        if type_ == EventType::Warning {
            warn!(%signer, "Secret {name}: {note}");
        } else {
            info!(%signer, "Secret {name}: {note}");
        }
        self.publish(type_, reason, "Mend", note, secret).await;
    }

    pub(super) async fn step(&self, step: Step, secret: &ObjectReference, before: &Shared, after: &Shared) {
        let signer = after.signer.fingerprint;
        let (reason, note) = match step {
            Step::Publish => {
                let next = after.next.map(|next| next.fingerprint.to_string()).unwrap_or_default();
                let note = format!("the certificate authority {next} signs once every target trusts it");
                ("CertificateAuthorityPublished", note)
            }
            Step::Activate => (
                "CertificateAuthorityActivated",
                format!("the certificate authority {signer} signs, replacing {}", before.signer.fingerprint),
            ),
            Step::Replace => (
                "CertificateAuthorityReplaced",
                format!(
                    "the certificate authority {} is expired with all of its certificates; {signer} signs immediately",
                    before.signer.fingerprint
                ),
            ),
            Step::Retire => {
                let retired = before.previous.keys().filter(|ca| !after.previous.contains_key(ca));
                let retired: Vec<_> = retired.map(|ca| ca.fingerprint.to_string()).collect();
                ("CertificateAuthorityRetired", format!("no longer trusted: {}", retired.join(", ")))
            }
            Step::RecordIssuer(ca) => (
                "CertificateAuthorityHandedOn",
                format!(
                    "the certificate authority {} is in service and stays trusted; {signer} signs",
                    ca.fingerprint
                ),
            ),
            Step::None => return,
        };
        info!("{note}");
        let type_ = if step == Step::Replace { EventType::Warning } else { EventType::Normal };
        self.publish(type_, reason, "Rotate", note, secret).await;
    }

    async fn publish(
        &self,
        type_: EventType,
        reason: &str,
        action: &str,
        note: String,
        secret: &ObjectReference,
    ) {
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        events::publish(&recorder, type_, reason, action, note, secret).await;
    }
}
