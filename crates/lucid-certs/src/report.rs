//! What people get to read: log lines and events

use std::error::Error;

use kube::runtime::events::{Event, EventType, Recorder};
use tracing::{debug, info, warn};

use crate::secret::{CaOrigin, Unusable};

/// Says where the authority with this fingerprint came from. That an event is refused is logged and
/// nothing more: the authority works without it.
pub(crate) async fn report(recorder: &Recorder, ca: &str, origin: &CaOrigin) {
    let CaOrigin::Replaced { reason, secret, .. } = origin else {
        match origin {
            CaOrigin::Created => info!(ca, "certificate authority created"),
            _ => debug!(ca, "certificate authority loaded"),
        }
        return;
    };
    let why = chain(reason);
    let type_ = match reason {
        Unusable::RenewalDue { .. } => {
            info!(ca, reason = why, "certificate authority replaced");
            EventType::Normal
        }
        _ => {
            warn!(ca, reason = why, "certificate authority replaced");
            EventType::Warning
        }
    };
    let event = Event {
        type_,
        reason: "CertificateAuthorityReplaced".to_owned(),
        note: Some(format!("{why}; replaced by the certificate authority with SHA-256 {ca}")),
        action: "Replace".to_owned(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, secret).await {
        warn!(error = chain(&error), "event about the certificate authority refused");
    }
}

/// An error and its causes in one line, without what a message repeats of its cause
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}
