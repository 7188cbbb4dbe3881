//! Processing of warnings and audit annotations by the API server.

use std::collections::{BTreeMap, BTreeSet};

use lucid_webhook::names::is_name;

use crate::outcome::Dropped;

/// Total length in characters above which warnings are truncated (`truncateAtTotalRunes`).
const WARNINGS_TOTAL: usize = 4096;
/// Length in characters of a truncated warning (`truncateItemRunes`).
const WARNING_CUT: usize = 256;
const CONTROL: &str = "it contains a control character";

/// Warnings of one response to the user (`endpoints/filters/warning.go`).
#[derive(Debug, Default)]
pub(super) struct Warnings {
    seen: BTreeSet<String>,
    ordered: Vec<String>,
    written: usize,
    cutting: bool,
    pub(super) headers: Vec<String>,
    pub(super) dropped: Vec<Dropped>,
}

impl Warnings {
    pub(super) fn add(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        if self.cutting && self.written >= WARNINGS_TOTAL {
            return self.drop(&text, "there are more than 4096 characters of warnings");
        }
        if !self.seen.insert(text.clone()) {
            return;
        }
        self.ordered.push(text.clone());
        let cut = if self.cutting { cut_text(&text) } else { text.clone() };
        if cut.contains(char::is_control) {
            return self.drop(&text, CONTROL);
        }
        let length = cut.chars().count();
        if self.cutting || self.written + length <= WARNINGS_TOTAL {
            self.write(&text, cut);
            return;
        }
        self.cutting = true;
        self.written = 0;
        self.headers.clear();
        self.dropped.clear();
        for text in std::mem::take(&mut self.ordered) {
            let cut = cut_text(&text);
            if cut.contains(char::is_control) {
                self.drop(&text, CONTROL);
            } else {
                self.write(&text, cut);
            }
            self.ordered.push(text);
        }
    }

    fn write(&mut self, text: &str, cut: String) {
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

fn cut_text(text: &str) -> String {
    text.chars().take(WARNING_CUT).collect()
}

/// Annotations in the audit log, and those dropped because of their key.
pub(super) fn audit_annotations(
    webhook: &str,
    annotations: BTreeMap<String, String>,
) -> (BTreeMap<String, String>, Vec<Dropped>) {
    let (taken, dropped): (Vec<_>, Vec<_>) = annotations.into_iter().partition(|(key, _)| is_name(key));
    let taken = taken.into_iter().map(|(key, value)| (format!("{webhook}/{key}"), value)).collect();
    let why = "its key is not the name part of a qualified name";
    let dropped =
        dropped.into_iter().map(|(key, _)| Dropped { part: format!("audit annotation {key:?}"), why });
    (taken, dropped.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(warnings: impl IntoIterator<Item = String>) -> Warnings {
        let mut recorded = Warnings::default();
        warnings.into_iter().for_each(|warning| recorded.add(warning));
        recorded
    }

    #[test]
    fn warnings_up_to_the_total_are_whole() {
        let recorded = record([format!("a{}", "é".repeat(4000)), "b".repeat(95), String::new()]);
        assert_eq!(recorded.headers.len(), 2);
        assert_eq!(recorded.dropped, []);
    }

    #[test]
    fn beyond_the_total_all_are_cut_and_later_ones_dropped() {
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
