//! The judge `regex`.

use std::path::PathBuf;

use lucid_auditor::{Judge, JudgeError, Passage, Verdict};
use serde::Deserialize;

use crate::{
    OptionsError,
    action::Action,
    options::read_text,
    rules::{self, Rule, Rules},
};

/// Options of [`Regex`]. At least one of `rules` and `file` is required.
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
pub struct RegexOptions {
    rules: Vec<Rule>,
    pub(crate) file: Option<PathBuf>,
    action: Action,
    message: Option<String>,
}

/// Finds regular expressions, in time linear in the length of the text.
///
/// ```
/// use lucid_guardrails::{Regex, RegexOptions};
///
/// let options: RegexOptions = serde_yaml::from_str(r"rules: [{name: employee, pattern: '\bEMP-\d{6}\b'}]")?;
/// let judge = Regex::new(options)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Regex(Rules);

impl Regex {
    /// Reads the file, compiles the rules, and tests them with their examples.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no rules, or the file or a rule is invalid.
    pub fn new(options: RegexOptions) -> Result<Self, OptionsError> {
        let mut rules = options.rules;
        if let Some(path) = &options.file {
            rules.extend(rules::parse("file", &read_text("file", path)?, path.display())?);
        }
        for rule in &mut rules {
            rule.action.get_or_insert(options.action);
            rule.message = rule.message.take().or_else(|| options.message.clone());
        }
        if rules.is_empty() {
            return Err(OptionsError::found("rules", "none", "at least one, here or in file"));
        }
        Ok(Self(Rules::new(&rules)?))
    }
}

impl Judge for Regex {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        Ok(self.0.verdict(&passage.text, passage.has_more))
    }

    fn overlap(&self) -> usize {
        self.0.overlap()
    }

    fn context(&self, before: &str) -> usize {
        self.0.context(before)
    }

    fn undecided(&self, text: &str) -> usize {
        self.0.undecided(text)
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
        let judge = Regex::new(serde_yaml::from_str(&yaml).unwrap()).unwrap();
        for (text, verdict) in [
            ("ID-1", Verdict::deny("id", "the text matches the rule id")),
            ("in Paris", Verdict::deny("city", "the text matches the rule city")),
            ("id-1", Verdict::Allow),
        ] {
            assert_eq!(judge.0.verdict(text, false), verdict, "{text}");
        }
        Ok(())
    }

    #[test]
    fn invalid_files_are_named() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        for (text, error) in [
            ("rules: [{name: a, patern: b}]", "file: failed to parse /"),
            ("rules: []", "rules: expected at least one, here or in file, found none"),
            (
                "rules: [{name: a, pattern: b, examples: [c]}]",
                "rules[a].examples[0]: the rule does not find this text",
            ),
        ] {
            fs::write(&file, text)?;
            let options = RegexOptions { file: Some(file.path().into()), ..Default::default() };
            let found = Regex::new(options).unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
        Ok(())
    }
}
