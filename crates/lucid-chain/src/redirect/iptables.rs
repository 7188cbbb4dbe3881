//! A [`Redirect`] as input for `iptables-restore`.

use std::{fmt::Write as _, ops::RangeInclusive};

use super::Redirect;

/// Chain of the table `nat` that redirects packets to the first auditor, on the route of their port.
pub const IPTABLES_CHAIN: &str = "LUCID_REDIRECT";

/// Match option of the rules that reset existing connections in which the server sends the next packet; see
/// [`Redirect::nft_script`].
pub const IPTABLES_FLAGS: &str = "--tcp-flags";

/// Chain of the table `filter` that drops packets from outside to a guarded port that the table `nat` did not
/// translate, because their connection predates the rules. Native auditors listen before the rules are installed.
const STALE_CHAIN: &str = "LUCID_OLDER";

impl Redirect {
    /// Returns the input for `iptables-restore --noflush` and `ip6tables-restore --noflush`, for a pod without these
    /// rules.
    ///
    /// It creates [`IPTABLES_CHAIN`], so it fails without any change if the chain exists; then use
    /// [`Redirect::iptables_restore_over`].
    ///
    /// It uses only the matches `tcp` and `owner`, which every kernel with iptables has, and neither `multiport` nor
    /// `comment`. gVisor supports all of it except the [flags](IPTABLES_FLAGS) of `tcp`.
    pub fn iptables_restore(&self) -> String {
        let add = |jumps: Vec<String>| jumps.into_iter().map(|jump| format!("-A {jump}")).collect::<Vec<_>>();
        let nat = self.nat(&format!("-N {IPTABLES_CHAIN}"), &add(self.jumps()));
        let stale = self.stale_jumps();
        // After `nat`, which fails if the chain exists.
        let filter = if stale.is_empty() { String::new() } else { filter(&add(stale)) };
        nat + &filter
    }

    /// Returns the input for a pod in which rules may be installed. `saved` is the output of `iptables-save` or, for
    /// IPv6, `ip6tables-save`.
    ///
    /// Rules of an earlier plan are removed and third-party rules stay. If exactly these rules are installed, nothing
    /// changes.
    pub fn iptables_restore_over(&self, saved: &str) -> String {
        // Creates the chain or empties it.
        let nat = self.nat(&create(IPTABLES_CHAIN), &changes(saved, IPTABLES_CHAIN, self.jumps()));
        let stale = self.stale_jumps();
        let nothing = stale.is_empty() && !saved.contains(STALE_CHAIN);
        let filter = if nothing { String::new() } else { filter(&changes(saved, STALE_CHAIN, stale)) };
        nat + &filter
    }

    fn nat(&self, chain: &str, jumps: &[String]) -> String {
        let first = self.first_port();
        let redirect =
            |ports: &str, to| format!("{IPTABLES_CHAIN} -p tcp{ports} -j REDIRECT --to-ports {to}");
        let guarded = self.guarded();
        let others = guarded.iter().filter(|(_, to)| **to != first);
        let mut rules: Vec<_> =
            others.map(|(port, to)| redirect(&format!(" -m tcp --dport {port}"), to)).collect();
        rules.push(redirect("", &first));
        table("nat", chain, jumps, &rules)
    }

    /// Returns the rules that jump to [`STALE_CHAIN`], written and ordered as by `iptables-save`.
    fn stale_jumps(&self) -> Vec<String> {
        let ports = self.guarded_from_outside();
        ports.keys().map(|port| jump("INPUT ! -i lo", port, &[], STALE_CHAIN)).collect()
    }

    /// Returns the rules that jump to [`IPTABLES_CHAIN`], written and ordered as by `iptables-save`. Exempt uids do
    /// not take the jump, so their packets continue to third-party rules.
    fn jumps(&self) -> Vec<String> {
        let inbound = self.guarded_from_outside();
        let mut jumps: Vec<_> =
            inbound.keys().map(|port| jump("PREROUTING", port, &[], IPTABLES_CHAIN)).collect();
        jumps.extend(self.outbound().map(|port| server_jump("PREROUTING ! -i lo", port)));
        let (guarded, exceptions) = (self.guarded(), self.exceptions());
        for port in guarded.keys() {
            let excepted = exceptions.iter().filter(|(_, ports)| ports.contains(port));
            let uids: Vec<_> = excepted.map(|(uid, _)| *uid).collect();
            jumps.push(jump("OUTPUT -o lo", port, &uids, IPTABLES_CHAIN));
        }
        jumps.extend(self.outbound().map(|port| jump("OUTPUT ! -o lo", port, &self.uids, IPTABLES_CHAIN)));
        jumps.extend(guarded.keys().map(|port| server_jump("OUTPUT -o lo", port)));
        jumps
    }
}

/// Returns the section of a table that creates `chain` and appends `rules`.
fn table(name: &str, chain: &str, jumps: &[String], rules: &[String]) -> String {
    let jumps: String = jumps.iter().map(|jump| format!("{jump}\n")).collect();
    let rules: String = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
    format!("*{name}\n{chain}\n{jumps}{rules}COMMIT\n")
}

fn filter(jumps: &[String]) -> String {
    table("filter", &create(STALE_CHAIN), jumps, &[format!("{STALE_CHAIN} -p tcp -j DROP")])
}

fn create(chain: &str) -> String {
    format!(":{chain} - [0:0]")
}

/// Returns the commands that replace the `saved` jumps to `chain` with `jumps`.
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

fn jump(from: &str, port: impl std::fmt::Display, exempt: &[u32], chain: &str) -> String {
    let mut rule = format!("{from} -p tcp -m tcp --dport {port}");
    for uids in ranges(exempt) {
        // Writing to a String cannot fail.
        let _ = match (uids.start(), uids.end()) {
            (first, last) if first == last => write!(rule, " -m owner ! --uid-owner {first}"),
            (first, last) => write!(rule, " -m owner ! --uid-owner {first}-{last}"),
        };
    }
    format!("{rule} -j {chain}")
}

/// Returns a rule for packets from `port` that do not open a connection. The table `nat` sees only the first packet
/// of a connection.
fn server_jump(from: &str, port: impl std::fmt::Display) -> String {
    format!("{from} -p tcp -m tcp --sport {port} ! {IPTABLES_FLAGS} FIN,SYN,RST,ACK SYN -j {IPTABLES_CHAIN}")
}

/// Groups consecutive uids into ranges.
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
