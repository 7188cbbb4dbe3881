//! The report, as a table and as JSON.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// Version of the JSON format; see docs/cli-live.md.
const VERSION: u32 = 1;
/// Maximum number of pod groups shown in the table for each check.
const SHOWN: usize = 20;

/// Result of a check, in order of severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    #[default]
    Ok,
    /// The state could not be determined.
    Unknown,
    /// It works, but possibly not as intended.
    Warning,
    /// Pods are not audited as configured, or cannot be created.
    Failed,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    /// Stable name of the check.
    pub(crate) check: &'static str,
    /// Object that is checked, such as a webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<String>,
    pub(crate) status: Status,
    pub(crate) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
    /// Missing RBAC permission, such as `list pods`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing_permission: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pods: Vec<PodGroup>,
}

impl Check {
    pub(crate) fn new(check: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self { check, status, found: found.into(), ..Self::default() }
    }

    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, found)
    }

    pub(crate) fn unknown(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Unknown, found)
    }

    pub(crate) fn warning(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Warning, found)
    }

    pub(crate) fn failed(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Failed, found)
    }

    pub(crate) fn of(self, object: impl Into<String>) -> Self {
        Self { object: Some(object.into()), ..self }
    }

    pub(crate) fn action(self, action: impl Into<String>) -> Self {
        Self { action: Some(action.into()), ..self }
    }

    pub(crate) fn unread(check: &'static str, unread: &Unread) -> Self {
        let unknown = Self::unknown(check, &unread.why);
        match &unread.permission {
            Some(permission) => unknown.missing_permission(permission),
            None => unknown,
        }
    }

    pub(crate) fn missing_permission(self, permission: impl Into<String>) -> Self {
        let permission = permission.into();
        let action = format!("grant the permission to {permission}");
        Self { missing_permission: Some(permission), ..self }.action(action)
    }
}

/// Pods of one owner with the same result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PodGroup {
    pub(crate) namespace: String,
    /// Owner in kubectl syntax, such as `deployment/web`; empty for pods without one.
    pub(crate) owner: String,
    pub(crate) pods: u64,
    pub(crate) example: String,
    pub(crate) reason: String,
    pub(crate) action: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Unread {
    pub(crate) why: String,
    pub(crate) permission: Option<String>,
}

impl Unread {
    pub(crate) fn of(error: &kube::Error, permission: impl Into<String>) -> Self {
        let permission = permission.into();
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Self::forbidden(permission),
            error => {
                let why = format!("failed to {permission}: {}", lucid_shared::with_causes(error));
                Self { why, permission: None }
            }
        }
    }

    pub(crate) fn forbidden(permission: String) -> Self {
        Self { why: format!("missing permission to {permission}"), permission: Some(permission) }
    }
}

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

    /// Returns `true` if no check failed.
    pub(crate) fn is_good(&self) -> bool {
        self.status != Status::Failed
    }

    pub(crate) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// Writes the table, wrapped to `width` columns if given.
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
            let status = format!("{:?}", check.status).to_lowercase();
            table.add_row([name, status, plain(&check.found)]);
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

/// Escapes control characters, so that third-party text cannot add lines or colors.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => plain.extend(character.escape_default()),
            false => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_check_is_the_status() {
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
    fn tables_have_one_line_per_check() {
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
