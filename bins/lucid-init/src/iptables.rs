//! Variants of iptables.

use std::{collections::HashSet, fs, path::PathBuf};

use lucid_chain::redirect::Redirect;

use crate::{
    addresses,
    args::Family,
    environment,
    tool::{self, LOCK_WAIT, ToolError},
};

/// Chain that [`Redirect::iptables_restore`] creates.
const CHAIN: &str = "LUCID_REDIRECT";

/// Match option of the rules that reset existing connections in which the server sends the next packet.
const FLAGS: &str = "--tcp-flags";

/// One variant of `iptables-restore` and `iptables-save` and their IPv6 counterparts: the prefixes of their names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    ipv4: &'static str,
    ipv6: &'static str,
}

const NFT: Variant = Variant { ipv4: "iptables-nft", ipv6: "ip6tables-nft" };
pub(crate) const LEGACY: Variant = Variant { ipv4: "iptables-legacy", ipv6: "ip6tables-legacy" };
/// The image's default: one of the other variants, or the only one of an old image.
const DEFAULT: Variant = Variant { ipv4: "iptables", ipv6: "ip6tables" };

impl Variant {
    /// Returns the variants of this image in order of preference. The legacy variant comes first if the node uses it
    /// already: then the kernel supports it and operators look for rules there.
    pub(crate) fn offered() -> Vec<Self> {
        let order = if legacy_nat_in_use() { [LEGACY, NFT, DEFAULT] } else { [NFT, DEFAULT, LEGACY] };
        let (mut offered, mut programs) = (Vec::new(), HashSet::new());
        for variant in order {
            let [restore, save] =
                ["restore", "save"].map(|action| variant.program(Family::Ipv4, action).ok());
            let (Some(restore), Some(_)) = (restore, save) else { continue };
            // Names are links to `xtables-nft-multi` or `xtables-legacy-multi`, and several may be of the same variant.
            if programs.insert(fs::canonicalize(&restore).unwrap_or(restore)) {
                offered.push(variant);
            }
        }
        offered
    }

    pub(crate) fn name(&self) -> &'static str {
        self.ipv4
    }

    fn program(&self, family: Family, action: &str) -> Result<PathBuf, ToolError> {
        let prefix = match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        };
        environment::find(&format!("{prefix}-{action}")).ok_or(ToolError::NoIpv6)
    }

    /// Returns the rules of all tables as printed by `iptables-save`.
    pub(crate) fn saved(&self, family: Family) -> Result<String, ToolError> {
        tool::run(&self.program(family, "save")?, &[], "")
    }

    /// Installs the rules for IPv4, and for IPv6 if the pod has it. Returns `false` without those that match TCP flags,
    /// which the kernel may not support.
    pub(crate) fn install(&self, redirect: &Redirect) -> Result<bool, ToolError> {
        let ipv4 = self.restore(redirect, Family::Ipv4)?;
        let ipv6 = !addresses::has_ipv6() || self.restore(redirect, Family::Ipv6)?;
        Ok(ipv4 && ipv6)
    }

    fn restore(&self, redirect: &Redirect, family: Family) -> Result<bool, ToolError> {
        let restore = self.program(family, "restore")?;
        let run = |rules: &str| tool::run(&restore, &["--noflush", LOCK_WAIT], rules).map(drop);
        // A new pod has no rules yet, so that one process suffices.
        let rules = redirect.iptables_restore(None);
        let Err(error) = run(&rules) else { return Ok(true) };
        let (rules, error) = match self.saved(family) {
            Ok(saved) if saved.contains(&format!(":{CHAIN} ")) => {
                let rules = redirect.iptables_restore(Some(&saved));
                let Err(error) = run(&rules) else { return Ok(true) };
                (rules, error)
            }
            _ => (rules, error),
        };
        if !rules.contains(FLAGS) || !error.may_be_from_kernel() {
            return Err(error);
        }
        // gVisor cannot match TCP flags.
        let without_flags = rules.lines().filter(|rule| !rule.contains(FLAGS));
        let without_flags: String = without_flags.map(|rule| format!("{rule}\n")).collect();
        run(&without_flags).map_err(|_| error)?;
        // The first failure may have been transient: rules are only omitted if they fail again.
        match run(&redirect.iptables_restore(Some(&self.saved(family)?))) {
            Ok(()) => Ok(true),
            Err(error) if error.may_be_from_kernel() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns `true` if this network namespace has a `nat` table of the legacy variant.
fn legacy_nat_in_use() -> bool {
    let tables = fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    tables.lines().any(|table| table == "nat")
}
