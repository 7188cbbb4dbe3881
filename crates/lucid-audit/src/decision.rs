use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::layout::LONGEST_RECORD;

/// One answer of a webhook.
///
/// In JSON the keys are in camelCase and what is empty is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Decision {
    /// When it was made.
    pub time: Timestamp,
    /// Which webhook made it, such as `mutate`.
    pub webhook: String,
    /// The API server's identifier of the call (`AdmissionRequest.uid`).
    pub uid: String,
    /// What was being done, such as `CREATE`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// Kind of the object, with its subresource: `Pod`, `Pod/ephemeralcontainers`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object, or its `generateName` while it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Who asked (`userInfo.username`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Nothing was to be stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Whether the request passed.
    pub allowed: bool,
    /// Whether the policy refuses it, whatever became of it: in `audit` mode, or by break-glass, it passes all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub would_deny: bool,
    /// The mode that was in force: `audit`, `enforce` or `break-glass`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// The ticket of who broke the glass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ticket: String,
    /// Whether the object was changed on its way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub patched: bool,
    /// Why, in one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What the policy found wrong, each in one sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Exemptions that kept something from being found wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exemptions: Vec<String>,
    /// The auditors of the pod's chain, by container name, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// The images that were looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageVerdict>,
    /// What the client was warned of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The record, by its seq, that this one takes back: it came to be kept too late, and this was answered instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrules: Option<u64>,
    /// Whether something was cut so that it fits into a line of the log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl Decision {
    /// A decision made now: allowed, with nothing else known yet.
    #[must_use]
    pub fn new(webhook: impl Into<String>, uid: impl Into<String>) -> Self {
        Self {
            time: Timestamp::now(),
            webhook: webhook.into(),
            uid: uid.into(),
            operation: String::new(),
            kind: String::new(),
            namespace: String::new(),
            name: String::new(),
            user: String::new(),
            dry_run: false,
            allowed: true,
            would_deny: false,
            mode: String::new(),
            ticket: String::new(),
            patched: false,
            message: String::new(),
            findings: Vec::new(),
            exemptions: Vec::new(),
            chain: Vec::new(),
            images: Vec::new(),
            warnings: Vec::new(),
            overrules: None,
            cut: false,
        }
    }

    /// The decision as a record of the log. Who writes a pod writes names and warnings, and a record has a longest length:
    /// what is too long is cut, a record is never left out for it.
    pub(crate) fn to_record(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut record = serde_json::to_vec(self)?;
        let mut most = 1 << 12;
        while record.len() > LONGEST_RECORD && most >= 32 {
            let mut shorter = self.clone();
            shorter.cut(most);
            record = serde_json::to_vec(&shorter)?;
            most /= 2;
        }
        Ok(record)
    }

    /// Cuts texts to this many bytes and lists to this many items.
    fn cut(&mut self, most: usize) {
        let Self { webhook, uid, operation, kind, namespace, name, user, mode, ticket, message, .. } = self;
        for text in [webhook, uid, operation, kind, namespace, name, user, mode, ticket, message] {
            cut_text(text, most);
        }
        for list in [&mut self.findings, &mut self.exemptions, &mut self.chain, &mut self.warnings] {
            list.truncate(most);
            list.iter_mut().for_each(|text| cut_text(text, most));
        }
        self.images.truncate(most);
        for ImageVerdict { container, image, verdict } in &mut self.images {
            [container, image, verdict].into_iter().for_each(|text| cut_text(text, most));
        }
        self.cut = true;
    }
}

fn cut_text(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}

/// What was known of one image when the decision was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ImageVerdict {
    /// The container.
    pub container: String,
    /// Its image as the pod names it.
    pub image: String,
    /// `notarized`, `not notarized`, `missing digest`, or why it could not be told.
    pub verdict: String,
}

impl ImageVerdict {
    /// What was known of the image of `container`, as the pod names it.
    #[must_use]
    pub fn new(container: impl Into<String>, image: impl Into<String>, verdict: impl Into<String>) -> Self {
        Self { container: container.into(), image: image.into(), verdict: verdict.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_pod_brings_fits_into_a_line() {
        let text = "\u{1}\u{e9}".repeat(5_000);
        let mut decision = Decision::new("validate", "u-1");
        decision.namespace = "shop".into();
        decision.user = text.clone();
        decision.warnings = vec![text.clone(); 200];
        decision.findings = decision.warnings.clone();
        let image = ImageVerdict::new(text.clone(), text.clone(), text);
        decision.images = vec![image; 200];
        let record = decision.to_record().unwrap();
        assert!(record.len() <= LONGEST_RECORD, "{}", record.len());
        let read: Decision = serde_json::from_slice(&record).unwrap();
        assert!(read.cut && !read.warnings.is_empty() && !read.images.is_empty());
        assert_eq!((read.uid.as_str(), read.namespace.as_str(), read.time), ("u-1", "shop", decision.time));
    }

    #[test]
    fn what_fits_is_not_cut() {
        let mut decision = Decision::new("validate", "u-1");
        decision.warnings = vec!["x".repeat(1000); 60];
        let read: Decision = serde_json::from_slice(&decision.to_record().unwrap()).unwrap();
        assert_eq!(read, decision);
    }
}
