//! Options of the judge `phrases`.

use std::path::PathBuf;

use serde::Deserialize;

use crate::rules::{self, Action, Builtin, Rule, Rules, RulesError};

/// Options of the judge `phrases`: lists of phrases, and built-in rules.
///
/// ```yaml
/// phrases:
///   builtin: injection
///   phrases: [project bluebird]
///   file: /etc/phrases/competitors.txt
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PhrasesOptions {
    /// Phrases.
    pub phrases: Vec<String>,
    /// File of phrases: one per line. Lines that begin with `#` are comments.
    pub file: Option<PathBuf>,
    /// Rules that come with the crate.
    pub builtin: Option<Builtin>,
    /// Name of the rule for `phrases` and `file`. Default: `phrase`.
    pub rule: Option<String>,
    /// Finds phrases only as whole words. Default: true.
    pub whole_words: Option<bool>,
    /// Consequence of a finding. Default: deny.
    pub action: Action,
    /// Reason of a denial, for the caller.
    pub message: Option<String>,
    /// Text in place of a masked finding.
    pub replacement: Option<String>,
}

impl PhrasesOptions {
    /// Reads the file and compiles the rules.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no phrases, or the file or a phrase is invalid.
    pub fn build(self) -> Result<Rules, RulesError> {
        let mut phrases = self.phrases;
        if let Some(path) = &self.file {
            let text = rules::read_file(path)?;
            let lines = text.lines().map(|line| line.trim_start_matches('\u{feff}').trim());
            phrases
                .extend(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned));
        }
        let mut rules = match self.builtin {
            Some(builtin) => builtin.rules()?,
            None => Vec::new(),
        };
        if !phrases.is_empty() {
            let mut rule = Rule::phrases(self.rule.unwrap_or_else(|| "phrase".to_owned()), phrases);
            rule.whole_words = self.whole_words;
            rules.push(rule);
        }
        for rule in &mut rules {
            rule.action.get_or_insert(self.action);
            rule.message = rule.message.take().or_else(|| self.message.clone());
            rule.replacement = rule.replacement.take().or_else(|| self.replacement.clone());
        }
        if rules.is_empty() {
            return rules::EmptySnafu { accepted: "phrases, file or builtin" }.fail();
        }
        Rules::new(rules)
    }
}
