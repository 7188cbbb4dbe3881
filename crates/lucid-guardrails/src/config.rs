//! Judges from a configuration file.

use std::{error::Error, path::PathBuf, time::Duration};

use lucid_auditor::{Direction, Judge, Judges, Mode, OnFailure, Policy};
use serde::Deserialize;
use snafu::{Snafu, ensure};

use crate::{EntityOptions, Pii, Secrets, phrases::PhrasesOptions, regex::RegexOptions};

/// Configuration of an auditor: a list of judges.
///
/// ```
/// # #[cfg(feature = "http")] {
/// use lucid_guardrails::Config;
///
/// let config = Config::parse("
/// judges:
///   - name: injection
///     directions: [prompt, tool_result]
///     phrases: {builtin: injection}
///   - pii: {actions: {CREDIT_CARD: deny}}
///   - name: remote
///     mode: observe
///     onFailure: allow
///     timeout: 2s
///     http: {url: 'http://judge.models.svc:8000/judge'}
/// ")?;
/// let judges = config.build()?;
/// # }
/// # Ok::<_, lucid_guardrails::ConfigError>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// Judges, which judge in parallel.
    pub judges: Vec<JudgeConfig>,
}

/// The configuration is invalid.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not such YAML.
    #[snafu(transparent)]
    Parse {
        /// Cause, with the key and its place.
        source: serde_yaml::Error,
    },
    /// There is no judge.
    #[snafu(display("judges: found none, accepted at least one"))]
    Empty,
    /// A judge has no kind, or several.
    #[snafu(display("judges[{index}]: found {found}, accepted exactly one of {KINDS}"))]
    #[non_exhaustive]
    Kind {
        /// Index of the judge.
        index: usize,
        /// The kinds.
        found: String,
    },
    /// The options of a judge are invalid.
    #[snafu(display("judges[{index}].{kind}"))]
    #[non_exhaustive]
    Options {
        /// Index of the judge.
        index: usize,
        /// Kind of the judge.
        kind: &'static str,
        /// Cause.
        source: BoxError,
    },
}

const KINDS: &str = "phrases, regex, pii, secrets, classifier, http";

impl Config {
    /// Parses YAML.
    ///
    /// # Errors
    ///
    /// Returns an error that names the key.
    pub fn parse(yaml: &str) -> Result<Self, ConfigError> {
        Ok(serde_yaml::from_str(yaml)?)
    }

    /// Builds the judges: reads files and compiles patterns.
    ///
    /// # Errors
    ///
    /// Returns an error that names the judge.
    pub fn build(&self) -> Result<Judges, ConfigError> {
        ensure!(!self.judges.is_empty(), EmptySnafu);
        let mut judges = self.judges.iter().enumerate();
        judges.try_fold(Judges::new(), |judges, (index, judge)| judge.add_to(judges, index))
    }

    /// Returns the files that the judges are read from: a change of one requires a new [`Config::build`].
    pub fn files(&self) -> Vec<PathBuf> {
        let files = self.judges.iter().flat_map(|judge| {
            let phrases = judge.phrases.as_ref().and_then(|options| options.file.clone());
            let rules = judge.regex.as_ref().and_then(|options| options.file.clone());
            #[cfg(feature = "classifier")]
            let model = judge.classifier.iter().flat_map(|options| {
                ["config.json", "tokenizer.json", "model.safetensors"].map(|name| options.path.join(name))
            });
            #[cfg(not(feature = "classifier"))]
            let model = [];
            phrases.into_iter().chain(rules).chain(model)
        });
        files.collect()
    }
}

/// A judge. Exactly one of the kinds is set.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct JudgeConfig {
    /// Name for metrics, log lines and refusals. Default: the kind.
    pub name: Option<String>,
    /// `enforce` (default), or `observe`: verdicts are only reported.
    #[serde(default)]
    pub mode: Mode,
    /// Consequence of an error or a timeout: `deny` (default) or `allow`.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Time for one verdict, such as `500ms`. Default: `10s`.
    #[serde(default, with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    pub timeout: Option<Duration>,
    /// Texts that are judged: `prompt`, `completion`, `tool_call`, `tool_result`. Default: all.
    pub directions: Option<Vec<Direction>>,
    /// Finds phrases.
    pub phrases: Option<PhrasesOptions>,
    /// Finds regular expressions.
    pub regex: Option<RegexOptions>,
    /// Finds personal data.
    pub pii: Option<EntityOptions>,
    /// Finds keys and tokens.
    pub secrets: Option<EntityOptions>,
    /// Runs a text-classification model.
    #[cfg(feature = "classifier")]
    pub classifier: Option<crate::classifier::Options>,
    /// Asks a remote service.
    #[cfg(feature = "http")]
    pub http: Option<crate::http::Options>,
}

impl JudgeConfig {
    fn add_to(&self, judges: Judges, index: usize) -> Result<Judges, ConfigError> {
        #[cfg(feature = "classifier")]
        let has_classifier = self.classifier.is_some();
        #[cfg(not(feature = "classifier"))]
        let has_classifier = false;
        #[cfg(feature = "http")]
        let has_http = self.http.is_some();
        #[cfg(not(feature = "http"))]
        let has_http = false;
        let kinds = [
            ("phrases", self.phrases.is_some()),
            ("regex", self.regex.is_some()),
            ("pii", self.pii.is_some()),
            ("secrets", self.secrets.is_some()),
            ("classifier", has_classifier),
            ("http", has_http),
        ];
        let found: Vec<_> = kinds.into_iter().filter(|(_, is_set)| *is_set).map(|(kind, _)| kind).collect();
        let &[kind] = found.as_slice() else {
            let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
            return KindSnafu { index, found }.fail();
        };
        let policy = self.policy(kind);
        let invalid = |source: BoxError| ConfigError::Options { index, kind, source };
        if let Some(options) = &self.phrases {
            return add(judges, policy, options.clone().build()).map_err(invalid);
        }
        if let Some(options) = &self.regex {
            return add(judges, policy, options.clone().build()).map_err(invalid);
        }
        if let Some(options) = &self.pii {
            return add(judges, policy, Pii::new(options)).map_err(invalid);
        }
        if let Some(options) = &self.secrets {
            return add(judges, policy, Secrets::new(options)).map_err(invalid);
        }
        #[cfg(feature = "classifier")]
        if let Some(options) = &self.classifier {
            return add(judges, policy, crate::classifier::Classifier::new(options.clone())).map_err(invalid);
        }
        #[cfg(feature = "http")]
        if let Some(options) = &self.http {
            return add(judges, policy, crate::http::Http::new(options.clone())).map_err(invalid);
        }
        Ok(judges)
    }

    fn policy(&self, kind: &str) -> Policy {
        let name = self.name.clone().unwrap_or_else(|| kind.to_owned());
        let mut policy =
            Policy::default().with_name(name).with_mode(self.mode).with_on_failure(self.on_failure);
        if let Some(timeout) = self.timeout {
            policy = policy.with_timeout(timeout);
        }
        match &self.directions {
            Some(directions) => policy.with_directions(directions.iter().copied()),
            None => policy,
        }
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

fn add<J, E>(judges: Judges, policy: Policy, judge: Result<J, E>) -> Result<Judges, BoxError>
where
    J: Judge,
    E: Error + Send + Sync + 'static,
{
    Ok(judges.with_policy(judge?, policy))
}
