//! The report, as lines, JSON and JUnit.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::bench::{Outcome, Problem};
use super::checks::Check;
use super::transcript::{Side, Transcript};

/// Version of the JSON format; see docs/writing-an-auditor.md.
const VERSION: u32 = 1;

/// Results of all checks.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: u32,
    /// Program and version.
    kit: &'static str,
    /// Command or URL of the auditor.
    auditor: String,
    passed: usize,
    failed: usize,
    skipped: usize,
    checks: Vec<Result>,
}

/// Result of a check.
#[derive(Debug, Serialize)]
pub(crate) struct Result {
    name: &'static str,
    requirement: &'static str,
    status: Status,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Passed,
    Failed,
    Skipped,
}

/// Bytes of a failed check, escaped.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    expected: String,
    sent: String,
    received: String,
    model_received: String,
    model_sent: String,
}

impl Result {
    /// Returns the result of a check.
    ///
    /// # Errors
    ///
    /// Returns an error if the check could not run.
    pub(crate) fn new(
        check: &Check,
        outcome: Outcome,
        transcript: &Transcript,
        took: Duration,
    ) -> io::Result<Self> {
        let (status, reason, failure) = match outcome {
            Ok(()) => (Status::Passed, None, None),
            Err(Problem::Skipped(reason)) => (Status::Skipped, Some(reason), None),
            Err(Problem::Failed(expected)) => {
                (Status::Failed, None, Some(Failure::new(expected, transcript)))
            }
            Err(Problem::Broken(error)) => return Err(error),
        };
        let Check { name, requirement, .. } = *check;
        Ok(Self { name, requirement, status, seconds: took.as_secs_f64(), reason, failure })
    }

    /// Writes the result for people.
    pub(crate) fn line(&self, out: &mut impl Write) -> io::Result<()> {
        let status = match self.status {
            Status::Passed => "ok",
            Status::Failed => "FAILED",
            Status::Skipped => "skipped",
        };
        let reason = self.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        writeln!(out, "{status:8}{:24}{}{reason}", self.name, self.requirement)?;
        if let Some(failure) = &self.failure {
            write!(out, "{failure}")?;
        }
        out.flush()
    }
}

impl Failure {
    fn new(expected: String, transcript: &Transcript) -> Self {
        Self {
            expected,
            sent: transcript.shown(Side::CallerSent),
            received: transcript.shown(Side::CallerReceived),
            model_received: transcript.shown(Side::ModelReceived),
            model_sent: transcript.shown(Side::ModelSent),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { expected, sent, received, model_received, model_sent } = self;
        writeln!(f, "        expected:       {expected}")?;
        writeln!(f, "        sent:           {sent}")?;
        writeln!(f, "        received:       {received}")?;
        writeln!(f, "        model received: {model_received}")?;
        writeln!(f, "        model sent:     {model_sent}")
    }
}

impl Report {
    pub(crate) fn new(auditor: String) -> Self {
        let kit = concat!("lucid ", env!("CARGO_PKG_VERSION"));
        Self { version: VERSION, kit, auditor, passed: 0, failed: 0, skipped: 0, checks: Vec::new() }
    }

    pub(crate) fn push(&mut self, result: Result) {
        match result.status {
            Status::Passed => self.passed += 1,
            Status::Failed => self.failed += 1,
            Status::Skipped => self.skipped += 1,
        }
        self.checks.push(result);
    }

    /// Returns `true` if no check failed.
    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0
    }

    /// Writes the number of results.
    pub(crate) fn summary(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { passed, failed, skipped, .. } = self;
        writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")
    }

    pub(crate) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// Writes the report in the format of JUnit.
    pub(crate) fn junit(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { auditor, failed, skipped, checks, .. } = self;
        let seconds: f64 = checks.iter().map(|check| check.seconds).sum();
        writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
        writeln!(
            out,
            r#"<testsuite name="{}" tests="{}" failures="{failed}" errors="0" skipped="{skipped}" time="{seconds:.3}">"#,
            xml(auditor),
            checks.len(),
        )?;
        for Result { name, requirement, seconds, reason, failure, .. } in checks {
            let requirement = xml(requirement);
            writeln!(out, r#"  <testcase classname="{requirement}" name="{name}" time="{seconds:.3}">"#)?;
            if let Some(reason) = reason {
                writeln!(out, r#"    <skipped message="{}"/>"#, xml(reason))?;
            }
            if let Some(failure) = failure {
                let (expected, bytes) = (xml(&failure.expected), xml(&failure.to_string()));
                writeln!(out, "    <failure message=\"{expected}\">\n{bytes}    </failure>")?;
            }
            writeln!(out, "  </testcase>")?;
        }
        writeln!(out, "</testsuite>")
    }
}

/// Escapes text for XML 1.0, which has no control characters.
fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            other if other.is_control() || matches!(other, '\u{fffe}' | '\u{ffff}') => {
                escaped.extend(other.escape_default())
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_xml_is_escaped() {
        assert_eq!(xml("a<b>&\"\u{1}\n"), "a&lt;b&gt;&amp;&quot;\\u{1}\n");
    }
}
