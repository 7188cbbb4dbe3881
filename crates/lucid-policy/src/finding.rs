//! Findings, their severity and their messages.

use std::borrow::Cow;
use std::fmt;

use lucid_text::truncate;

use crate::container_list::ContainerList;

/// Maximum number of characters shown of a container name (RFC 1123 label) and of an image reference.
const MAX_NAME: usize = 63;
const MAX_IMAGE: usize = 512;

/// Effect of a finding if the policy is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Warns the user.
    Warn,
    /// Denies the pod.
    Deny,
}

/// The container or image volume of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// List of the pod spec that contains it.
    pub list: ContainerList,
    /// Name of the container or volume.
    pub name: String,
    /// Image as written in the pod; empty if the pod names none.
    pub image: String,
}

/// A problem of a pod, with its severity and location.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Severity under the policy that was applied.
    pub severity: Severity,
    /// Container or image volume; `None` for the pod as a whole.
    pub location: Option<Location>,
    /// The problem.
    pub problem: Problem,
}

/// Part of the policy that a problem belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// Notarization of auditor images.
    Images,
    /// Presence, completeness and order of the chain.
    Chain,
    /// Ways around the chain.
    Bypass,
    /// The required label, and misspelled labels and annotations.
    Labels,
    /// Validity of a break-glass ticket.
    BreakGlass,
}

/// A violation of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Part of the policy that the problem belongs to.
    pub check: Check,
    /// Stable, machine-readable reason, suitable as a metric label.
    pub reason: &'static str,
    /// Description with the expected values, as one bounded line without control characters.
    pub message: Cow<'static, str>,
    /// Severity before the policy is applied.
    pub(crate) severity: Severity,
    /// `true` if lenient notarization does not lower the severity.
    pub(crate) is_strict: bool,
    /// Normalized node path that the container mounts, which an exemption may cover.
    pub(crate) host_path: Option<String>,
}

impl Problem {
    const fn new(check: Check, reason: &'static str, message: Cow<'static, str>) -> Self {
        // An invalid ticket only fails to override the other findings.
        let severity = if matches!(check, Check::BreakGlass) { Severity::Warn } else { Severity::Deny };
        Self { check, reason, message, severity, is_strict: false, host_path: None }
    }

    pub(crate) fn image(reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Check::Images, reason, message.into())
    }

    pub(crate) fn chain(reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Check::Chain, reason, message.into())
    }

    pub(crate) fn bypass(reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Check::Bypass, reason, message.into())
    }

    pub(crate) fn label(reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Check::Labels, reason, message.into())
    }

    pub(crate) fn break_glass(reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Check::BreakGlass, reason, message.into())
    }

    pub(crate) fn warn_if(self, is_warning: bool) -> Self {
        if is_warning { Self { severity: Severity::Warn, ..self } } else { self }
    }
}

/// Maximum number of characters of an untrusted text that a finding stores.
const MAX_STORED: usize = 512;

pub(crate) fn truncated(text: &str) -> String {
    truncate(text, MAX_STORED).into_owned()
}

/// Formats one bounded line without control characters, suitable for an admission warning, a denial or a log line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Location { list, name, image }) = &self.location {
            // The API server accepts control characters within an image.
            let (name, image) = (truncate(name, MAX_NAME), truncate(image, MAX_IMAGE));
            let (name, image) = (name.escape_debug(), image.escape_debug());
            match self.problem.check {
                Check::Images => write!(f, "auditor {list} {name}, image {image}: ")?,
                _ => write!(f, "{list} {name}: ")?,
            }
        }
        f.write_str(&self.problem.message)
    }
}
