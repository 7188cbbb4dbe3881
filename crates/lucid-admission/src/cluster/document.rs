//! Content of a ConfigMap in Lucid's namespace: the last valid one. No I/O.

use crate::cluster::namespaces::Data;

/// The last valid content of a ConfigMap.
#[derive(Debug)]
pub(crate) struct Document<T> {
    name: &'static str,
    /// `true` if there is no content while the ConfigMap is absent. Otherwise absence is valid content.
    is_optional: bool,
    is_read: bool,
    /// `None` until valid content was read, or the ConfigMap was found absent.
    content: Option<T>,
    problem: Option<String>,
}

impl<T: Default> Document<T> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, is_optional: false, is_read: false, content: None, problem: None }
    }

    /// Creates a document that need not exist, and that readiness does not depend on.
    pub(crate) fn optional(name: &'static str) -> Self {
        Self { is_optional: true, ..Self::new(name) }
    }

    /// Reads the data of the ConfigMap, `None` if it does not exist, which is valid. Invalid data is reported and
    /// leaves the content unchanged: without it, the process would be configured more weakly than the administrator
    /// intended.
    pub(crate) fn set(
        &mut self,
        namespace: &str,
        data: Option<&Data>,
        read: impl FnOnce(&Data) -> Result<T, String>,
    ) {
        self.is_read = true;
        match data.map(read).transpose() {
            Ok(None) if self.is_optional => (self.content, self.problem) = (None, None),
            Ok(content) => (self.content, self.problem) = (Some(content.unwrap_or_default()), None),
            Err(problem) => {
                let kept = match self.content {
                    Some(_) => "; the last valid content stays in use",
                    None if self.is_optional => "",
                    None => "; this replica is not ready until it is valid",
                };
                let problem = format!("ConfigMap {namespace}/{}, {problem}{kept}", self.name);
                tracing::warn!("{problem}");
                self.problem = Some(problem);
            }
        }
    }

    pub(crate) fn content(&self) -> Result<&T, String> {
        self.content.as_ref().ok_or_else(|| {
            let why = if self.is_read { "does not exist" } else { "has not been read" };
            self.problem.clone().unwrap_or_else(|| format!("ConfigMap {} {why}", self.name))
        })
    }

    pub(crate) const fn is_read(&self) -> bool {
        self.is_read
    }

    pub(crate) fn problem(&self) -> Option<&String> {
        self.problem.as_ref()
    }
}

/// Returns the value of the only `key` of a ConfigMap.
pub(crate) fn value<'a>(data: &'a Data, key: &str) -> Result<&'a str, String> {
    data.get(key).map(String::as_str).ok_or_else(|| {
        let found: Vec<&str> = data.keys().map(String::as_str).collect();
        format!("keys: expected {key}, found {found:?}")
    })
}
