//! Errors and exit codes.

use std::fs;

use lucid_chain::{keys, redirect::RedirectError};
use snafu::Snafu;

use crate::{iptables::LEGACY, proof::NotProven};

/// The redirect could not be installed or verified. [`Error::exit_code`] identifies the phase.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub(crate) enum Error {
    #[snafu(display(
        "failed to read the arguments: found `{found}`, accepted --print nft|iptables|ip6tables, --help, --version \
         or nothing"
    ))]
    Usage { found: String },

    #[snafu(display(
        "failed to read the environment: {} is not set; the operator sets it when it adds this container to a pod",
        keys::REDIRECT_ENV
    ))]
    NoPlan,

    #[snafu(display("{source} (environment variable {})", keys::REDIRECT_ENV))]
    Plan { source: RedirectError },

    #[snafu(display(
        "failed to read the environment: {} is {found:?}, accepted auto, nft, iptables",
        keys::INIT_BACKEND_ENV
    ))]
    Backend { found: String },

    #[snafu(display("failed to install the redirect: {errors}; {advice}"))]
    Install { errors: String, advice: String },

    #[snafu(display(
        "failed to prove the redirect that {tool} installed: {source}; another network plugin or init container may \
         have rules of its own for these ports (see `nft list ruleset`); {}",
        without_rules()
    ))]
    Proof { tool: &'static str, source: NotProven },
}

fn without_rules() -> String {
    format!("the annotation {}: env on the pod does without network rules", keys::INTERCEPT)
}

impl Error {
    /// Returns the exit code of the process: 1 if no tool installs the rules, 2 for invalid arguments or environment,
    /// 3 if the installed rules have no effect.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Install { .. } => 1,
            Self::Usage { .. } | Self::NoPlan | Self::Plan { .. } | Self::Backend { .. } => 2,
            Self::Proof { .. } => 3,
        }
    }
}

/// Returns advice after the failure of `tools`.
pub(crate) fn advice_for(tools: &[&str]) -> String {
    let advice = if tools.is_empty() {
        "use an image that has one"
    } else if has(CAP_NET_ADMIN) == Some(false) {
        "this container lacks the capability NET_ADMIN: it has to run as root, with NET_ADMIN in \
         securityContext.capabilities.add, in a namespace that allows it"
    } else if tools.iter().all(|tool| *tool == LEGACY.name()) && has(CAP_NET_RAW) == Some(false) {
        "iptables-legacy needs the capability NET_RAW, which this container lacks: use an image with nft or iptables-nft, \
         which do without"
    } else {
        "the kernel of this node may lack NAT for nftables and iptables (nf_nat, nft_redir, xt_REDIRECT)"
    };
    format!("{advice}; {}", without_rules())
}

/// Capability numbers (`linux/capability.h`).
const CAP_NET_ADMIN: u64 = 12;
const CAP_NET_RAW: u64 = 13;

/// Returns `true` if this process has the capability, or `None` if the kernel does not report it.
fn has(capability: u64) -> Option<bool> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    Some(effective >> capability & 1 == 1)
}
