//! Settings of single entries of a chain.

use std::{fmt, str::FromStr};

use lucid_text::Excerpt;
use serde::Deserialize;

use crate::{
    error::Error,
    mode::{AuditMode, OnFailure},
};

/// Settings of one auditor in a chain: the parameters of its entry, such as `mode=observe&timeout=5s`, or members of
/// its entry in an `auditors.yaml`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct EntryPolicy {
    pub(crate) mode: Option<AuditMode>,
    pub(crate) failure: Option<OnFailure>,
    pub(crate) timeout: Option<Timeout>,
}

impl EntryPolicy {
    /// Returns this policy with settings of `base` in place of missing ones.
    pub(crate) fn or(self, base: Self) -> Self {
        Self {
            mode: self.mode.or(base.mode),
            failure: self.failure.or(base.failure),
            timeout: self.timeout.or(base.timeout),
        }
    }
}

impl FromStr for EntryPolicy {
    type Err = String;

    fn from_str(parameters: &str) -> Result<Self, String> {
        fn set<T: FromStr<Err = Error>>(
            setting: &mut Option<T>,
            key: &str,
            value: &str,
        ) -> Result<(), String> {
            let value = value.parse().map_err(|error| format!("{key}: {error}"))?;
            match setting.replace(value) {
                Some(_) => Err(format!("expected {key} once, found it twice")),
                None => Ok(()),
            }
        }

        let mut policy = Self::default();
        for parameter in parameters.split('&') {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key {
                "mode" => set(&mut policy.mode, key, value)?,
                "failure" => set(&mut policy.failure, key, value)?,
                "timeout" => set(&mut policy.timeout, key, value)?,
                _ => return Err(format!("expected one of mode, failure, timeout; found {}", Excerpt(key))),
            }
        }
        Ok(policy)
    }
}

/// Time for one verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Timeout {
    milliseconds: u32,
}

impl Timeout {
    /// Parses the value of [`AUDIT_TIMEOUT_ENV`](crate::keys::AUDIT_TIMEOUT_ENV).
    pub(crate) fn from_milliseconds(text: &str) -> Option<Self> {
        let milliseconds = text.parse().ok().filter(|number: &u32| *number > 0 && number.to_string() == text);
        milliseconds.map(|milliseconds| Self { milliseconds })
    }

    pub(crate) fn milliseconds(self) -> u32 {
        self.milliseconds
    }
}

impl FromStr for Timeout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (number, unit) = match text.strip_suffix("ms") {
            Some(number) => (number, 1),
            None => (text.strip_suffix('s').unwrap_or_default(), 1000),
        };
        let found = Self::from_milliseconds(number).filter(|_| number.len() <= 4);
        let found = found.map(|found| Self { milliseconds: found.milliseconds * unit });
        found.ok_or_else(|| {
            Error::new(format!(
                "expected 1 to 9999 with the unit ms or s, such as 5s; found {}",
                Excerpt(text)
            ))
        })
    }
}

impl TryFrom<String> for Timeout {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.milliseconds)
    }
}
