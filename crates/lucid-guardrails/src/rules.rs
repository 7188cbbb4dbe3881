//! Rules: phrases and patterns with an action, and the judge that searches for them.

mod builtin;
mod matcher;
mod pattern;

use std::{borrow::Cow, fmt, fs, path::Path, path::PathBuf};

use lucid_auditor::{Judge, JudgeError, Passage, Span, Verdict};
use serde::Deserialize;
use snafu::{ResultExt as _, Snafu, ensure};

pub use self::builtin::Builtin;
use self::matcher::{Finding, Matcher};
use crate::Action;

/// Maximum length of a rule's name, which is a label value of metrics.
const MAX_NAME: usize = 63;

/// Phrases or a pattern with an action, as in a rule file.
///
/// Text is folded before it is compared, unless the rule is [`exact`](Self::exact): letter case, accents, white space, invisible
/// characters and letters that look like Latin letters make no difference.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Rule {
    /// Name: a label value of metrics. Letters, digits, `-` and `_`.
    pub name: String,
    /// Phrases.
    #[serde(default)]
    pub phrases: Vec<String>,
    /// Regular expression in the syntax of the crate `regex`. `\b` is a boundary of ASCII words.
    pub pattern: Option<String>,
    /// Compares the pattern with the text as it is.
    #[serde(default)]
    pub exact: bool,
    /// Finds phrases only as whole words. Default: true.
    pub whole_words: Option<bool>,
    /// Consequence of a finding. Default: deny.
    pub action: Option<Action>,
    /// Reason of a denial, for the caller.
    pub message: Option<String>,
    /// Text in place of a masked finding. Default: the name, such as `<EMPLOYEE_ID>`.
    pub replacement: Option<String>,
    /// Origin of the rule: an address.
    pub source: Option<String>,
    /// Texts that the rule finds.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Texts in which the rule finds nothing.
    #[serde(default)]
    pub counterexamples: Vec<String>,
}

impl Rule {
    /// Creates a rule of phrases.
    pub fn phrases<P: Into<String>>(name: impl Into<String>, phrases: impl IntoIterator<Item = P>) -> Self {
        Self { name: name.into(), phrases: phrases.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Creates a rule of a regular expression.
    pub fn pattern(name: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self { name: name.into(), pattern: Some(pattern.into()), ..Self::default() }
    }

    /// Sets the action.
    pub fn with_action(mut self, action: Action) -> Self {
        self.action = Some(action);
        self
    }

    /// Compares the pattern with the text as it is.
    pub fn with_exact(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }
}

/// A rule file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleFile {
    rules: Vec<Rule>,
}

/// Parses a rule file, which `origin` names in errors.
fn parse(text: &str, origin: &str) -> Result<Vec<Rule>, RulesError> {
    serde_yaml::from_str(text).map(|RuleFile { rules }| rules).context(ParseSnafu { origin })
}

/// Reads a rule file.
pub(crate) fn read(path: &Path) -> Result<Vec<Rule>, RulesError> {
    parse(&read_file(path)?, &path.display().to_string())
}

pub(crate) fn read_file(path: &Path) -> Result<String, RulesError> {
    fs::read_to_string(path).context(ReadSnafu { path })
}

/// Rules that cannot be used.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum RulesError {
    /// A file cannot be read.
    #[snafu(display("failed to read {}", path.display()))]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A rule file is invalid.
    #[snafu(display(
        "failed to parse the rules in {origin}: accepted: rules: [{{name, phrases | pattern, …}}]"
    ))]
    Parse {
        /// The file.
        origin: String,
        /// Cause.
        source: serde_yaml::Error,
    },
    /// There is nothing to search for.
    #[snafu(display("no rules: set {accepted}"))]
    Empty {
        /// Keys that add rules.
        accepted: &'static str,
    },
    /// A rule is invalid.
    #[snafu(display("invalid rule {name:?}: {reason}"))]
    Invalid {
        /// Name of the rule.
        name: String,
        /// What was found, and what is accepted.
        reason: String,
    },
    /// All patterns together are too large.
    #[snafu(display("failed to compile the rules together: {reason}"))]
    Compile {
        /// Cause.
        reason: String,
    },
}

