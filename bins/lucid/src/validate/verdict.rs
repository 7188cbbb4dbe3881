//! Format of verdicts.

use std::io::{self, Write};

use lucid_policy::{Auditors, Check, Finding, Workload};
use serde::Serialize;

use super::subjects::Title;
use lucid_admission::Evaluated;

/// Verdict on one object. Its JSON is one line of `-o json`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verdict {
    #[serde(flatten)]
    title: Title,
    /// `true` if the pod, or pods of the template, are allowed.
    pub(super) allowed: bool,
    /// Value of the required label, `any`, `missing` or `invalid`; empty if none is required.
    tier: String,
    images: Vec<Image>,
    /// Violations apart from those of images.
    findings: Vec<String>,
    exemptions: Vec<String>,
    ticket: Option<String>,
    warnings: Vec<String>,
    /// Last line of the text format.
    #[serde(skip)]
    outcome: String,
}

#[derive(Debug, Serialize)]
struct Image {
    place: String,
    container: String,
    image: String,
    verdict: String,
}

impl Verdict {
    pub(super) fn new(
        title: Title,
        workload: Workload,
        auditors: &Auditors<'_>,
        Evaluated { evaluation, images, .. }: Evaluated,
    ) -> Self {
        let images = auditors.iter().zip(images).map(|(auditor, known)| {
            let place = auditor.list.to_string();
            Image { place, container: known.container, image: known.image, verdict: known.verdict }
        });
        let findings = evaluation.findings.iter().filter(|finding| finding.problem.check != Check::Images);
        let warnings = evaluation.warnings();
        let warned = if warnings.is_empty() { "" } else { " with warnings" };
        let outcome = match (evaluation.denies(), workload.is_pod()) {
            (true, true) => "refused".to_owned(),
            (true, false) => format!("allowed{warned}, its pods would be refused"),
            (false, _) => format!("allowed{warned}"),
        };
        Self {
            title,
            allowed: !evaluation.denies(),
            tier: evaluation.tier.clone(),
            images: images.collect(),
            findings: findings.map(Finding::to_string).collect(),
            exemptions: evaluation.exempted.iter().map(ToString::to_string).collect(),
            ticket: evaluation.ticket.clone(),
            warnings,
            outcome,
        }
    }

    pub(super) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    pub(super) fn not_evaluated(title: Title, reason: &str) -> Self {
        let outcome = format!("allowed: {reason}");
        Self { title, allowed: true, outcome, ..Self::default() }
    }

    pub(super) fn json(&self, output: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *output, self)?;
        writeln!(output)
    }

    /// Writes the text format. Lines begin with the object's name if `named`, and its file if `filed`.
    pub(super) fn text(&self, named: bool, filed: bool, output: &mut impl Write) -> io::Result<()> {
        let Title { file, text, .. } = &self.title;
        let prefix = match (named, filed) {
            (false, _) => String::new(),
            (true, false) => format!("{text}: "),
            (true, true) => format!("{file}: {text}: "),
        };
        let mut line = |line: &str| writeln!(output, "{prefix}{line}");
        if self.images.is_empty() {
            line("no auditor containers")?;
        }
        for Image { place, container, image, verdict } in &self.images {
            let (container, image) = (container.escape_debug(), image.escape_debug());
            line(&format!("{place} {container}, image {image}: {verdict}"))?;
        }
        for finding in &self.findings {
            line(finding)?;
        }
        for exemption in &self.exemptions {
            line(&format!("exempt by {exemption}"))?;
        }
        if let Some(ticket) = &self.ticket {
            line(&format!("break-glass by ticket {ticket:?}"))?;
        }
        line(&self.outcome)
    }
}
