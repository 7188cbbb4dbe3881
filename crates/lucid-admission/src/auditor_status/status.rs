//! Computes the status of an Auditor, without I/O.

use std::borrow::Cow;

use crate::cluster::{Acceptance, AuditorObject, AuditorStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use lucid_notary::{CheckedVerdict, Digest, ImageReference, NotaryVerdict, Provenance};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notarization {
    pub(super) status: &'static str,
    reason: Cow<'static, str>,
    message: String,
}

impl Notarization {
    /// Returns `true` unless the Verifier is needed and has not responded.
    pub(super) fn is_known(&self) -> bool {
        self.status != UNKNOWN
    }

    /// Returns the notarization in the status of `object`, unless it is unknown or about another generation.
    pub(super) fn found(object: &AuditorObject) -> Option<Self> {
        let AuditorStatus { observed_generation, conditions, .. } = &object.status;
        let conditions = conditions.iter().filter(|_| *observed_generation == object.generation);
        let condition = conditions.into_iter().find(|condition| condition.type_ == NOTARIZED)?;
        let known = ["True", "False"].into_iter().find(|known| *known == condition.status)?;
        Some(Self {
            status: known,
            reason: condition.reason.clone().into(),
            message: condition.message.clone(),
        })
    }
}

const NOTARIZED: &str = "Notarized";

/// Maximum length of a message in the schema.
const MAX_MESSAGE: usize = 4096;

pub(super) const UNKNOWN: &str = "Unknown";

/// Parses an image with its digest, or returns the notarization of an image without one.
pub(super) fn image(image: &str) -> Result<(ImageReference, Digest), Notarization> {
    let reference: ImageReference = image.parse().map_err(|error| Notarization {
        status: UNKNOWN,
        reason: "InvalidImage".into(),
        message: format!("spec.image: {error}"),
    })?;
    let digest = reference.digest().cloned().ok_or_else(|| Notarization {
        status: "False",
        reason: "MissingDigest".into(),
        message: format!(
            "spec.image: expected an image with its digest, <image>@sha256:<64 hex digits>; found {image}"
        ),
    })?;
    Ok((reference, digest))
}

/// Converts the response about `digest`; `None` means that no Verifier is configured.
pub(super) fn notarization(digest: &Digest, checked: Option<&CheckedVerdict>) -> Notarization {
    let (status, reason, message) = match checked.map(|checked| (&checked.verdict, checked.provenance)) {
        Some((NotaryVerdict::Notarized, Provenance::Allowlist)) => {
            ("True", "OnAllowlist", format!("the allowlist contains {digest}; the Verifier was not called"))
        }
        Some((NotaryVerdict::Notarized, Provenance::Signatures)) => {
            ("True", "Signed", format!("{digest} is signed as its policy requires"))
        }
        Some((NotaryVerdict::Notarized, _)) => ("True", "Notarized", format!("the Verifier knows {digest}")),
        Some((NotaryVerdict::NotNotarized, _)) => {
            ("False", "NotNotarized", format!("the Verifier does not know {digest}"))
        }
        Some((NotaryVerdict::NotSigned { reason }, _)) => {
            ("False", "NotNotarized", format!("{digest} is not notarized: {reason}"))
        }
        Some((NotaryVerdict::Unknown { reason }, _)) => {
            (UNKNOWN, "NoAnswer", format!("it is not known whether {digest} is notarized: {reason}"))
        }
        None => (UNKNOWN, "NoVerifier", "no Verifier is configured".to_owned()),
    };
    Notarization { status, reason: reason.into(), message }
}

/// Returns `None` if the status is up to date. Depends only on object and verdict, so all replicas write the same
/// status.
pub(super) fn status(
    object: &AuditorObject,
    notarization: &Notarization,
    now: Timestamp,
) -> Option<AuditorStatus> {
    let found = &object.status;
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        let before = found.conditions.iter().find(|before| before.type_ == type_);
        let since =
            before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message[..message.floor_char_boundary(MAX_MESSAGE)].to_owned(),
            observed_generation: Some(object.generation),
            last_transition_time: since.unwrap_or(Time(now)),
        }
    };
    let (ready, reason) = match &object.acceptance {
        Acceptance::Accepted => ("True", "Accepted"),
        Acceptance::Invalid(_) => ("False", "Invalid"),
        Acceptance::NameTaken(_) => ("False", "NameTaken"),
        Acceptance::TooMany(_) => ("False", "TooMany"),
    };
    let message = object.acceptance.problem().unwrap_or("pods can use the auditor");
    let Notarization { status, reason: why, message: said } = notarization;
    let wanted = AuditorStatus {
        notarized: (*status).to_owned(),
        observed_generation: object.generation,
        conditions: vec![condition("Ready", ready, reason, message), condition(NOTARIZED, status, why, said)],
    };
    // The wording of `NoAnswer` may differ between requests and replicas.
    let is_same = |(found, wanted): (&Condition, &Condition)| {
        let found = if found.reason == "NoAnswer" {
            &Condition { message: wanted.message.clone(), ..found.clone() }
        } else {
            found
        };
        found == wanted
    };
    let is_found = found.notarized == wanted.notarized
        && found.observed_generation == wanted.observed_generation
        && found.conditions.len() == wanted.conditions.len()
        && found.conditions.iter().zip(&wanted.conditions).all(is_same);
    (!is_found).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn object(generation: i64, status: Value, acceptance: Acceptance) -> AuditorObject {
        AuditorObject {
            name: "pii".to_owned(),
            generation,
            resource_version: String::new(),
            image: format!("r.test/pii@{DIGEST}"),
            status: serde_json::from_value(status).unwrap_or_default(),
            acceptance,
        }
    }

    fn verdict(verdict: &NotaryVerdict) -> Notarization {
        from(Provenance::Verifier, verdict)
    }

    fn from(provenance: Provenance, verdict: &NotaryVerdict) -> Notarization {
        notarization(&DIGEST.parse().unwrap(), Some(&CheckedVerdict::new(verdict.clone(), provenance)))
    }

    fn lines(status: &AuditorStatus) -> Vec<String> {
        let line = |it: &Condition| {
            format!("{} {} {} {}", it.type_, it.status, it.reason, it.last_transition_time.0.as_second())
        };
        status.conditions.iter().map(line).collect()
    }

    #[test]
    fn only_changes_are_written_with_their_transition_time() {
        let first = status(
            &object(1, Value::Null, Acceptance::Accepted),
            &verdict(&NotaryVerdict::NotNotarized),
            at(10),
        );
        let first = first.unwrap();
        assert_eq!(lines(&first), ["Ready True Accepted 10", "Notarized False NotNotarized 10"]);
        assert_eq!(first.notarized, "False");
        let found = object(1, json!(first), Acceptance::Accepted);
        assert_eq!(status(&found, &verdict(&NotaryVerdict::NotNotarized), at(20)), None);
        let second = status(&found, &verdict(&NotaryVerdict::Notarized), at(30)).unwrap();
        assert_eq!(lines(&second), ["Ready True Accepted 10", "Notarized True Notarized 30"]);
        // A new generation is written even if nothing else changed.
        let found = object(2, json!(second), Acceptance::Accepted);
        let third = status(&found, &verdict(&NotaryVerdict::Notarized), at(40)).unwrap();
        assert_eq!((lines(&third), third.observed_generation), (lines(&second), 2));
    }

    #[test]
    fn the_status_names_the_source_of_trust() {
        let age = std::time::Duration::from_secs(1);
        for (provenance, reason, message) in [
            (Provenance::Verifier, "Notarized", "the Verifier knows sha256:aaa"),
            (Provenance::Cached { age }, "Notarized", "the Verifier knows sha256:aaa"),
            (Provenance::Allowlist, "OnAllowlist", "the allowlist contains sha256:aaa"),
            (Provenance::Signatures, "Signed", "sha256:aaa"),
        ] {
            let said = from(provenance, &NotaryVerdict::Notarized);
            assert_eq!((said.status, &*said.reason), ("True", reason));
            assert!(said.message.starts_with(message), "{}", said.message);
        }
    }

    #[test]
    fn rewording_of_verifier_errors_does_not_count_as_a_change() {
        let unknown = |reason: &str| verdict(&NotaryVerdict::Unknown { reason: reason.to_owned() });
        let first =
            status(&object(1, Value::Null, Acceptance::Accepted), &unknown("refused"), at(1)).unwrap();
        assert_eq!(first.notarized, "Unknown");
        let found = object(1, json!(first), Acceptance::Accepted);
        assert_eq!(status(&found, &unknown("timed out"), at(2)), None);
    }

    #[test]
    fn rejected_auditors_have_a_reason_and_bad_status_is_replaced() {
        let refused = Acceptance::Invalid("spec.image: found x".to_owned());
        for found in [Value::Null, json!({"notarized": 7}), json!({"conditions": "none"}), json!([])] {
            let written =
                status(&object(1, found, refused.clone()), &verdict(&NotaryVerdict::Notarized), at(1))
                    .unwrap();
            assert_eq!(lines(&written)[0], "Ready False Invalid 1");
            assert_eq!(written.conditions[0].message, "spec.image: found x");
        }
    }

    #[test]
    fn images_without_a_digest_are_not_sent_to_the_verifier() {
        let missing = image("r.test/pii:1").unwrap_err();
        assert_eq!((missing.status, &*missing.reason), ("False", "MissingDigest"));
        let invalid = image("Not An Image").unwrap_err();
        assert_eq!((invalid.status, &*invalid.reason), ("Unknown", "InvalidImage"));
        let nobody = notarization(&image(&format!("a@{DIGEST}")).unwrap().1, None);
        assert_eq!((nobody.status, &*nobody.reason), ("Unknown", "NoVerifier"));
    }
}