/// Judge that searches for phrases and patterns in one pass each.
///
/// ```
/// use lucid_auditor::{Direction, Judge, Passage, Verdict};
/// use lucid_guardrails::{Action, rules::{Rule, Rules}};
///
/// # async fn example() -> Result<(), lucid_auditor::JudgeError> {
/// let rules = Rules::new([
///     Rule::phrases("codename", ["project bluebird"]),
///     Rule::pattern("employee", r"\bEMP-\d{6}\b").with_action(Action::Mask),
/// ])?;
/// let verdict = rules.judge(&Passage::new(Direction::Completion, "Рroject  Bluebird ships")).await?;
/// assert!(matches!(verdict, Verdict::Deny { .. }));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
pub struct Rules {
    rules: Vec<Consequence>,
    matcher: Matcher,
}

/// What a finding of a rule leads to.
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
    /// Compiles rules.
    ///
    /// # Errors
    ///
    /// Returns an error if a rule is invalid, too large or contradicts its examples.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, RulesError> {
        let rules: Vec<Rule> = rules.into_iter().collect();
        rules.iter().try_for_each(check)?;
        let compiled =
            Self { rules: rules.iter().map(Consequence::new).collect(), matcher: Matcher::new(&rules)? };
        rules.iter().try_for_each(|rule| compiled.check_examples(rule))?;
        Ok(compiled)
    }

    /// Names the rules that find something in `text`.
    pub fn matching(&self, text: &str) -> Vec<&str> {
        let mut found = vec![false; self.rules.len()];
        self.matcher.find(text, false, |finding| {
            found[finding.rule] = true;
            true
        });
        self.rules.iter().zip(found).filter(|(_, found)| *found).map(|(rule, _)| &*rule.name).collect()
    }

    fn check_examples(&self, rule: &Rule) -> Result<(), RulesError> {
        let wrong = |key: &str, i: usize, found: &str| {
            InvalidSnafu { name: &rule.name, reason: format!("{key}[{i}] {found}") }.fail()
        };
        for (i, text) in rule.examples.iter().enumerate() {
            if !self.matching(text).contains(&rule.name.as_str()) {
                return wrong("examples", i, "does not match");
            }
        }
        for (i, text) in rule.counterexamples.iter().enumerate() {
            if self.matching(text).contains(&rule.name.as_str()) {
                return wrong("counterexamples", i, "matches");
            }
        }
        Ok(())
    }

    fn verdict(&self, text: &str, has_more: bool) -> Verdict {
        let mut denied = None;
        let mut spans = Vec::new();
        self.matcher.find(text, has_more, |Finding { rule, range }| {
            let consequence = &self.rules[rule];
            match consequence.action {
                Action::Deny => denied = Some(consequence),
                Action::Mask => spans.push((range, consequence)),
                Action::Allow => {}
            }
            denied.is_none()
        });
        if let Some(rule) = denied {
            return Verdict::deny(rule.name.clone(), rule.message.clone());
        }
        if spans.is_empty() {
            return Verdict::Allow;
        }
        // Findings that overlap are one span.
        spans.sort_by(|(a, _), (b, _)| a.start.cmp(&b.start).then(b.end.cmp(&a.end)));
        let mut masks: Vec<Span> = Vec::with_capacity(spans.len());
        for (range, rule) in spans {
            match masks.last_mut() {
                Some(last) if range.start < last.range.end => last.range.end = last.range.end.max(range.end),
                _ => masks.push(Span::new(range, rule.name.clone(), rule.replacement.clone())),
            }
        }
        Verdict::Mask(masks)
    }
}

impl Judge for Rules {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        Ok(self.verdict(&passage.text, passage.has_more))
    }

    fn overlap(&self) -> usize {
        self.matcher.overlap()
    }

    fn undecided(&self, text: &str) -> usize {
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

fn check(rule: &Rule) -> Result<(), RulesError> {
    let name = &rule.name;
    let is_label = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    ensure!(
        (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_label),
        InvalidSnafu {
            name,
            reason: format!("name: accepted: 1 to {MAX_NAME} letters, digits, \"-\" and \"_\"")
        }
    );
    let found = match (&rule.pattern, rule.phrases.is_empty()) {
        (None, true) => "neither",
        (Some(_), false) => "both",
        _ => return Ok(()),
    };
    InvalidSnafu { name, reason: format!("found {found} of phrases and pattern, accepted: one of them") }
        .fail()
}

#[cfg(test)]
mod tests;
