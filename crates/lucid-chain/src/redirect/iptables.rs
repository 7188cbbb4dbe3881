//! A [`Redirect`] as input for `iptables-restore`.

use std::{fmt::Write as _, ops::RangeInclusive};

use super::Redirect;

/// Chain of the table `nat` that redirects packets to the first auditor, on the route of their port.
const IPTABLES_CHAIN: &str = "LUCID_REDIRECT";

/// Match option of the rules that reset existing connections in which the server sends the next packet; see
/// [`Redirect::nft_script`].
const IPTABLES_FLAGS: &str = "--tcp-flags";

/// Chain of the table `filter` that drops packets from outside to a guarded port that the table `nat` did not
/// translate, because their connection predates the rules. Native auditors listen before the rules are installed.
const STALE_CHAIN: &str = "LUCID_OLDER";

/// Chain of the table `filter` that refuses connections from outside to closed ports.
const CLOSED_CHAIN: &str = "LUCID_CLOSED";

impl Redirect {
    /// Returns the input for `iptables-restore --noflush` and `ip6tables-restore --noflush`. `saved` is the output of
    /// `iptables-save` or, for IPv6, `ip6tables-save`; `None` for a pod without these rules.
    ///
    /// Saved rules of an earlier plan are removed and third-party rules stay. If exactly these rules are installed,
    /// nothing changes. Without saved rules, the input fails without any change if the chain LUCID_REDIRECT exists.
    ///
    /// It uses only the matches `tcp` and `owner`, which every kernel with iptables has, and neither `multiport` nor
    /// `comment`. gVisor supports all of it except the `--tcp-flags` of `tcp`. The rules for open ports also need the
    /// match `conntrack` and the target `REJECT`, which gVisor lacks.
    pub fn iptables_restore(&self, saved: Option<&str>) -> String {
        let Some(saved) = saved else {
            let add =
                |jumps: Vec<String>| jumps.into_iter().map(|jump| format!("-A {jump}")).collect::<Vec<_>>();
            let nat = self.nat(&format!("-N {IPTABLES_CHAIN}"), &add(self.jumps()));
            let chains = self.filter_chains().into_iter().filter(|chain| !chain.jumps.is_empty());
            // After `nat`, which fails if the chain exists.
            return nat + &filter(chains.map(|chain| FilterChain { jumps: add(chain.jumps), ..chain }));
        };
        // Creates the chain or empties it.
        let nat = self.nat(&create(IPTABLES_CHAIN), &changes(saved, IPTABLES_CHAIN, self.jumps()));
        let chains = self.filter_chains().into_iter();
        let chains = chains.filter(|chain| !chain.jumps.is_empty() || saved.contains(chain.name));
        nat + &filter(chains.map(|chain| {
            let jumps = changes(saved, chain.name, chain.jumps);
            FilterChain { jumps, ..chain }
        }))
    }

    fn nat(&self, create: &str, jumps: &[String]) -> String {
        let first = self.first_port();
        let redirect = |ports: &str, to| format!("-p tcp{ports} -j REDIRECT --to-ports {to}");
        let guarded = self.guarded();
        let others = guarded.iter().filter(|(_, to)| **to != first);
        let mut rules: Vec<_> =
            others.map(|(port, to)| redirect(&format!(" -m tcp --dport {port}"), to)).collect();
        rules.push(redirect("", &first));
        format!("*nat\n{}COMMIT\n", chain(create, jumps, IPTABLES_CHAIN, &rules))
    }

    /// Returns the chains of the table `filter`, with jumps written and ordered as by `iptables-save`.
    fn filter_chains(&self) -> [FilterChain; 2] {
        let guarded = self.guarded_from_outside();
        let stale_jumps = guarded.keys().map(|port| jump("INPUT ! -i lo", port, &[], STALE_CHAIN));
        let (mut closed_jumps, mut closed) = (Vec::new(), Vec::new());
        if let Some(reachable) = self.reachable_from_outside() {
            closed_jumps.push(format!("INPUT ! -i lo -p tcp -j {CLOSED_CHAIN}"));
            // Not `IPTABLES_FLAGS`, whose rules may be omitted.
            closed.push("-p tcp -m tcp ! --syn -j RETURN".to_owned());
            closed.extend(
                reachable.iter().map(|port| format!("-p tcp -m conntrack --ctorigdstport {port} -j RETURN")),
            );
            closed.push("-p tcp -j REJECT --reject-with tcp-reset".to_owned());
        }
        [
            FilterChain {
                name: STALE_CHAIN,
                jumps: stale_jumps.collect(),
                rules: vec!["-p tcp -j DROP".to_owned()],
            },
            FilterChain { name: CLOSED_CHAIN, jumps: closed_jumps, rules: closed },
        ]
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

struct FilterChain {
    name: &'static str,
    jumps: Vec<String>,
    rules: Vec<String>,
}

fn filter(chains: impl Iterator<Item = FilterChain>) -> String {
    let chains: String = chains.map(|it| chain(&create(it.name), &it.jumps, it.name, &it.rules)).collect();
    if chains.is_empty() { chains } else { format!("*filter\n{chains}COMMIT\n") }
}

fn chain(create: &str, jumps: &[String], name: &str, rules: &[String]) -> String {
    let jumps: String = jumps.iter().map(|jump| format!("{jump}\n")).collect();
    let rules: String = rules.iter().map(|rule| format!("-A {name} {rule}\n")).collect();
    format!("{create}\n{jumps}{rules}")
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
