//! Deduplicates log messages about persistent problems.

use std::collections::BTreeMap;

/// Last reported problem by subject.
#[derive(Debug, Default)]
pub(super) struct Complaints(BTreeMap<String, String>);

impl Complaints {
    /// Calls `say` unless `complaint` was the last one about `who`.
    pub(super) fn say(&mut self, who: &str, complaint: String, say: impl FnOnce(&str)) {
        if self.0.get(who) != Some(&complaint) {
            say(&complaint);
            self.0.insert(who.to_owned(), complaint);
        }
    }

    /// Clears the problem of `who`. Returns `true` if there was one.
    pub(super) fn withdraw(&mut self, who: &str) -> bool {
        self.0.remove(who).is_some()
    }
}
