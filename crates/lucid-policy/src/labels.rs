//! The required label, and misspelled labels and annotations.

use lucid_chain::{PodView, keys};
use lucid_text::{Excerpt, names::nearest};

use crate::case::Case;
use crate::finding::Problem;
use crate::findings::Findings;

/// A label that every pod must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredLabel {
    /// Label key.
    pub key: String,
    /// Allowed values; if empty, any value is accepted.
    pub values: Vec<String>,
}

impl Default for RequiredLabel {
    /// `lucid.computing/tier` with `A` or `B`.
    fn default() -> Self {
        Self { key: keys::TIER.to_owned(), values: vec!["A".to_owned(), "B".to_owned()] }
    }
}

const ANY: &str = "any";
const MISSING: &str = "missing";
const INVALID: &str = "invalid";

impl RequiredLabel {
    /// Returns the tier of `pod`: the value of this label, `any` if every value is accepted, `missing` or `invalid`.
    #[must_use]
    pub(crate) fn tier(&self, pod: &PodView<'_>) -> &str {
        match pod.label(&self.key) {
            None => MISSING,
            Some(_) if self.values.is_empty() => ANY,
            Some(found) => self.values.iter().find(|value| *value == found).map_or(INVALID, String::as_str),
        }
    }

    /// Returns the possible tiers of pods.
    pub fn tiers(&self) -> impl Iterator<Item = &str> {
        let others = if self.values.is_empty() { [ANY, MISSING] } else { [INVALID, MISSING] };
        self.values.iter().map(String::as_str).chain(others)
    }
}

pub(crate) const TIER_MISSING: &str = "TierMissing";

const LABELS: [&str; 3] = [keys::SECURED_LABEL, keys::BREAK_GLASS, keys::TIER];
const ANNOTATIONS: [&str; 17] = [
    keys::UPSTREAM,
    keys::ALLOWED_HOSTS,
    keys::KEEP_PRIVILEGES,
    keys::OTHER_PORTS,
    keys::OPEN_PORTS,
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
    "lucid.computing/can-mutate",
    "lucid.computing/can-validate",
];
/// Maximum edit distance between a misspelled name and the intended one.
const MAX_EDITS: usize = 2;
/// Maximum number of labels, and of annotations, checked for misspellings. Each takes a few microseconds.
const MAX_KEYS: usize = 256;

impl Case<'_> {
    pub(crate) fn label_findings(&self, required: Option<&RequiredLabel>, findings: &mut Findings<'_>) {
        let pod = findings.pod();
        if let Some(problem) = required.and_then(|required| self.required_label(required)) {
            findings.add(&pod, problem);
        }
        // A misspelled name explains why a pod has no chain or an unexpected one.
        if self.is_secured() && (self.is_created() || !self.is_pod()) {
            let is_required = |key: &str| required.is_some_and(|required| required.key == key);
            let labels = self.pod().labels().take(MAX_KEYS).filter(|(key, _)| !is_required(key));
            let annotations = self.pod().annotations().take(MAX_KEYS);
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
        let expected = || match values.is_empty() {
            true => "any value".to_owned(),
            false => values.iter().map(|value| format!("\"{value}\"")).collect::<Vec<_>>().join(" or "),
        };
        match self.pod().label(key) {
            None => {
                let message = format!("label {key} is missing, expected {}", expected());
                Some(Problem::label(TIER_MISSING, message))
            }
            Some(found) if values.is_empty() || values.iter().any(|value| value == found) => None,
            Some(found) => {
                let message = format!("label {key}: expected {}, found {}", expected(), Excerpt(found));
                Some(Problem::label("TierInvalid", message))
            }
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
    // A similar domain alone is not a misspelling: the name has to be similar as well.
    nearest(domain, ["lucid.io", "lucid.computing"], MAX_EDITS)?;
    let like = |known: &[&'static str]| -> Option<&'static str> {
        let names = known.iter().filter_map(|known| Some(known.split_once('/')?.1));
        let meant = nearest(name, names, MAX_EDITS)?;
        let is_meant = |known: &&'static str| known.split_once('/').is_some_and(|(_, name)| name == meant);
        known.iter().copied().find(is_meant)
    };
    let meant = match (like(own), like(others)) {
        (Some(meant), _) => format!("{list} {meant}"),
        (None, Some(meant)) => format!("{other} {meant}"),
        (None, None) => return None,
    };
    let key = Excerpt(key);
    let message = format!("{list} {key} means nothing to Lucid, did you mean the {meant}?");
    Some(Problem::label("Misspelt", message).warn_if(true))
}
