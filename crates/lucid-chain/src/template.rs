//! Parts of a patch that are rendered once, with places for what differs from pod to pod.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Stands for a place in a template. JSON text never contains it: it escapes control characters.
pub(crate) const PLACE: char = '\0';

/// JSON text with places.
#[derive(Debug)]
pub(crate) struct Template {
    text: String,
    digest: [u8; 32],
}

impl Template {
    pub(crate) fn new(text: String) -> Self {
        Self { digest: Sha256::digest(&text).into(), text }
    }

    /// Fills the places, in order, with `values`, between which there is a [`PLACE`] each.
    pub(crate) fn fill(&self, values: String) -> Filled<'_> {
        debug_assert_eq!(self.text.matches(PLACE).count(), values.matches(PLACE).count() + 1);
        Filled { template: self, values }
    }
}

#[derive(Debug)]
pub(crate) struct Filled<'t> {
    template: &'t Template,
    values: String,
}

impl Filled<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = String::with_capacity(self.template.text.len() + self.values.len());
        let mut values = self.values.split(PLACE);
        for part in self.template.text.split(PLACE) {
            text.push_str(part);
            text.push_str(values.next().unwrap_or_default());
        }
        text
    }

    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap_or_default()
    }

    /// Adds to a hash what determines the text.
    pub(crate) fn hash(&self, hash: &mut Sha256) {
        hash.update(self.template.digest);
        hash.update(&self.values);
        hash.update("\n");
    }
}
