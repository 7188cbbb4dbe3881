//! Options of the judge `regex`.

use std::path::PathBuf;

use serde::Deserialize;

use crate::{
    Action,
    rules::{self, Rule, Rules, RulesError},
};

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

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use super::*;

    #[test]
    fn rules_come_from_the_options_and_a_file() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(&file, "rules: [{name: city, phrases: [Paris], examples: [in paris]}]")?;
        let yaml =
            format!("{{rules: [{{name: id, pattern: 'ID-\\d+', exact: true}}], file: {:?}}}", file.path());
        let options: RegexOptions = serde_yaml::from_str(&yaml).unwrap();
        let rules = options.build().unwrap();
        assert_eq!(rules.matching("ID-1 in Paris"), ["id", "city"]);
        assert_eq!(rules.matching("id-1"), [""; 0]);
        Ok(())
    }

    #[test]
    fn invalid_files_are_named() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        for (text, error) in [
            ("rules: [{name: a, patern: b}]", "failed to parse the rules in"),
            ("rules: []", "no rules: set rules or file"),
            (
                "rules: [{name: a, pattern: b, examples: [c]}]",
                "invalid rule \"a\": examples[0] does not match",
            ),
        ] {
            fs::write(&file, text)?;
            let options = RegexOptions { file: Some(file.path().into()), ..Default::default() };
            let found = options.build().unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
        Ok(())
    }
}
