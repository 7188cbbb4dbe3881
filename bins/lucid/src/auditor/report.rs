//! The report, as lines, JSON and JUnit.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::bench::{Outcome, Problem};
use super::checks::Check;
use super::transcript::Transcript;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Version of the JSON format; see docs/writing-an-auditor.md.
    version: u32,
    kit: &'static str,
    auditor: String,
    passed: usize,
    failed: usize,
    skipped: usize,
    checks: Vec<Result>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Result {
    name: &'static str,
    requirement: &'static str,
    status: &'static str,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
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
    /// Fails if the check could not run.
    pub(crate) fn new(
        check: &Check,
        outcome: Outcome,
        bytes: &Transcript,
        took: Duration,
    ) -> io::Result<Self> {
        let (status, reason, expected) = match outcome {
            Ok(()) => ("passed", None, None),
            Err(Problem::Skipped(reason)) => ("skipped", Some(reason), None),
            Err(Problem::Failed(expected)) => ("failed", None, Some(expected)),
            Err(Problem::Broken(error)) => return Err(error),
        };
        let failure = expected.map(|expected| {
            let [sent, received, model_received, model_sent] = bytes.shown();
            Failure { expected, sent, received, model_received, model_sent }
        });
        let Check { name, requirement, .. } = *check;
        Ok(Self { name, requirement, status, seconds: took.as_secs_f64(), reason, failure })
    }

    pub(crate) fn line(&self, out: &mut impl Write) -> io::Result<()> {
        let status = match self.status {
            "passed" => "ok",
            "failed" => "FAILED",
            other => other,
        };
        let reason = self.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        writeln!(out, "{status:8}{:24}{}{reason}", self.name, self.requirement)?;
        let failure = self.failure.as_ref().map(Failure::to_string).unwrap_or_default();
        write!(out, "{failure}")?;
        out.flush()
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "        expected:       {}", self.expected)?;
        writeln!(f, "        sent:           {}", self.sent)?;
        writeln!(f, "        received:       {}", self.received)?;
        writeln!(f, "        model received: {}", self.model_received)?;
        writeln!(f, "        model sent:     {}", self.model_sent)
    }
}

impl Report {
    pub(crate) fn new(auditor: String) -> Self {
        let kit = concat!("lucid ", env!("CARGO_PKG_VERSION"));
        Self { version: 1, kit, auditor, passed: 0, failed: 0, skipped: 0, checks: Vec::new() }
    }

    pub(crate) fn push(&mut self, result: Result) {
        match result.status {
            "passed" => self.passed += 1,
            "failed" => self.failed += 1,
            _ => self.skipped += 1,
        }
        self.checks.push(result);
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0
    }

    pub(crate) fn summary(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }

    pub(crate) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    pub(crate) fn junit(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { failed, skipped, checks, .. } = self;
        let (tests, auditor) = (checks.len(), xml(&self.auditor));
        let seconds: f64 = checks.iter().map(|check| check.seconds).sum();
        writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
        write!(out, r#"<testsuite name="{auditor}" tests="{tests}" failures="{failed}" errors="0" "#)?;
        writeln!(out, r#"skipped="{skipped}" time="{seconds:.3}">"#)?;
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

/// Escapes text for XML 1.0. Transcripts contain no control characters except line feeds.
fn xml(text: &str) -> String {
    let printable = |it: &char| !it.is_control() || *it == '\n';
    let text: String = text.chars().filter(printable).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
