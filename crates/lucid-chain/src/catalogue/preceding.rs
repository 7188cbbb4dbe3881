//! Entries of a file that were already read.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Catalogue,
    scalars::{self, IMAGE_EXPECTED, NAME_EXPECTED},
    stem,
};

/// Maximum number of entries in a file.
const ENTRIES: usize = 128;

#[derive(Default)]
pub(super) struct Preceding {
    count: usize,
    names: BTreeMap<String, String>,
    current: Option<String>,
}

impl Preceding {
    pub(super) fn name(&mut self, text: &str) -> Result<Value, String> {
        let name = scalars::name(text)?;
        self.current = Some(text.to_owned());
        match self.names.get(stem(text)) {
            Some(same) if *same == text => Err(format!("expected each name once, found {text} twice")),
            Some(same) => Err(format!("expected one of {same} and {text}, which mean the same; found both")),
            None => Ok(name),
        }
    }

    pub(super) fn add(&mut self, entry: &Map<String, Value>, base: &Catalogue) -> Result<(), String> {
        if self.count == ENTRIES {
            return Err(format!("expected at most {ENTRIES} entries, found more"));
        }
        let missing = |key, expected| format!("`{key}` is missing, expected {expected}");
        let name = self.current.take().ok_or_else(|| missing("name", NAME_EXPECTED))?;
        if !entry.contains_key("image") && base.base_of(&name).is_none() {
            return Err(missing("image", IMAGE_EXPECTED));
        }
        self.count += 1;
        self.names.insert(stem(&name).to_owned(), name);
        Ok(())
    }
}
