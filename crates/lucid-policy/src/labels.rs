//! The label that every pod has to have, and names that nobody reads.

use lucid_chain::{keys, nearest};

use crate::case::Case;
use crate::finding::Problem;
use crate::findings::Findings;
use crate::text;

/// A label that every pod has to have, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredLabel {
    /// Its key.
    pub key: String,
    /// The values that are accepted; with none, any will do.
    pub values: Vec<String>,
}

impl Default for RequiredLabel {
    /// `lucid.computing/tier` with `A` or `B`.
    fn default() -> Self {
        Self { key: keys::TIER.to_owned(), values: vec!["A".to_owned(), "B".to_owned()] }
    }
}

/// The labels that Lucid reads.
const LABELS: [&str; 3] = [keys::SECURED_LABEL, keys::BREAK_GLASS, keys::TIER];
/// The annotations that Lucid reads.
const ANNOTATIONS: [&str; 10] = [
    keys::AUDITORS,
    keys::AUDITOR_CHAIN,
    keys::AUDIT_MODE,
    keys::SKIP_AUDIT,
    keys::TARGET_PORT,
    keys::DIRECTION,
    keys::SIDECAR_MODE,
    keys::INTERCEPT,
    keys::STATUS,
    keys::BREAK_GLASS_UNTIL,
];
/// How many edits make a name another one.
const EDITS: usize = 2;
/// Most labels, and most annotations, that are compared with the names above. Each takes some microseconds.
const MOST_KEYS: usize = 256;

impl Case<'_> {
    pub(crate) fn label_findings(&self, required: Option<&RequiredLabel>, findings: &mut Findings<'_>) {
        let pod = findings.pod();
        if let Some(problem) = required.and_then(|required| self.required_label(required)) {
            findings.add(&pod, problem);
        }
        // Whoever is to have a chain should hear why there is none, or another one.
        if self.is_secured() && (self.is_created() || !self.is_pod()) {
            let is_required = |key: &str| required.is_some_and(|required| required.key == key);
            let labels = self.pod().labels().take(MOST_KEYS).filter(|(key, _)| !is_required(key));
            let annotations = self.pod().annotations().take(MOST_KEYS);
            let labels = labels.filter_map(|(key, _)| misspelt("label", key));
            let annotations = annotations.filter_map(|(key, _)| misspelt("annotation", key));
            labels.chain(annotations).for_each(|problem| findings.add(&pod, problem));
        }
    }

    fn required_label(&self, required: &RequiredLabel) -> Option<Problem> {
        let RequiredLabel { key, values } = required;
        if self.is_label_old(key) {
            return None;
        }
        let (key, accepted) = (key.clone(), values.clone());
        match self.pod().label(&key) {
            None => Some(Problem::TierMissing { key, accepted }),
            Some(found) if values.is_empty() || values.iter().any(|value| value == found) => None,
            Some(found) => Some(Problem::TierInvalid { key, found: text::kept(found), accepted }),
        }
    }
}

fn misspelt(list: &'static str, key: &str) -> Option<Problem> {
    let (own, others, other): (&[&str], &[&str], _) = match list {
        "label" => (&LABELS, &ANNOTATIONS, "annotation"),
        _ => (&ANNOTATIONS, &LABELS, "label"),
    };
    if own.contains(&key) {
        return None;
    }
    let (domain, name) = key.split_once('/')?;
    // Who has a domain like ours means something of ours only when the name is like it too.
    nearest(domain, ["lucid.io", "lucid.computing"], EDITS)?;
    let like = |known: &[&'static str]| -> Option<&'static str> {
        let names = known.iter().filter_map(|known| Some(known.split_once('/')?.1));
        let meant = nearest(name, names, EDITS)?;
        let is_meant = |known: &&'static str| known.split_once('/').is_some_and(|(_, name)| name == meant);
        known.iter().copied().find(is_meant)
    };
    let meant = match (like(own), like(others)) {
        (Some(meant), _) => format!("{list} {meant}"),
        (None, Some(meant)) => format!("{other} {meant}"),
        (None, None) => return None,
    };
    Some(Problem::Misspelt { list, key: text::kept(key), meant })
}
