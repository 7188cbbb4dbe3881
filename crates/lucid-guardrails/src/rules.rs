//! Rules: phrases and patterns with an action.

mod builtin;
mod matcher;
mod pattern;

use std::{borrow::Cow, fmt};

use lucid_auditor::{Span, Verdict};
use serde::Deserialize;

pub use self::builtin::Builtin;
use self::matcher::{Finding, Matcher};
use crate::{OptionsError, action::Action, spans};

/// Maximum length of a rule's name, which is a label value of metrics.
const MAX_NAME: usize = 63;

/// Phrases or a pattern with an action, as in a rule file.
///
/// Text is folded before it is compared, unless the rule is `exact`: letter case, accents, white space, invisible characters and
/// letters that look like Latin letters make no difference. It is compared a second time with spaces in place of markdown and
/// punctuation that join words.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Rule {
    /// A label value of metrics.
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) phrases: Vec<String>,
    pub(crate) pattern: Option<String>,
    #[serde(default)]
    pub(crate) exact: bool,
    pub(crate) whole_words: Option<bool>,
    pub(crate) action: Option<Action>,
    pub(crate) message: Option<String>,
    pub(crate) replacement: Option<String>,
    /// Origin of the rule, such as a URL.
    #[cfg_attr(not(test), expect(dead_code, reason = "rule files say where their rules come from"))]
    pub(crate) source: Option<String>,
    #[serde(default)]
    pub(crate) examples: Vec<String>,
    #[serde(default)]
    pub(crate) counterexamples: Vec<String>,
}

impl Rule {
    pub(crate) fn phrases(
        name: impl Into<String>,
        phrases: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self { name: name.into(), phrases: phrases.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Path of a member, for errors.
    fn key(&self, member: impl fmt::Display) -> String {
        format!("rules[{}]{member}", self.name)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    rules: Vec<Rule>,
}

pub(crate) fn parse(key: &str, text: &str, name: impl fmt::Display) -> Result<Vec<Rule>, OptionsError> {
    serde_yaml::from_str(text).map(|RuleFile { rules }| rules).map_err(|error| {
        OptionsError::new(
            key,
            format_args!(
                "failed to parse {name}: {error}, expected rules: [{{name, phrases or pattern, …}}]"
            ),
        )
    })
}

/// Search for phrases and patterns in one pass each.
pub(crate) struct Rules {
    rules: Vec<Consequence>,
    matcher: Matcher,
}

struct Consequence {
    name: Cow<'static, str>,
    action: Action,
    message: Cow<'static, str>,
    replacement: Cow<'static, str>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules.iter().map(|rule| (&rule.name, rule.action))).finish()
    }
}

impl Rules {
    pub(crate) fn new(rules: &[Rule]) -> Result<Self, OptionsError> {
        rules.iter().enumerate().try_for_each(|(index, rule)| check(index, rule))?;
        let compiled =
            Self { rules: rules.iter().map(Consequence::new).collect(), matcher: Matcher::new(rules)? };
        rules.iter().try_for_each(|rule| compiled.check_examples(rule))?;
        Ok(compiled)
    }

    /// Names the rules that find something in `text`.
    fn matching(&self, text: &str) -> Vec<&str> {
        let mut found = vec![false; self.rules.len()];
        self.matcher.find(text, false, |finding| {
            found[finding.rule] = true;
            true
        });
        self.rules.iter().zip(found).filter(|(_, found)| *found).map(|(rule, _)| &*rule.name).collect()
    }

    fn check_examples(&self, rule: &Rule) -> Result<(), OptionsError> {
        for (key, texts, expected, fault) in [
            ("examples", &rule.examples, true, "the rule does not find this text"),
            ("counterexamples", &rule.counterexamples, false, "the rule finds this text"),
        ] {
            let is_wrong = |text: &String| self.matching(text).contains(&rule.name.as_str()) != expected;
            if let Some(i) = texts.iter().position(is_wrong) {
                return Err(OptionsError::new(rule.key(format_args!(".{key}[{i}]")), fault));
            }
        }
        Ok(())
    }

    /// Judges a text. With `has_more`, other text may follow.
    pub(crate) fn verdict(&self, text: &str, has_more: bool) -> Verdict {
        let mut denied = None;
        let mut spans = Vec::new();
        self.matcher.find(text, has_more, |Finding { rule, range }| {
            let consequence = &self.rules[rule];
            match consequence.action {
                Action::Deny => denied = Some(consequence),
                Action::Mask => {
                    let (rule, replacement) = (consequence.name.clone(), consequence.replacement.clone());
                    spans.push(((), Span::new(range, rule, replacement)));
                }
                Action::Allow => {}
            }
            denied.is_none()
        });
        if let Some(rule) = denied {
            return Verdict::deny(rule.name.clone(), rule.message.clone());
        }
        match spans.is_empty() {
            true => Verdict::Allow,
            false => Verdict::Mask(spans::merge(spans)),
        }
    }

    pub(crate) fn overlap(&self) -> usize {
        self.matcher.overlap()
    }

    pub(crate) fn context(&self, before: &str) -> usize {
        self.matcher.context(before)
    }

    pub(crate) fn undecided(&self, text: &str) -> usize {
        self.matcher.undecided(text)
    }
}

impl Consequence {
    fn new(rule: &Rule) -> Self {
        let name = rule.name.clone();
        let replacement = || format!("<{}>", name.to_ascii_uppercase().replace('-', "_"));
        Self {
            action: rule.action.unwrap_or_default(),
            message: rule
                .message
                .clone()
                .unwrap_or_else(|| format!("the text matches the rule {name}"))
                .into(),
            replacement: rule.replacement.clone().unwrap_or_else(replacement).into(),
            name: name.into(),
        }
    }
}

pub(crate) fn check_name(key: impl fmt::Display, name: &str) -> Result<(), OptionsError> {
    let is_label = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_label) {
        return Ok(());
    }
    let expected = format_args!("1 to {MAX_NAME} letters, digits, \"-\" and \"_\"");
    Err(OptionsError::found(key, format_args!("{name:?}"), expected))
}

fn check(index: usize, rule: &Rule) -> Result<(), OptionsError> {
    check_name(format_args!("rules[{index}].name"), &rule.name)?;
    let found = match (&rule.pattern, rule.phrases.is_empty()) {
        (None, true) => "neither",
        (Some(_), false) => "both",
        _ => return Ok(()),
    };
    Err(OptionsError::found(rule.key(""), found, "either phrases or a pattern"))
}

#[cfg(test)]
mod tests;
