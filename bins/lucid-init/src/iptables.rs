//! The variants of iptables.

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

/// One set of the programs `iptables-restore`, `iptables-save` and their twins for IPv6.
#[derive(Debug)]
pub(crate) struct IptablesVariant {
    name: &'static str,
    ipv4: Programs,
    /// `None`: the image lacks them.
    ipv6: Option<Programs>,
}

/// Rules that were installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    All,
    /// Without those that match TCP flags, which the kernel refuses.
    WithoutFlags,
}

#[derive(Debug)]
struct Programs {
    restore: PathBuf,
    save: PathBuf,
}

const NFT: [&str; 2] = ["iptables-nft", "ip6tables-nft"];
pub(crate) const LEGACY: [&str; 2] = ["iptables-legacy", "ip6tables-legacy"];
/// Whatever the image's maker chose: one of the others, or the only one of an old image.
const UNNAMED: [&str; 2] = ["iptables", "ip6tables"];

impl IptablesVariant {
    /// The variants of this image, best first. Rules of the legacy variant come first where such rules are in use: then
    /// the kernel is known to have them, and people know where to look.
    pub(crate) fn offered(environment: &Environment) -> Vec<Self> {
        let order = if legacy_nat_in_use() { [LEGACY, NFT, UNNAMED] } else { [NFT, UNNAMED, LEGACY] };
        let mut variants: Vec<Self> = Vec::new();
        for [name, name6] in order {
            let Some(ipv4) = Programs::find(name, environment) else { continue };
            // The same programs by another name would only say the same again.
            if !variants.iter().any(|known| known.ipv4.are(&ipv4)) {
                variants.push(Self { name, ipv4, ipv6: Programs::find(name6, environment) });
            }
        }
        variants
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The rules of all tables, as `iptables-save` prints them.
    pub(crate) fn saved(&self, family: Family) -> Result<String, ToolError> {
        tool::run(&self.programs(family)?.save, &[], "")
    }

    /// Installs the rules for IPv4, and for IPv6 where the pod has that.
    pub(crate) fn install(&self, redirect: &Redirect) -> Result<Rules, ToolError> {
        let ipv4 = self.restore(redirect, Family::Ipv4)?;
        let ipv6 = if addresses::has_ipv6() { self.restore(redirect, Family::Ipv6)? } else { ipv4 };
        Ok(if ipv4 == ipv6 { ipv4 } else { Rules::WithoutFlags })
    }

    fn restore(&self, redirect: &Redirect, family: Family) -> Result<Rules, ToolError> {
        let restore = &self.programs(family)?.restore;
        let run = |rules: &str| tool::run(restore, &["--noflush", LOCK_WAIT], rules).map(drop);
        // In a new pod nothing is installed, and one process is enough.
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
        if !rules.contains(IPTABLES_FLAGS) || !error.is_of_the_kernel() {
            return Err(error);
        }
        // gVisor matches no flags of TCP.
        let without_flags = rules.lines().filter(|rule| !rule.contains(IPTABLES_FLAGS));
        let without_flags: String = without_flags.map(|rule| format!("{rule}\n")).collect();
        run(&without_flags).map_err(|_| error)?;
        // The first failure may have had a reason that has passed: only rules that fail again are left out.
        match run(&redirect.iptables_restore_over(&self.saved(family)?)) {
            Ok(()) => Ok(Rules::All),
            Err(error) if error.is_of_the_kernel() => Ok(Rules::WithoutFlags),
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

    fn are(&self, other: &Self) -> bool {
        // All of them are names of one program, which looks at its own name: `xtables-nft-multi`, `xtables-legacy-multi`.
        let real = |path: &Path| fs::canonicalize(path).ok();
        real(&self.restore).is_some_and(|path| Some(path) == real(&other.restore))
    }
}

/// Whether this network namespace has a table `nat` of the legacy variant.
fn legacy_nat_in_use() -> bool {
    let tables = fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    tables.lines().any(|table| table == "nat")
}
