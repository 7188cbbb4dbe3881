//! A [`Redirect`] as input for `iptables-restore`.

use std::{fmt::Write as _, ops::RangeInclusive};

use super::Redirect;

/// The chain of the table `nat` that sends what jumps to it to the first auditor.
pub const IPTABLES_CHAIN: &str = "LUCID_REDIRECT";

/// Option of the rules that end connections older than the rules in which the server sends the next packet; see
/// [`Redirect::nft_script`].
pub const IPTABLES_FLAGS: &str = "--tcp-flags";

/// The chain of the table `filter` that drops what jumps to it: packets from outside to a guarded port that the table
/// `nat` did not translate, since their connection is older than the rules. Native auditors listen before these.
const OLDER_CHAIN: &str = "LUCID_OLDER";

impl Redirect {
    /// Input for `iptables-restore --noflush`, and the same for `ip6tables-restore --noflush`, where nothing of it is
    /// installed yet: it creates [`IPTABLES_CHAIN`], so that it fails as a whole, without any change, where the chain is
    /// there already. [`Redirect::iptables_restore_over`] is for then.
    ///
    /// The matches are those that every kernel with iptables has: `tcp` and `owner`, no `multiport` and no `comment`. gVisor
    /// lacks only the [flags](IPTABLES_FLAGS) of `tcp`.
    pub fn iptables_restore(&self) -> String {
        let add = |jumps: Vec<String>| jumps.into_iter().map(|jump| format!("-A {jump}")).collect::<Vec<_>>();
        let nat = self.nat(&format!("-N {IPTABLES_CHAIN}"), &add(self.jumps()));
        let older = self.jumps_of_older();
        // After the other table, which is the one that fails.
        let filter = if older.is_empty() { String::new() } else { filter(&add(older)) };
        nat + &filter
    }

    /// The same where rules may be installed: `saved` is what `iptables-save` prints (for IPv6, what `ip6tables-save`
    /// prints). Rules of others stay as they are, rules of an earlier plan go, and where exactly these rules are installed
    /// nothing changes.
    pub fn iptables_restore_over(&self, saved: &str) -> String {
        // Creates the chain or empties it.
        let nat = self.nat(&create(IPTABLES_CHAIN), &changes(saved, IPTABLES_CHAIN, self.jumps()));
        let older = self.jumps_of_older();
        let nothing = older.is_empty() && !saved.contains(OLDER_CHAIN);
        let filter = if nothing { String::new() } else { filter(&changes(saved, OLDER_CHAIN, older)) };
        nat + &filter
    }

    fn nat(&self, chain: &str, jumps: &[String]) -> String {
        let first = self.first();
        table("nat", chain, jumps, &format!("{IPTABLES_CHAIN} -p tcp -j REDIRECT --to-ports {first}"))
    }

    /// The rules that jump to [`OLDER_CHAIN`], likewise.
    fn jumps_of_older(&self) -> Vec<String> {
        let ports = self.guarded_from_outside();
        ports.iter().map(|port| jump("INPUT ! -i lo", port, &[], OLDER_CHAIN)).collect()
    }

    /// The rules that jump to [`IPTABLES_CHAIN`], written and ordered as `iptables-save` does. A jump is not taken when one of its
    /// uids calls, so that these go on to the rules of others instead of past them.
    fn jumps(&self) -> Vec<String> {
        let inbound = self.guarded_from_outside();
        let mut jumps: Vec<_> =
            inbound.iter().map(|port| jump("PREROUTING", port, &[], IPTABLES_CHAIN)).collect();
        jumps.extend(self.outbound().map(|port| jump_of_server("PREROUTING ! -i lo", port)));
        for port in self.guarded() {
            let excepted = self.exceptions().filter(|(_, ports)| ports.contains(&port));
            let uids: Vec<_> = excepted.map(|(uid, _)| uid).collect();
            jumps.push(jump("OUTPUT -o lo", port, &uids, IPTABLES_CHAIN));
        }
        let uids: Vec<_> = self.chain().map(|hop| hop.uid).collect();
        jumps.extend(self.outbound().map(|port| jump("OUTPUT ! -o lo", port, &uids, IPTABLES_CHAIN)));
        jumps.extend(self.guarded().into_iter().map(|port| jump_of_server("OUTPUT -o lo", port)));
        jumps
    }
}

/// The part of a table in which `chain` is created and has the rule `rule`.
fn table(name: &str, chain: &str, jumps: &[String], rule: &str) -> String {
    let jumps: String = jumps.iter().map(|jump| format!("{jump}\n")).collect();
    format!("*{name}\n{chain}\n{jumps}-A {rule}\nCOMMIT\n")
}

fn filter(jumps: &[String]) -> String {
    table("filter", &create(OLDER_CHAIN), jumps, &format!("{OLDER_CHAIN} -p tcp -j DROP"))
}

fn create(chain: &str) -> String {
    format!(":{chain} - [0:0]")
}

/// What makes the `jumps` to `chain` out of those that are `saved`.
fn changes(saved: &str, chain: &str, jumps: Vec<String>) -> Vec<String> {
    let target = format!(" -j {chain}");
    let rules = saved.lines().filter_map(|line| line.trim_end().strip_prefix("-A "));
    let installed: Vec<_> = rules.filter(|rule| rule.ends_with(&target)).collect();
    if installed == jumps {
        return Vec::new();
    }
    let old = installed.iter().map(|jump| format!("-D {jump}"));
    old.chain(jumps.iter().map(|jump| format!("-A {jump}"))).collect()
}

fn jump(from: &str, port: impl std::fmt::Display, but_for: &[u32], chain: &str) -> String {
    let mut rule = format!("{from} -p tcp -m tcp --dport {port}");
    for uids in ranges(but_for) {
        // Writing to a String cannot fail.
        let _ = match (uids.start(), uids.end()) {
            (first, last) if first == last => write!(rule, " -m owner ! --uid-owner {first}"),
            (first, last) => write!(rule, " -m owner ! --uid-owner {first}-{last}"),
        };
    }
    format!("{rule} -j {chain}")
}

/// Takes packets from `port` that do not open a connection. The table `nat` sees the first packet of a connection only.
fn jump_of_server(from: &str, port: impl std::fmt::Display) -> String {
    format!("{from} -p tcp -m tcp --sport {port} ! {IPTABLES_FLAGS} FIN,SYN,RST,ACK SYN -j {IPTABLES_CHAIN}")
}

/// The same uids, those that follow each other taken together.
fn ranges(uids: &[u32]) -> Vec<RangeInclusive<u32>> {
    let mut uids = uids.to_vec();
    uids.sort_unstable();
    let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
    for uid in uids {
        match ranges.last_mut() {
            Some(last) if last.end() + 1 == uid => *last = *last.start()..=uid,
            _ => ranges.push(uid..=uid),
        }
    }
    ranges
}
