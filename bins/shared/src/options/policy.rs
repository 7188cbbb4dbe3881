//! Options of the policy.

use std::path::PathBuf;

use lucid_notary::client::ReloadingFiles;
use lucid_policy::{DEFAULT_TICKET_PATTERN, Exemption, Mode, Policy, RequiredLabel, Strictness, Tickets};
use serde::Deserialize;

use crate::Error;

/// Values of `LUCID_ADMISSION_MODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AdmissionMode {
    /// Admits pods that violate the policy.
    Audit,
    /// Denies pods that violate the policy.
    Enforce,
}

/// Options of the policy.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// Handling of pods that violate the policy: audit admits them with a warning and records the denial that enforce
    /// would return; enforce denies them. By default only notarization is enforced, if it is strict.
    #[arg(long, env = "LUCID_ADMISSION_MODE", value_name = "MODE")]
    pub admission_mode: Option<AdmissionMode>,

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

    /// YAML file of exemptions from the policy: a list `exemptions` with `name` and `namespaces`, `images` or
    /// `digests`. The file is reloaded when it changes. By default nothing is exempt.
    #[arg(long, env = "LUCID_EXEMPTIONS", value_name = "FILE")]
    pub exemptions: Option<PathBuf>,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    exemptions: Vec<Exemption>,
}

impl PolicyArgs {
    /// Returns the policy with these options. It follows changes of the exemptions file.
    ///
    /// # Errors
    ///
    /// Returns an error if the exemptions file cannot be read or parsed.
    pub fn policy(&self, strictness: Strictness) -> Result<ReloadingFiles<Policy>, Error> {
        let mut policy = Policy::default();
        policy.mode = match self.admission_mode {
            None => Mode::Images,
            Some(AdmissionMode::Audit) => Mode::Audit,
            Some(AdmissionMode::Enforce) => Mode::Enforce,
        };
        policy.strictness = strictness;
        let values = self.tier_values.iter().map(|value| value.trim()).filter(|value| !value.is_empty());
        policy.required_label = (!self.tier_label.is_empty()).then(|| RequiredLabel {
            key: self.tier_label.clone(),
            values: values.map(str::to_owned).collect(),
        });
        policy.tickets = self.break_glass.break_glass_pattern.clone();
        policy.require_non_root = self.require_non_root;
        let with_exemptions = move |files: &[Vec<u8>]| {
            let mut policy = policy.clone();
            if let Some(yaml) = files.first() {
                policy.exemptions = serde_yaml::from_slice::<File>(yaml)?.exemptions;
            }
            Ok(policy)
        };
        ReloadingFiles::open(self.exemptions.iter().cloned().collect(), with_exemptions)
            .map_err(Error::with_context("LUCID_EXEMPTIONS"))
    }
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
    match key.is_empty() || lucid_webhook::names::is_qualified_name(key) {
        true => Ok(key.to_owned()),
        false => Err(
            "accepted is a label's key, such as lucid.computing/tier, or nothing: up to 63 letters, digits, '-', '_' and '.', \
             with a letter or digit at both ends, behind a DNS subdomain and '/' if there is one",
        ),
    }
}
