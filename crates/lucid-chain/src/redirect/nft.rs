//! `nft` scripts for a [`Redirect`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    num::NonZeroU16,
};

use super::Redirect;

/// Name of the nftables table, of the family `inet`, that holds all rules.
const NFT_TABLE: &str = "lucid";

impl Redirect {
    /// Returns a script for `nft -f`, which replaces the content of the table `lucid` with these rules for IPv4
    /// and IPv6, in one transaction.
    ///
    /// Connections that predate the rules are reset. The kernel treats the side that sends the next packet as the one
    /// that opens the connection. A packet of the client is redirected as a new connection. A packet of the server has
    /// no SYN flag and is redirected too. The first auditor does not know the connection and responds with a reset.
    pub fn nft_script(&self) -> String {
        // The table is flushed, not deleted: nft would wait until the kernel has freed a deleted table, which takes
        // longer than everything else. It also keeps its position among other tables. Single commands need a fifth
        // less memory in nft than one block for the table.
        let mut script = format!("add table inet {NFT_TABLE}\nflush table inet {NFT_TABLE}\n");
        for Chain { name, kind, hook, priority, rules } in self.chains() {
            let hook = format!("type {kind} hook {hook} priority {priority}; policy accept;");
            script += &format!("add chain inet {NFT_TABLE} {name} {{ {hook} }}\n");
            for rule in rules {
                script += &format!("add rule inet {NFT_TABLE} {name} {rule}\n");
            }
        }
        script
    }

    /// Returns the same chains for every redirect, so that nothing remains of an earlier one.
    fn chains(&self) -> [Chain; 3] {
        let first = self.first_port();
        let (mut prerouting, mut input) = (Vec::new(), Vec::new());
        let outside = self.guarded_from_outside();
        if !outside.is_empty() {
            let redirects = by_target(&outside).into_iter();
            prerouting.extend(redirects.map(|(to, ports)| format!("tcp dport {ports} redirect to :{to}")));
            let ports = set(outside.keys());
            input.push(format!("iifname != \"lo\" tcp dport {ports} reject with tcp reset"));
        }
        if let Some(reachable) = self.reachable_from_outside() {
            input.push(format!("{NO_SYN} return"));
            // One rule for each port: nft 1.0.6 lists a set of these as numbers of an invalid type.
            input.extend(
                reachable.iter().map(|port| format!("meta l4proto tcp ct original proto-dst {port} return")),
            );
            input.push("iifname != \"lo\" meta l4proto tcp reject with tcp reset".to_owned());
        }
        let guarded = self.guarded();
        let ports = set(guarded.keys());
        let mut output = vec![format!("oifname \"lo\" tcp sport {ports} {NO_SYN} redirect to :{first}")];
        let exceptions = self.exceptions().into_iter();
        output.extend(
            exceptions.map(|(uid, ports)| {
                format!("oifname \"lo\" meta skuid {uid} tcp dport {} return", set(&ports))
            }),
        );
        let redirects = by_target(&guarded).into_iter();
        output.extend(
            redirects.map(|(to, ports)| format!("oifname \"lo\" tcp dport {ports} redirect to :{to}")),
        );
        if !self.outbound.is_empty() {
            let uids: BTreeSet<_> = self.uids.iter().collect();
            output.push(format!("meta skuid {} return", set(&uids)));
            let outbound = set(&self.outbound);
            output.push(format!("oifname != \"lo\" tcp dport {outbound} redirect to :{first}"));
            prerouting.push(format!("iifname != \"lo\" tcp sport {outbound} {NO_SYN} redirect to :{first}"));
        }
        [
            Chain {
                name: "prerouting",
                kind: "nat",
                hook: "prerouting",
                priority: DSTNAT,
                rules: prerouting,
            },
            Chain { name: "input", kind: "filter", hook: "input", priority: 0, rules: input },
            Chain { name: "output", kind: "nat", hook: "output", priority: DSTNAT, rules: output },
        ]
    }
}

/// The priority `dstnat`. nft 1.0.6 rejects this name in an output chain.
const DSTNAT: i32 = -100;

/// Matches TCP packets that do not open a connection. Chains of the type `nat` see only the first packet of a
/// connection.
const NO_SYN: &str = "tcp flags & (fin | syn | rst | ack) != syn";

struct Chain {
    name: &'static str,
    kind: &'static str,
    hook: &'static str,
    priority: i32,
    rules: Vec<String>,
}

/// Groups guarded ports by the port that calls to them are redirected to.
fn by_target(guarded: &BTreeMap<NonZeroU16, NonZeroU16>) -> BTreeMap<NonZeroU16, String> {
    let targets: BTreeSet<_> = guarded.values().copied().collect();
    let ports = |target| guarded.iter().filter(move |(_, to)| **to == target).map(|(port, _)| port);
    targets.into_iter().map(|target| (target, set(ports(target)))).collect()
}

/// Formats an anonymous set, or its element if there is only one.
fn set<T: Display>(elements: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<_> = elements.into_iter().map(|element| element.to_string()).collect();
    match &*texts {
        [only] => only.clone(),
        _ => format!("{{ {} }}", texts.join(", ")),
    }
}
