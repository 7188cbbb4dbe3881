//! Prometheus metrics of decisions.

use lucid_policy::{BreakGlass, EffectiveMode, Evaluation, RequiredLabel};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    mode: &'static str,
    outcome: &'static str,
    tier: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FindingLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BreakGlassLabels {
    outcome: &'static str,
}

/// Metrics of validation. Clones are cheap.
///
/// | metric | labels | |
/// |---|---|---|
/// | `policy_decisions_total` | mode, outcome, tier | evaluations of pods and templates, including dry runs |
/// | `policy_findings_total` | reason | violations, rejected or not |
/// | `policy_exempted_total` | | violations that were exempt |
/// | `break_glass_total` | outcome | pods and templates with a ticket |
///
/// Modes are `audit`, `enforce` and `break-glass`. Outcomes of decisions are `allowed`, `would_deny` (admitted
/// nevertheless) and `denied`, those of tickets `opened` and `refused`. Reasons are a fixed set: no data of a pod
/// becomes a label.
#[derive(Clone, Debug)]
pub struct ValidationMetrics {
    decisions: Family<DecisionLabels, Counter>,
    findings: Family<FindingLabels, Counter>,
    exempted: Counter,
    break_glass: Family<BreakGlassLabels, Counter>,
}

impl ValidationMetrics {
    /// Registers the metrics, and initializes the series of tickets to 0, those of decisions with the
    /// [validator](crate::PodValidator::with_metrics).
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            decisions: Family::default(),
            findings: Family::default(),
            exempted: Counter::default(),
            break_glass: Family::default(),
        };
        registry.register("policy_decisions", "Evaluations of pods and templates", metrics.decisions.clone());
        registry.register("policy_findings", "Policy violations, denied or not", metrics.findings.clone());
        registry.register(
            "policy_exempted",
            "Policy violations covered by an exemption",
            metrics.exempted.clone(),
        );
        registry.register(
            "break_glass",
            "Pods and templates with a break-glass ticket",
            metrics.break_glass.clone(),
        );
        for outcome in ["opened", "refused"] {
            drop(metrics.break_glass.get_or_create(&BreakGlassLabels { outcome }));
        }
        metrics
    }

    /// Initializes the series of decisions with this required label to 0.
    pub(crate) fn initialize(&self, required: Option<&RequiredLabel>) {
        let tiers = required.map_or_else(|| vec![""], |required| required.tiers().collect());
        for mode in EffectiveMode::ALL.map(EffectiveMode::as_str) {
            let outcomes: &[_] = if mode == "enforce" {
                &["allowed", "would_deny", "denied"]
            } else {
                &["allowed", "would_deny"]
            };
            for &outcome in outcomes {
                for tier in tiers.iter().map(|tier| (*tier).to_owned()) {
                    drop(self.decisions.get_or_create(&DecisionLabels { mode, outcome, tier }));
                }
            }
        }
    }

    pub(crate) fn count(&self, evaluation: &Evaluation) {
        let outcome = match (evaluation.denial(), evaluation.would_deny) {
            (Some(_), _) => "denied",
            (None, true) => "would_deny",
            (None, false) => "allowed",
        };
        let (mode, tier) = (evaluation.mode.as_str(), evaluation.tier.clone());
        self.decisions.get_or_create(&DecisionLabels { mode, outcome, tier }).inc();
        for finding in &evaluation.findings {
            self.findings.get_or_create(&FindingLabels { reason: finding.problem.reason }).inc();
        }
        self.exempted.inc_by(u64::try_from(evaluation.exempted.len()).unwrap_or(u64::MAX));
        let outcome = match evaluation.break_glass {
            BreakGlass::Opened => "opened",
            BreakGlass::Refused => "refused",
            _ => return,
        };
        self.break_glass.get_or_create(&BreakGlassLabels { outcome }).inc();
    }
}
