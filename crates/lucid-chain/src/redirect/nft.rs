//! A [`Redirect`] as a script for `nft`.

use std::{collections::BTreeSet, fmt::Display};

use super::Redirect;

/// The nftables table, of the family `inet`, that holds all rules.
pub const NFT_TABLE: &str = "lucid";

impl Redirect {
    /// A script for `nft -f`: in one transaction, for IPv4 and IPv6, the table [`NFT_TABLE`] gets these rules in place of
    /// any it had.
    ///
    /// Connections that are older than the rules, and so escaped the translation of addresses, are reset when they speak
    /// to a guarded port: native auditors listen before the rules are there.
    pub fn nft_script(&self) -> String {
        // Emptied, not deleted: the kernel makes nft wait until it has let go of a deleted table, which takes longer than
        // everything else, and the table keeps its place among others.
        // Command by command: nft needs a fifth less memory for it than for the same table as a block.
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

    /// The same chains for every redirect, so that nothing is left of an earlier one.
    fn chains(&self) -> [Chain; 4] {
        let first = self.first();
        let (mut prerouting, mut input) = (Vec::new(), Vec::new());
        let outside = self.guarded_from_outside();
        if !outside.is_empty() {
            let ports = set(&outside);
            prerouting.push(format!("tcp dport {ports} redirect to :{first}"));
            input.push(format!("iifname != \"lo\" tcp dport {ports} reject with tcp reset"));
        }
        let exceptions = self
            .exceptions()
            .map(|(uid, ports)| format!("oifname \"lo\" meta skuid {uid} tcp dport {} return", set(&ports)));
        let mut output: Vec<_> = exceptions.collect();
        // To the kernel, who speaks first after the rules are there has made the connection, and if that is the server, no
        // rule of the other direction translates it. Not all packets but these: some of an auditor's, such as the last of
        // a connection, have no uid.
        let mut older = output.clone();
        let guarded = set(&self.guarded());
        older.push(format!("oifname \"lo\" ct direction reply tcp dport {guarded} reject with tcp reset"));
        output.push(format!("oifname \"lo\" tcp dport {guarded} redirect to :{first}"));
        if !self.outbound.is_empty() {
            let uids: BTreeSet<_> = self.chain().map(|hop| hop.uid).collect();
            output.push(format!("meta skuid {} return", set(&uids)));
            output.push(format!("oifname != \"lo\" tcp dport {} redirect to :{first}", set(&self.outbound)));
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
            Chain { name: "older", kind: "filter", hook: "output", priority: 0, rules: older },
        ]
    }
}

/// The priority `dstnat`, a name that nft 1.0.6 refuses in an output chain.
const DSTNAT: i32 = -100;

/// A base chain.
struct Chain {
    name: &'static str,
    kind: &'static str,
    hook: &'static str,
    priority: i32,
    rules: Vec<String>,
}

/// An anonymous set, or its only element alone.
fn set<T: Display>(elements: &BTreeSet<T>) -> String {
    let texts: Vec<_> = elements.iter().map(ToString::to_string).collect();
    match &*texts {
        [only] => only.clone(),
        _ => format!("{{ {} }}", texts.join(", ")),
    }
}
