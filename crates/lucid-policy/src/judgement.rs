//! What becomes of a pod, and what is told to whom.

use crate::break_glass::BreakGlass;
use crate::exemptions::Exempted;
use crate::finding::{Check, Finding, Problem, Severity};
use crate::findings::Findings;
use crate::policy::Mode;
use crate::subject::Workload;

/// The mode that was in force for one pod, as the record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EffectiveMode {
    /// Nothing was refused.
    Audit,
    /// What was wrong refused.
    Enforce,
    /// A ticket opened.
    BreakGlass,
}

impl EffectiveMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Audit, Self::Enforce, Self::BreakGlass];

    /// `audit`, `enforce` or `break-glass`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Enforce => "enforce",
            Self::BreakGlass => "break-glass",
        }
    }
}

/// How many reasons a denial lists: a pod's author chooses how many there are.
const MOST_REASONS: usize = 32;

/// The outcome for a pod or a template of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judgement {
    /// The mode that was in force.
    pub mode: EffectiveMode,
    /// What is wrong: images first, in the order of the pod's lists. At most 64; refusals before warnings where there are
    /// more.
    pub findings: Vec<Finding>,
    /// Number of findings beyond those in `findings`.
    pub unlisted: usize,
    /// What would be wrong, had it not been exempt. At most 64.
    pub exempted: Vec<Exempted>,
    /// Whether the pod breaks the glass.
    pub break_glass: BreakGlass,
    /// The ticket that opened.
    pub ticket: Option<String>,
    /// Whether the policy refuses the pod, or pods of the template, whatever becomes of it.
    pub would_deny: bool,
    unlisted_refusals: usize,
    configured: Mode,
    workload: Workload,
}

impl Judgement {
    pub(crate) fn new(
        configured: Mode,
        workload: Workload,
        findings: Findings<'_>,
        break_glass: BreakGlass,
        ticket: Option<String>,
    ) -> Self {
        let Findings { kept: findings, unlisted, exempted, .. } = findings;
        let would_deny = findings.iter().any(|finding| finding.severity == Severity::Refuse);
        let mode = match configured {
            _ if break_glass == BreakGlass::Opened => EffectiveMode::BreakGlass,
            Mode::Enforce => EffectiveMode::Enforce,
            // Only images refuse, and only where they are strict.
            Mode::Images if findings.iter().any(|finding| is_enforced(configured, finding)) => {
                EffectiveMode::Enforce
            }
            Mode::Images | Mode::Audit => EffectiveMode::Audit,
        };
        Self {
            mode,
            findings,
            unlisted: unlisted.warnings + unlisted.refusals,
            exempted,
            break_glass,
            ticket,
            would_deny,
            unlisted_refusals: unlisted.refusals,
            configured,
            workload,
        }
    }

    /// The findings for which the pod is refused, or pods of the template would be.
    fn refusing(&self) -> impl Iterator<Item = &Finding> {
        let is_open = self.break_glass == BreakGlass::Opened;
        self.findings.iter().filter(move |finding| !is_open && is_enforced(self.configured, finding))
    }

    /// Whether the pod is refused, or pods of the template will be.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.refusing().next().is_some()
    }

    /// Why the pod is refused; `None` when it may run. A template never is.
    #[must_use]
    pub fn denial(&self) -> Option<String> {
        let mut reasons: Vec<_> = self.refusing().take(MOST_REASONS).map(Finding::to_string).collect();
        let unlisted = if self.configured == Mode::Enforce { self.unlisted_refusals } else { 0 };
        match self.refusing().count() - reasons.len() + unlisted {
            0 => {}
            more => reasons.push(format!("and {more} more")),
        }
        (self.workload.is_pod() && self.refuses()).then(|| reasons.join("; "))
    }

    /// The findings that users are told of. Where nobody has chosen a mode, every pod of the cluster lacks the required label:
    /// that is for the record only.
    pub fn told(&self) -> impl Iterator<Item = &Finding> {
        let is_told = |finding: &&Finding| {
            self.configured != Mode::Images || !matches!(finding.problem, Problem::TierMissing { .. })
        };
        self.findings.iter().filter(is_told)
    }

    /// What the user is warned of: what is wrong and does not refuse, and that the glass is broken.
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
        for finding in self.told() {
            let is_enforced = is_enforced(self.configured, finding);
            warnings.push(match (self.break_glass, finding.severity) {
                (_, Severity::Warn) => finding.to_string(),
                (BreakGlass::Opened, Severity::Refuse) => format!("break-glass: passed over: {finding}"),
                (_, Severity::Refuse) if is_enforced && self.workload.is_pod() => continue,
                (_, Severity::Refuse) if is_enforced => {
                    format!("pods of this template will be refused: {finding}")
                }
                (_, Severity::Refuse) => format!("admission mode enforce would refuse: {finding}"),
            });
        }
        if self.unlisted > 0 {
            warnings.push(format!("and {} more findings", self.unlisted));
        }
        warnings
    }
}

/// Whether the finding refuses a pod in this mode.
fn is_enforced(mode: Mode, finding: &Finding) -> bool {
    finding.severity == Severity::Refuse
        && match mode {
            Mode::Images => finding.problem.check() == Check::Images,
            Mode::Audit => false,
            Mode::Enforce => true,
        }
}
