//! Options of the judge `regex`.

use std::path::PathBuf;

use serde::Deserialize;

use crate::rules::{self, Action, Rule, Rules, RulesError};

/// Options of the judge `regex`: rules, and files of rules.
///
/// ```yaml
/// regex:
///   file: /etc/rules/rules.yaml
///   rules:
///     - name: employee
///       pattern: \bEMP-\d{6}\b
///       action: mask
///       examples: [Ask EMP-123456]
///       counterexamples: [Ask EMP-1234567]
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RegexOptions {
    /// Rules.
    pub rules: Vec<Rule>,
    /// YAML file with a list `rules`.
    pub file: Option<PathBuf>,
    /// Consequence of a finding of rules without `action`. Default: deny.
    pub action: Action,
    /// Reason of a denial by rules without `message`, for the caller.
    pub message: Option<String>,
}

impl RegexOptions {
    /// Reads the file and compiles the rules.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no rules, or the file or a rule is invalid.
    pub fn build(self) -> Result<Rules, RulesError> {
        let mut rules = self.rules;
        if let Some(path) = &self.file {
            rules.extend(rules::read(path)?);
        }
        for rule in &mut rules {
            rule.action.get_or_insert(self.action);
            rule.message = rule.message.take().or_else(|| self.message.clone());
        }
        if rules.is_empty() {
            return rules::EmptySnafu { accepted: "rules or file" }.fail();
        }
        Rules::new(rules)
    }
}
