//! Judges from a configuration file.

use std::{fmt, path::PathBuf, time::Duration};

use lucid_auditor::{AuditMode, CacheOptions, Direction, Judge, JudgePolicy, Judges, OnFailure, Role, Turns};
use serde::Deserialize;

#[cfg(feature = "classifier")]
use crate::{Classifier, ClassifierOptions};
use crate::{EntityOptions, OptionsError, Phrases, PhrasesOptions, Pii, Regex, RegexOptions, Secrets};
#[cfg(feature = "http")]
use crate::{Http, HttpOptions};

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
/// # Ok::<_, lucid_guardrails::OptionsError>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    judges: Vec<JudgeConfig>,
}

const SERVICE_TTL: Duration = Duration::from_secs(60);

const KINDS: &str = "phrases, regex, pii, secrets, classifier, http";

impl Config {
    /// Parses YAML.
    ///
    /// # Errors
    ///
    /// Returns an error that names the key.
    pub fn parse(yaml: &str) -> Result<Self, OptionsError> {
        serde_yaml::from_str(yaml).map_err(|error| OptionsError::parse(&error))
    }

    /// Builds the judges: reads files and compiles patterns.
    ///
    /// # Errors
    ///
    /// Returns an error that names the judge and the key.
    pub fn build(&self) -> Result<Judges, OptionsError> {
        if self.judges.is_empty() {
            return Err(OptionsError::found("judges", "none", "at least one"));
        }
        let mut judges = Judges::new();
        for (index, judge) in self.judges.iter().enumerate() {
            let (kind, add) = judge.kind(format_args!("judges[{index}]"))?;
            let policy = judge.policy(kind);
            if let Some(name) =
                policy.name.as_deref().filter(|name| judges.policies().any(|it| it.0 == *name))
            {
                let (key, found) =
                    (format!("judges[{index}].name"), format!("{name:?}, the name of another judge"));
                return Err(OptionsError::found(key, found, "a unique name, for metrics and log lines"));
            }
            judges =
                add(judges, policy).map_err(|error| error.within(format_args!("judges[{index}].{kind}")))?;
        }
        Ok(judges)
    }

    /// Returns the files that [`Config::build`] reads once. Build again when one changes.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.judges.iter().flat_map(JudgeConfig::files).collect()
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JudgeConfig {
    name: Option<String>,
    #[serde(default)]
    mode: AuditMode,
    #[serde(default)]
    on_failure: OnFailure,
    #[serde(default, with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    timeout: Option<Duration>,
    directions: Option<Vec<Direction>>,
    roles: Option<Vec<Role>>,
    #[serde(default)]
    turns: Turns,
    #[serde(default)]
    cache: CacheConfig,
    phrases: Option<PhrasesOptions>,
    regex: Option<RegexOptions>,
    pii: Option<EntityOptions>,
    secrets: Option<EntityOptions>,
    #[cfg(feature = "classifier")]
    classifier: Option<ClassifierOptions>,
    #[cfg(feature = "http")]
    http: Option<HttpOptions>,
}

/// Cache of verdicts on whole texts.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CacheConfig {
    size: Option<u64>,
    #[serde(default, with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    ttl: Option<Duration>,
}

