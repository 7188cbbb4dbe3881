//! Deduplicates log messages about persistent problems.

use std::collections::BTreeMap;

/// Last reported problem by subject.
#[derive(Debug, Default)]
pub(super) struct ReportedProblems(BTreeMap<String, String>);

impl ReportedProblems {
    /// Calls `report` unless `problem` was the last one of `subject`.
    pub(super) fn report(&mut self, subject: &str, problem: String, report: impl FnOnce(&str)) {
        if self.0.get(subject) != Some(&problem) {
            report(&problem);
            self.0.insert(subject.to_owned(), problem);
        }
    }

    /// Clears the problem of `subject`. Returns `true` if there was one.
    pub(super) fn resolve(&mut self, subject: &str) -> bool {
        self.0.remove(subject).is_some()
    }
}
