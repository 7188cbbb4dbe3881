//! A [`Redirect`] as input for `iptables-restore`.

use std::{fmt::Write as _, ops::RangeInclusive};

use super::Redirect;

/// The chain of the table `nat` that sends what jumps to it to the first auditor.
pub const IPTABLES_CHAIN: &str = "LUCID_REDIRECT";

impl Redirect {
    /// Input for `iptables-restore --noflush`, and the same for `ip6tables-restore --noflush`, where nothing of it is
    /// installed yet: it creates [`IPTABLES_CHAIN`], so that it fails as a whole, without any change, where the chain is
    /// there already. [`Redirect::iptables_restore_over`] is for then.
    ///
    /// The matches are those that every kernel with iptables has, gVisor's included: `tcp` and `owner`, no `multiport`
    /// and no `comment`.
    pub fn iptables_restore(&self) -> String {
        let jumps = self.jumps().into_iter().map(|jump| format!("-A {jump}"));
        self.restore(&format!("-N {IPTABLES_CHAIN}"), jumps)
    }

    /// The same where rules may be installed: `saved` is what `iptables-save -t nat` prints (for IPv6, what
    /// `ip6tables-save -t nat` prints). Rules of others stay as they are, rules of an earlier plan go, and where exactly
    /// these rules are installed nothing changes.
    pub fn iptables_restore_over(&self, saved: &str) -> String {
        let target = format!(" -j {IPTABLES_CHAIN}");
        let rules = saved.lines().filter_map(|line| line.trim_end().strip_prefix("-A "));
        let installed: Vec<_> = rules.filter(|rule| rule.ends_with(&target)).collect();
        let jumps = self.jumps();
        let changes: Vec<_> = if installed == jumps {
            Vec::new()
        } else {
            let old = installed.iter().map(|jump| format!("-D {jump}"));
            old.chain(jumps.iter().map(|jump| format!("-A {jump}"))).collect()
        };
        // Creates the chain or empties it.
        self.restore(&format!(":{IPTABLES_CHAIN} - [0:0]"), changes)
    }

    fn restore(&self, chain: &str, jumps: impl IntoIterator<Item = String>) -> String {
        let first = self.first();
        let jumps: String = jumps.into_iter().map(|jump| format!("{jump}\n")).collect();
        format!("*nat\n{chain}\n{jumps}-A {IPTABLES_CHAIN} -p tcp -j REDIRECT --to-ports {first}\nCOMMIT\n")
    }

    /// The rules that jump to [`IPTABLES_CHAIN`], written as `iptables-save` does. A jump is not taken when one of its
    /// uids calls, so that these go on to the rules of others instead of past them.
    fn jumps(&self) -> Vec<String> {
        let inbound = self.guarded_from_outside();
        let mut jumps: Vec<_> = inbound.iter().map(|port| jump("PREROUTING", *port, &[])).collect();
        for port in self.guarded() {
            let excepted = self.exceptions().filter(|(_, ports)| ports.contains(&port));
            let uids: Vec<_> = excepted.map(|(uid, _)| uid).collect();
            jumps.push(jump("OUTPUT -o lo", port, &uids));
        }
        let uids: Vec<_> = self.chain().map(|hop| hop.uid).collect();
        jumps.extend(self.outbound().map(|port| jump("OUTPUT ! -o lo", port, &uids)));
        jumps
    }
}

fn jump(from: &str, port: impl std::fmt::Display, but_for: &[u32]) -> String {
    let mut rule = format!("{from} -p tcp -m tcp --dport {port}");
    for uids in ranges(but_for) {
        // Writing to a String cannot fail.
        let _ = match (uids.start(), uids.end()) {
            (first, last) if first == last => write!(rule, " -m owner ! --uid-owner {first}"),
            (first, last) => write!(rule, " -m owner ! --uid-owner {first}-{last}"),
        };
    }
    format!("{rule} -j {IPTABLES_CHAIN}")
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
