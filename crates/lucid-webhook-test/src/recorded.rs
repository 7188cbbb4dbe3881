//! Processing of warnings and audit annotations by the API server.

use std::collections::BTreeMap;

use lucid_text::names::is_name;

use crate::outcome::Dropped;

/// Total length in characters above which warnings are truncated (`truncateAtTotalRunes`).
const WARNINGS_TOTAL: usize = 4096;
/// Length in characters of a truncated warning (`truncateItemRunes`).
const WARNING_CUT: usize = 256;
const CONTROL: &str = "it contains a control character";

/// Warnings of one response to the user (`endpoints/filters/warning.go`).
#[derive(Debug, Default)]
pub(super) struct Warnings {
    seen: Vec<String>,
    written: usize,
    cutting: bool,
    pub(super) headers: Vec<String>,
    pub(super) dropped: Vec<Dropped>,
}

impl Warnings {
    pub(super) fn add(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.cutting && self.written >= WARNINGS_TOTAL {
            return self.drop(text, "there are more than 4096 characters of warnings");
        }
        if self.seen.iter().any(|seen| seen == text) {
            return;
        }
        self.seen.push(text.to_owned());
        let fits = text.contains(char::is_control) || self.written + text.chars().count() <= WARNINGS_TOTAL;
        if self.cutting || fits {
            return self.write(text);
        }
        let seen = std::mem::take(&mut self.seen);
        *self = Self { cutting: true, ..Self::default() };
        seen.iter().for_each(|text| self.write(text));
        self.seen = seen;
    }

    fn write(&mut self, text: &str) {
        let cut: String = text.chars().take(if self.cutting { WARNING_CUT } else { usize::MAX }).collect();
        if cut.contains(char::is_control) {
            return self.drop(text, CONTROL);
        }
        if cut != text {
            self.drop(text, "there are more than 4096 characters of warnings: it is cut to 256");
        }
        self.written += cut.chars().count();
        self.headers.push(cut);
    }

    fn drop(&mut self, text: &str, why: &'static str) {
        self.dropped.push(Dropped { part: format!("warning {text:?}"), why });
    }
}

/// Annotations in the audit log, and those dropped because of their key.
pub(super) fn audit_annotations<'a>(
    webhook: &str,
    annotations: impl Iterator<Item = (&'a str, &'a str)>,
) -> (BTreeMap<String, String>, Vec<Dropped>) {
    let (mut taken, mut dropped) = (BTreeMap::new(), Vec::new());
    for (key, value) in annotations {
        if is_name(key) {
            taken.insert(format!("{webhook}/{key}"), value.to_owned());
        } else {
            let part = format!("audit annotation {key:?}");
            dropped.push(Dropped { part, why: "its key is not the name part of a qualified name" });
        }
    }
    (taken, dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(warnings: impl IntoIterator<Item = String>) -> Warnings {
        let mut recorded = Warnings::default();
        warnings.into_iter().for_each(|warning| recorded.add(&warning));
        recorded
    }

    #[test]
    fn warnings_up_to_the_total_are_not_truncated() {
        let recorded = record([format!("a{}", "é".repeat(4000)), "b".repeat(95), String::new()]);
        assert_eq!(recorded.headers.len(), 2);
        assert_eq!(recorded.dropped, []);
    }

    #[test]
    fn warnings_beyond_the_total_are_truncated_or_dropped() {
        let recorded = record((0..30).map(|i| format!("{i:03}{}", "é".repeat(297))));
        assert_eq!(recorded.headers.len(), 16, "16 times 256 are 4096");
        assert!(recorded.headers.iter().all(|warning| warning.chars().count() == 256));
        assert_eq!(recorded.dropped.len(), 30);
    }

    #[test]
    fn a_control_character_drops_a_warning_unless_it_is_cut_off() {
        let recorded = record(["a\nb".into(), "fine".into(), "fine".into()]);
        assert_eq!(recorded.headers, ["fine"]);
        assert_eq!(recorded.dropped.len(), 1);
        let recorded = record(["x".repeat(4096), format!("{}\n", "y".repeat(300)), "z".repeat(9)]);
        assert_eq!(recorded.headers.len(), 3, "dropped at first, and written when all are cut");
        assert!(recorded.dropped.iter().all(|dropped| dropped.why != CONTROL));
        let recorded = record(["a\nb".into(), "x".repeat(4096), "z".repeat(9)]);
        assert_eq!(recorded.headers.len(), 2);
        assert_eq!(recorded.dropped[0].why, CONTROL);
    }
}
