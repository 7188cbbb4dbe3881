//! Options of the policy.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use lucid_policy::{DEFAULT_TICKET_PATTERN, Mode, Policy, RequiredLabel, Strictness, Tickets};

/// Options of the policy.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// Handling of pods that violate the policy: audit admits them with a warning and records the denial that enforce
    /// would return; enforce denies them. In a cluster, key mode of ConfigMap lucid-policy takes precedence.
    #[arg(long, env = "LUCID_ADMISSION_MODE", value_name = "MODE", default_value = "audit")]
    #[arg(value_parser = admission_mode())]
    pub admission_mode: Mode,

    /// Label that every pod must have. If empty, none is required.
    #[arg(long, env = "LUCID_TIER_LABEL", value_name = "KEY", default_value = "lucid.computing/tier")]
    #[arg(value_parser = parse_label_key)]
    pub tier_label: String,

    /// Accepted values of the label. If empty, any value is accepted.
    #[arg(long, value_name = "VALUES", value_delimiter = ',', default_value = "A,B")]
    pub tier_values: Vec<String>,

    /// Break-glass options.
    #[command(flatten)]
    pub break_glass: BreakGlassArgs,

    /// Treat it as a violation instead of a warning if a container of the application may run as root with SETUID,
    /// which is also the case without a security context. Such a container could switch to an auditor's user.
    #[arg(long, env = "LUCID_REQUIRE_NON_ROOT", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub require_non_root: bool,
}

/// Break-glass options.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Policy")]
pub struct BreakGlassArgs {
    /// Regular expression that the whole ticket in the label lucid.computing/break-glass must match. If empty,
    /// break-glass is disabled.
    #[arg(long, env = "LUCID_BREAK_GLASS_PATTERN", value_name = "REGEX", default_value = DEFAULT_TICKET_PATTERN)]
    #[arg(value_parser = parse_tickets)]
    pub break_glass_pattern: Tickets,

    /// Restrict break-glass to users with the RBAC verb breakglass on pods of API group lucid.computing. For pods of a
    /// workload the user is the controller that creates them. Needs permission to create SubjectAccessReviews.
    #[arg(long, env = "LUCID_BREAK_GLASS_ACCESS_REVIEW", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub break_glass_access_review: bool,
}

impl PolicyArgs {
    /// Returns the policy with these options.
    #[must_use]
    pub fn policy(&self, strictness: Strictness) -> Policy {
        let mut policy = Policy::default();
        policy.mode = self.admission_mode;
        policy.strictness = strictness;
        let values = self.tier_values.iter().map(|value| value.trim()).filter(|value| !value.is_empty());
        policy.required_label = (!self.tier_label.is_empty()).then(|| RequiredLabel {
            key: self.tier_label.clone(),
            values: values.map(str::to_owned).collect(),
        });
        policy.tickets = self.break_glass.break_glass_pattern.clone();
        policy.require_non_root = self.require_non_root;
        policy
    }
}

fn admission_mode() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new([Mode::Audit, Mode::Enforce].map(Mode::as_str)).try_map(|name| name.parse())
}

fn parse_tickets(pattern: &str) -> Result<Tickets, String> {
    if pattern.is_empty() {
        Ok(Tickets::default())
    } else {
        Tickets::new(pattern).map_err(|error| error.to_string())
    }
}

fn parse_label_key(text: &str) -> Result<String, &'static str> {
    let key = text.trim();
    match key.is_empty() || lucid_text::names::is_qualified_name(key) {
        true => Ok(key.to_owned()),
        false => Err(
            "expected a label's key, such as lucid.computing/tier, or nothing: up to 63 letters, digits, '-', '_' and '.', \
             with a letter or digit at both ends, behind a DNS subdomain and '/' if there is one",
        ),
    }
}
