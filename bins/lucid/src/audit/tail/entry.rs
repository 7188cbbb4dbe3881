//! Output format of a decision.

use lucid_audit::Anchor;
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Outcome {
    Allowed,
    Denied,
    WouldDeny,
}

impl Outcome {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::WouldDeny => "would-deny",
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) seq: u64,
    time: String,
    webhook: String,
    operation: String,
    kind: String,
    pub(super) namespace: String,
    name: String,
    user: String,
    allowed: bool,
    would_deny: bool,
    dry_run: bool,
    patched: bool,
    pub(super) ticket: String,
    message: String,
    findings: Vec<String>,
    overrules: Option<u64>,
    /// Number of a decision in memory; its place in the log is in `anchor`.
    pub(super) number: Option<u64>,
    pub(super) anchor: Option<Anchor>,
}

impl Entry {
    pub(super) fn is(&self, decision: Outcome) -> bool {
        match decision {
            Outcome::Allowed => self.allowed && !self.webhook.is_empty(),
            Outcome::Denied => !self.allowed && !self.webhook.is_empty(),
            Outcome::WouldDeny => self.allowed && self.would_deny,
        }
    }

    pub(super) fn text(&self, line: &[u8]) -> String {
        let seq = self.place();
        let Self { time, webhook, operation, kind, namespace, name, user, .. } = self;
        let time = time.split('.').next().unwrap_or_default().trim_end_matches('Z');
        if webhook.is_empty() {
            // A record that the log writes about itself.
            return format!("{seq:>8} {time}Z {}", printable(&String::from_utf8_lossy(line)));
        }
        let verdict = match (self.allowed, self.would_deny) {
            (true, false) => "allowed",
            (true, true) => "would deny",
            (false, _) => "denied",
        };
        let mut text = format!(
            "{seq:>8} {time}Z {verdict:<10} {webhook} {operation} {kind} {namespace}/{name} by {user}"
        );
        for (is, word) in [(self.dry_run, " (dry run)"), (self.patched, " (patched)")] {
            text.push_str(if is { word } else { "" });
        }
        if let Some(of) = self.overrules {
            text.push_str(&format!(" (in place of {of})"));
        }
        if !self.ticket.is_empty() {
            text.push_str(&format!(" [{}]", self.ticket));
        }
        // An admitted violation has no message.
        let why = if self.message.is_empty() { self.findings.join("; ") } else { self.message.clone() };
        if !why.is_empty() {
            text.push_str(&format!(": {why}"));
        }
        printable(&text)
    }

    /// Sequence number in the log; empty for a decision that is in memory only.
    fn place(&self) -> String {
        match (self.number, self.anchor) {
            (None, _) => self.seq.to_string(),
            (Some(_), Some(anchor)) => anchor.seq.to_string(),
            (Some(_), None) => String::new(),
        }
    }
}

/// Escapes a text. Names come from the request and may contain anything.
fn printable(text: &str) -> String {
    text.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"")
}
