//! Selects the tool that installs the rules.

use std::{fs, path::PathBuf};

use lucid_chain::redirect::Redirect;

use crate::{
    environment::{self, Choice},
    error::{Error, InstallSnafu, without_rules},
    iptables::{LEGACY, Variant},
    tool::{self, ToolError},
};

#[derive(Debug)]
enum Backend {
    Nft(PathBuf),
    Iptables(Variant),
}

impl Backend {
    /// Returns the tools of the image that `choice` allows, in order of preference.
    fn offered(choice: Choice) -> Vec<Self> {
        let nft = if choice == Choice::Iptables { None } else { environment::find("nft") };
        let iptables = if choice == Choice::Nft { Vec::new() } else { Variant::offered() };
        nft.into_iter().map(Self::Nft).chain(iptables.into_iter().map(Self::Iptables)).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Nft(_) => "nft",
            Self::Iptables(variant) => variant.name(),
        }
    }

    fn install(&self, redirect: &Redirect) -> Result<bool, ToolError> {
        match self {
            Self::Nft(nft) => tool::run(nft, &["-f", "-"], &redirect.nft_script()).map(|_| true),
            Self::Iptables(variant) => variant.install(redirect),
        }
    }
}

/// Installs the rules with the first tool that succeeds. Returns its name, and `false` if it had to omit the rules that
/// match TCP flags.
pub(crate) fn install(redirect: &Redirect, choice: Choice) -> Result<(&'static str, bool), Error> {
    let (mut tools, mut errors) = (Vec::new(), Vec::new());
    for backend in Backend::offered(choice) {
        let tool = backend.name();
        match backend.install(redirect) {
            Ok(is_complete) => return Ok((tool, is_complete)),
            Err(error) => errors.push(format!("{tool}: {error}")),
        }
        tools.push(tool);
    }
    if tools.is_empty() {
        errors.push("this image has none of the requested tools (nft, iptables-restore)".to_owned());
    }
    InstallSnafu { errors: errors.join("; "), advice: advice_for(&tools) }.fail()
}

fn advice_for(tools: &[&str]) -> String {
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
