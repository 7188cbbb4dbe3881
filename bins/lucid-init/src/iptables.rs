//! Variants of iptables.

use std::{
    fs,
    path::{Path, PathBuf},
};

use lucid_chain::redirect::{IPTABLES_CHAIN, IPTABLES_FLAGS, Redirect};

use crate::{
    addresses,
    args::Family,
    environment::Environment,
    tool::{self, LOCK_WAIT, ToolError},
};

/// One variant of `iptables-restore` and `iptables-save` with their IPv6 counterparts.
#[derive(Debug)]
pub(crate) struct IptablesVariant {
    name: &'static str,
    ipv4: Programs,
    /// `None` if the image lacks them.
    ipv6: Option<Programs>,
}

/// The installed rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    All,
    /// All but those that match TCP flags, which the kernel does not support.
    WithoutFlags,
}

#[derive(Debug)]
struct Programs {
    restore: PathBuf,
    save: PathBuf,
}

const NFT: [&str; 2] = ["iptables-nft", "ip6tables-nft"];
pub(crate) const LEGACY: [&str; 2] = ["iptables-legacy", "ip6tables-legacy"];
/// The image's default: one of the other variants, or the only one of an old image.
const DEFAULT: [&str; 2] = ["iptables", "ip6tables"];

impl IptablesVariant {
    /// Returns the variants of this image in order of preference. The legacy variant comes first if the node uses it
    /// already: then the kernel supports it and operators look for rules there.
    pub(crate) fn offered(environment: &Environment) -> Vec<Self> {
        let order = if legacy_nat_in_use() { [LEGACY, NFT, DEFAULT] } else { [NFT, DEFAULT, LEGACY] };
        let mut variants: Vec<Self> = Vec::new();
        for [name, name6] in order {
            let Some(ipv4) = Programs::find(name, environment) else { continue };
            // Skips another name of the same programs.
            if !variants.iter().any(|known| known.ipv4.is_same(&ipv4)) {
                variants.push(Self { name, ipv4, ipv6: Programs::find(name6, environment) });
            }
        }
        variants
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the rules of all tables as printed by `iptables-save`.
    pub(crate) fn saved(&self, family: Family) -> Result<String, ToolError> {
        tool::run(&self.programs(family)?.save, &[], "")
    }

    /// Installs the rules for IPv4, and for IPv6 if the pod has it.
    pub(crate) fn install(&self, redirect: &Redirect) -> Result<Rules, ToolError> {
        let ipv4 = self.restore(redirect, Family::Ipv4)?;
        let ipv6 = if addresses::has_ipv6() { self.restore(redirect, Family::Ipv6)? } else { ipv4 };
        Ok(if ipv4 == ipv6 { ipv4 } else { Rules::WithoutFlags })
    }

    fn restore(&self, redirect: &Redirect, family: Family) -> Result<Rules, ToolError> {
        let restore = &self.programs(family)?.restore;
        let run = |rules: &str| tool::run(restore, &["--noflush", LOCK_WAIT], rules).map(drop);
        // A new pod has no rules yet, so that one process suffices.
        let rules = redirect.iptables_restore();
        let Err(error) = run(&rules) else { return Ok(Rules::All) };
        let (rules, error) = match self.saved(family) {
            Ok(saved) if saved.contains(&format!(":{IPTABLES_CHAIN} ")) => {
                let rules = redirect.iptables_restore_over(&saved);
                let Err(error) = run(&rules) else { return Ok(Rules::All) };
                (rules, error)
            }
            _ => (rules, error),
        };
        if !rules.contains(IPTABLES_FLAGS) || !error.may_be_from_kernel() {
            return Err(error);
        }
        // gVisor cannot match TCP flags.
        let without_flags = rules.lines().filter(|rule| !rule.contains(IPTABLES_FLAGS));
        let without_flags: String = without_flags.map(|rule| format!("{rule}\n")).collect();
        run(&without_flags).map_err(|_| error)?;
        // The first failure may have been transient: rules are only omitted if they fail again.
        match run(&redirect.iptables_restore_over(&self.saved(family)?)) {
            Ok(()) => Ok(Rules::All),
            Err(error) if error.may_be_from_kernel() => Ok(Rules::WithoutFlags),
            Err(error) => Err(error),
        }
    }

    fn programs(&self, family: Family) -> Result<&Programs, ToolError> {
        match family {
            Family::Ipv4 => Ok(&self.ipv4),
            Family::Ipv6 => self.ipv6.as_ref().ok_or(ToolError::NoIpv6),
        }
    }
}

impl Programs {
    fn find(name: &str, environment: &Environment) -> Option<Self> {
        let restore = environment.find(&format!("{name}-restore"))?;
        Some(Self { restore, save: environment.find(&format!("{name}-save"))? })
    }

    fn is_same(&self, other: &Self) -> bool {
        // The programs are links to `xtables-nft-multi` or `xtables-legacy-multi`, which dispatch on their name.
        let real = |path: &Path| fs::canonicalize(path).ok();
        real(&self.restore).is_some_and(|path| Some(path) == real(&other.restore))
    }
}

/// Returns `true` if this network namespace has a `nat` table of the legacy variant.
fn legacy_nat_in_use() -> bool {
    let tables = fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    tables.lines().any(|table| table == "nat")
}
