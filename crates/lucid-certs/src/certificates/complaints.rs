//! Saying what is wrong once, and not at each look

use std::collections::BTreeMap;

/// What is wrong now, by whom it is about
#[derive(Debug, Default)]
pub(super) struct Complaints(BTreeMap<String, String>);

impl Complaints {
    /// Says it, unless it was the last thing said about `who`
    pub(super) fn say(&mut self, who: &str, complaint: String, say: impl FnOnce(&str)) {
        if self.0.get(who) != Some(&complaint) {
            say(&complaint);
            self.0.insert(who.to_owned(), complaint);
        }
    }

    /// All is well again. Returns whether something was wrong
    pub(super) fn withdraw(&mut self, who: &str) -> bool {
        self.0.remove(who).is_some()
    }
}
