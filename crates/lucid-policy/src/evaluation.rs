//! The outcome for a pod and the messages for its user.

use crate::break_glass::BreakGlass;
use crate::exemptions::Exempted;
use crate::finding::{Finding, Severity};
use crate::findings::Findings;
use crate::mode::Mode;
use crate::subject::Workload;

/// The mode applied to one pod, as written to the audit record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EffectiveMode {
    /// Findings do not refuse the pod.
    Audit,
    /// Findings of [`Severity::Deny`] refuse the pod.
    Enforce,
    /// A break-glass ticket admits the pod.
    BreakGlass,
}

impl EffectiveMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Audit, Self::Enforce, Self::BreakGlass];

    /// Returns `audit`, `enforce` or `break-glass`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Enforce => "enforce",
            Self::BreakGlass => "break-glass",
        }
    }
}

/// Maximum number of reasons in a denial. The author of a pod controls the number of problems.
const MAX_REASONS: usize = 32;

/// The outcome for a pod or a pod template.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evaluation {
    /// Mode applied to the pod.
    pub mode: EffectiveMode,
    /// Findings: images first, then in the order of the pod's lists. At most 64; refusals displace warnings.
    pub findings: Vec<Finding>,
    /// Number of findings beyond those in `findings`.
    pub unlisted: usize,
    /// Problems covered by an exemption. At most 64.
    pub exempted: Vec<Exempted>,
    /// State of the break-glass ticket.
    pub break_glass: BreakGlass,
    /// Accepted break-glass ticket.
    pub ticket: Option<String>,
    /// [Tier](crate::Policy::tier) of the pod.
    pub tier: String,
    /// `true` if there is a finding of [`Severity::Deny`], whether or not it is enforced.
    pub would_deny: bool,
    unlisted_refusals: usize,
    configured: Mode,
    workload: Workload,
}

impl Evaluation {
    pub(crate) fn new(
        configured: Mode,
        workload: Workload,
        findings: Findings<'_>,
        break_glass: BreakGlass,
        ticket: Option<String>,
    ) -> Self {
        let Findings { kept: findings, unlisted_warnings, unlisted_refusals, exempted, .. } = findings;
        let would_deny = findings.iter().any(|finding| finding.severity == Severity::Deny);
        let mode = match configured {
            _ if break_glass == BreakGlass::Opened => EffectiveMode::BreakGlass,
            Mode::Enforce => EffectiveMode::Enforce,
            Mode::Audit => EffectiveMode::Audit,
        };
        Self {
            mode,
            findings,
            unlisted: unlisted_warnings + unlisted_refusals,
            exempted,
            break_glass,
            ticket,
            tier: String::new(),
            would_deny,
            unlisted_refusals,
            configured,
            workload,
        }
    }

    pub(crate) fn with_tier(mut self, tier: String) -> Self {
        self.tier = tier;
        self
    }

    fn denying(&self) -> impl Iterator<Item = &Finding> {
        let is_open = self.break_glass == BreakGlass::Opened;
        self.findings.iter().filter(move |finding| !is_open && is_enforced(self.configured, finding))
    }

    /// Returns `true` if the pod, or the pods of the template, are refused.
    #[must_use]
    pub fn denies(&self) -> bool {
        self.denying().next().is_some()
    }

    /// Returns the reasons for refusing the pod, or `None` if it is admitted. A template is never refused.
    #[must_use]
    pub fn denial(&self) -> Option<String> {
        let mut reasons: Vec<_> = self.denying().take(MAX_REASONS).map(Finding::to_string).collect();
        let unlisted = if self.configured == Mode::Enforce { self.unlisted_refusals } else { 0 };
        match self.denying().count() - reasons.len() + unlisted {
            0 => {}
            more => reasons.push(format!("and {more} more")),
        }
        (self.workload.is_pod() && self.denies()).then(|| reasons.join("; "))
    }

    /// Returns the warnings for the user: findings that do not refuse the pod, and the use of a break-glass ticket.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let ticket = self.ticket.as_deref().unwrap_or_default();
        if self.break_glass == BreakGlass::Opened {
            warnings.push(match self.workload.is_pod() {
                true => {
                    format!("break-glass: admitted by ticket {ticket:?}, which is recorded with your name")
                }
                false => format!("break-glass: pods of this template will be admitted by ticket {ticket:?}"),
            });
        }
        for finding in &self.findings {
            let is_enforced = is_enforced(self.configured, finding);
            warnings.push(match (self.break_glass, finding.severity) {
                (_, Severity::Warn) => finding.to_string(),
                (BreakGlass::Opened, Severity::Deny) => format!("break-glass: passed over: {finding}"),
                (_, Severity::Deny) if is_enforced && self.workload.is_pod() => continue,
                (_, Severity::Deny) if is_enforced => {
                    format!("pods of this template will be refused: {finding}")
                }
                (_, Severity::Deny) => format!("admission mode enforce would refuse: {finding}"),
            });
        }
        if self.unlisted > 0 {
            warnings.push(format!("and {} more findings", self.unlisted));
        }
        warnings
    }
}

fn is_enforced(mode: Mode, finding: &Finding) -> bool {
    finding.severity == Severity::Deny && mode == Mode::Enforce
}