impl JudgeConfig {
    /// Checks the judge at `key`, and returns its kind.
    fn kind(&self, key: fmt::Arguments<'_>) -> Result<(&'static str, Add<'_>), OptionsError> {
        let kinds = [
            kind("phrases", &self.phrases, Phrases::new),
            kind("regex", &self.regex, Regex::new),
            kind("pii", &self.pii, Pii::new),
            kind("secrets", &self.secrets, Secrets::new),
            #[cfg(feature = "classifier")]
            kind("classifier", &self.classifier, Classifier::new),
            #[cfg(feature = "http")]
            kind("http", &self.http, Http::new),
        ];
        for (name, is_empty) in [
            ("directions", self.directions.as_ref().is_some_and(Vec::is_empty)),
            ("roles", self.roles.as_ref().is_some_and(Vec::is_empty)),
        ] {
            if is_empty {
                return Err(OptionsError::found(format_args!("{key}.{name}"), "none", "at least one"));
            }
        }
        if self.turns == Turns::Last && self.cache.size == Some(0) {
            return Err(OptionsError::found(
                format_args!("{key}.cache.size"),
                0,
                "a number above 0 with turns: last",
            ));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(OptionsError::found(format_args!("{key}.timeout"), "0s", "a duration above 0s"));
        }
        let mut found: Vec<_> = kinds.into_iter().flatten().collect();
        match (found.pop(), found.as_slice()) {
            (Some(kind), []) => Ok(kind),
            (last, others) => {
                let names: Vec<_> = others.iter().chain(&last).map(|(kind, _)| *kind).collect();
                let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Err(OptionsError::one_of(key, found, KINDS))
            }
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        files.extend(self.phrases.iter().flat_map(|options| options.file.clone()));
        files.extend(self.regex.iter().flat_map(|options| options.file.clone()));
        #[cfg(feature = "classifier")]
        files.extend(self.classifier.iter().flat_map(|options| {
            ["config.json", "tokenizer.json", "model.safetensors"].map(|name| options.path.join(name))
        }));
        #[cfg(feature = "http")]
        files.extend(self.http.iter().flat_map(|options| options.ca_file.clone()));
        files
    }

    fn policy(&self, kind: &str) -> JudgePolicy {
        let name = self.name.clone().unwrap_or_else(|| kind.to_owned());
        let mut policy =
            JudgePolicy::default().with_name(name).with_mode(self.mode).with_on_failure(self.on_failure);
        if let Some(timeout) = self.timeout {
            policy = policy.with_timeout(timeout);
        }
        policy.directions.clone_from(&self.directions);
        policy.roles.clone_from(&self.roles);
        let cache = CacheOptions::default();
        let ttl = if kind == "http" { SERVICE_TTL } else { cache.ttl };
        let cache = cache.with_size(self.cache.size.unwrap_or(cache.size));
        policy.with_turns(self.turns).with_cache(cache.with_ttl(self.cache.ttl.unwrap_or(ttl)))
    }
}

type Add<'a> = Box<dyn FnOnce(Judges, JudgePolicy) -> Result<Judges, OptionsError> + 'a>;

/// Returns `None` if a kind is not set.
fn kind<'a, O: Clone, J: Judge>(
    name: &'static str,
    options: &'a Option<O>,
    new: fn(O) -> Result<J, OptionsError>,
) -> Option<(&'static str, Add<'a>)> {
    let options = options.as_ref()?;
    Some((name, Box::new(move |judges, policy| Ok(judges.with_policy(new(options.clone())?, policy)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "http")]
    fn files_are_those_read_once_by_a_build() {
        let config = Config::parse(
            "judges:
            - phrases: {file: /phrases}
            - regex: {file: /rules}
            - pii: {}
            - http: {url: 'https://host', caFile: /ca, tokenFile: /token, headerFiles: {a: /header}}",
        )
        .unwrap();
        assert_eq!(config.files(), ["/phrases", "/rules", "/ca"].map(PathBuf::from));
    }

    #[test]
    #[cfg(feature = "http")]
    fn policies_select_texts_and_cache_verdicts() {
        let judges = Config::parse(
            "judges:
            - {name: a, roles: [user, tool], turns: last, cache: {size: 9, ttl: 1h}, pii: {}}
            - {name: b, secrets: {}}
            - {name: c, cache: {size: 0}, http: {url: 'http://host'}}",
        )
        .unwrap()
        .build()
        .unwrap();
        let policies: Vec<_> = judges
            .policies()
            .map(|(name, JudgePolicy { roles, turns, cache, .. })| {
                let cache = cache.map(|cache| (cache.size, cache.ttl.as_secs()));
                (name, roles.as_deref().unwrap_or_default(), *turns, cache)
            })
            .collect();
        let all: &[Role] = &[];
        assert_eq!(
            policies,
            [
                ("a", [Role::User, Role::Tool].as_slice(), Turns::Last, Some((9, 3600))),
                ("b", all, Turns::All, Some((10_000, 86_400))),
                ("c", all, Turns::All, Some((0, 60))),
            ]
        );
        for yaml in ["turns: first", "roles: [model]", "cache: {size: -1}", "cache: {ttl: 1}"] {
            let error = Config::parse(&format!("judges: [{{pii: {{}}, {yaml}}}]")).unwrap_err().to_string();
            assert!(error.starts_with(&format!("judges[0].{}", &yaml[..5])), "{error}");
        }
    }

    #[test]
    fn errors_name_the_path_of_the_key() {
        for (yaml, error) in [
            ("judges: []", "judges: expected at least one, found none"),
            (
                "judges: [{pii: {}, directions: []}]",
                "judges[0].directions: expected at least one, found none",
            ),
            ("judges: [{pii: {}, roles: []}]", "judges[0].roles: expected at least one, found none"),
            (
                "judges: [{pii: {}, turns: last, cache: {size: 0}}]",
                "judges[0].cache.size: expected a number above 0 with turns: last, found 0",
            ),
            ("judges: [{pii: {}, timeout: 0s}]", "judges[0].timeout: expected a duration above 0s, found 0s"),
            (
                "judges: [{pii: {}}, {name: pii, secrets: {}}]",
                "judges[1].name: expected a unique name, for metrics and log lines, found \"pii\"",
            ),
            ("judges: [{}]", "judges[0]: expected one of phrases, "),
            ("judges: [{regex: {}, pii: {}, phrases: {}}]", "judges[0]: expected one of phrases, "),
            (
                "judges: [{pii: {}}, {name: x, pii: {entities: [X]}}]",
                "judges[1].pii.entities: expected one of ",
            ),
            (
                "judges: [{regex: {rules: [{name: a, pattern: b, examples: [c]}]}}]",
                "judges[0].regex.rules[a].examples[0]: the rule does not",
            ),
        ] {
            let found = Config::parse(yaml).unwrap().build().unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
        let unknown = Config::parse("judges: [{mode: off, pii: {}}]").unwrap_err().to_string();
        assert!(unknown.starts_with("judges[0].mode: unknown variant"), "{unknown}");
    }
}
