//! What was found, as a table for people and as JSON for programs.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// The format of the JSON; see docs/cli-live.md.
const VERSION: u32 = 1;
/// How many groups of pods a table shows for each check.
const SHOWN: usize = 20;

/// How a check ended, in the order of weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// As it should be.
    Ok,
    /// It could not be looked at.
    Unknown,
    /// It works, but not as people may expect.
    Warning,
    /// Pods are not audited as they should be, or cannot be created.
    Failed,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    /// What is checked: a name that stays.
    pub(crate) check: &'static str,
    /// Of what it is checked, such as a webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<String>,
    pub(crate) status: Status,
    pub(crate) found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
    /// The right without which it could not be looked at, such as `list pods`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing_right: Option<String>,
    /// The pods it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pods: Vec<PodGroup>,
}

impl Check {
    pub(crate) fn new(check: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self {
            check,
            object: None,
            status,
            found: found.into(),
            action: None,
            missing_right: None,
            pods: Vec::new(),
        }
    }

    pub(crate) fn of(self, object: impl Into<String>) -> Self {
        Self { object: Some(object.into()), ..self }
    }

    pub(crate) fn action(self, action: impl Into<String>) -> Self {
        Self { action: Some(action.into()), ..self }
    }

    /// What could not be looked at.
    pub(crate) fn unread(check: &'static str, unread: &Unread) -> Self {
        let unknown = Self::new(check, Status::Unknown, &unread.why);
        match &unread.right {
            Some(right) => Self { missing_right: Some(right.clone()), ..unknown }
                .action(format!("grant the right to {right}")),
            None => unknown,
        }
    }
}

/// Pods of one owner that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PodGroup {
    pub(crate) namespace: String,
    /// As kubectl takes it, such as `deployment/web`; empty for pods without.
    pub(crate) owner: String,
    /// How many.
    pub(crate) pods: u64,
    /// The name of one.
    pub(crate) example: String,
    pub(crate) reason: String,
    pub(crate) action: String,
}

/// Why something could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    pub(crate) why: String,
    pub(crate) right: Option<String>,
}

impl Unread {
    /// `right` is what the request needed.
    pub(crate) fn of(error: &kube::Error, right: impl Into<String>) -> Self {
        let right = right.into();
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Self {
                why: format!("may not be looked at: the right to {right} is missing"),
                right: Some(right),
            },
            error => {
                Self { why: format!("failed to {right}: {}", lucid_process::with_causes(error)), right: None }
            }
        }
    }
}

/// All checks, in the order in which they were made.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    version: u32,
    namespace: String,
    status: Status,
    checks: Vec<Check>,
}

impl Report {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { version: VERSION, namespace: namespace.to_owned(), status: Status::Ok, checks: Vec::new() }
    }

    pub(crate) fn extend(&mut self, checks: impl IntoIterator<Item = Check>) {
        for check in checks {
            self.status = self.status.max(check.status);
            self.checks.push(check);
        }
    }

    /// Whether nothing failed.
    pub(crate) fn is_good(&self) -> bool {
        self.status != Status::Failed
    }

    pub(crate) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// `width` is that of the terminal; without one nothing is broken into lines.
    pub(crate) fn table(&self, out: &mut impl Write, width: Option<u16>) -> io::Result<()> {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(["CHECK", "STATUS", "FOUND"]);
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        for check in &self.checks {
            let name = match &check.object {
                Some(object) => format!("{} {object}", check.check),
                None => check.check.to_owned(),
            };
            table.add_row([name.as_str(), check.status.as_str(), &plain(&check.found)]);
            if let Some(action) = &check.action {
                table.add_row(["", "", &format!("-> {}", plain(action))]);
            }
            for group in check.pods.iter().take(SHOWN) {
                table.add_row(["", "", &group.line()]);
                if !group.action.is_empty() {
                    table.add_row(["", "", &format!("  -> {}", plain(&group.action))]);
                }
            }
            if let Some(more) = check.pods.len().checked_sub(SHOWN).filter(|more| *more > 0) {
                table.add_row(["", "", &format!("- and {more} more; -o json has all")]);
            }
        }
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl PodGroup {
    fn line(&self) -> String {
        let Self { namespace, owner, pods, example, reason, .. } = self;
        let whose = match (owner.as_str(), pods) {
            ("", 1) => format!("pod/{example}"),
            ("", pods) => format!("{pods} pods such as {example}"),
            (owner, 1) => format!("{owner}, pod {example}"),
            (owner, pods) => format!("{owner}, {pods} pods such as {example}"),
        };
        format!("- {namespace}: {whose}: {}", plain(reason))
    }
}

/// What others wrote cannot make lines or colours of its own.
fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let escaped = character.is_control().then(|| character.escape_default().to_string());
            escaped.unwrap_or_else(|| character.to_string()).chars().collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_check_is_the_status_and_only_a_failure_is_bad() {
        let mut report = Report::new("lucid-system");
        for (status, is_good) in [
            (Status::Ok, true),
            (Status::Unknown, true),
            (Status::Warning, true),
            (Status::Failed, false),
            (Status::Ok, false),
        ] {
            report.extend([Check::new("certificate", status, "x")]);
            assert_eq!(report.is_good(), is_good, "{status:?}");
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_check_whatever_is_in_it() {
        let mut report = Report::new("lucid-system");
        let check = Check::new("reachable", Status::Failed, "a\nreachable ok \u{1b}[32m").action("do\nthis");
        report.extend([check.of("mutate.lucid.computing")]);
        let mut text = Vec::new();
        report.table(&mut text, None).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains(r"a\nreachable ok \u{1b}[32m"), "{text}");
    }
}
