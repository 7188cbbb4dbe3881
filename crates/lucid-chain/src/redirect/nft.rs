//! A [`Redirect`] as a script for `nft`.

use std::{collections::BTreeSet, fmt::Display};

use super::Redirect;

/// The nftables table, of the family `inet`, that holds all rules.
pub const NFT_TABLE: &str = "lucid";

impl Redirect {
    /// A script for `nft -f`: it puts the table [`NFT_TABLE`] in place of whatever was there under that name, in one
    /// transaction, for IPv4 and IPv6.
    ///
    /// Connections from outside that are older than the rules, and so escaped the translation of addresses, are reset
    /// when they speak to a guarded port.
    pub fn nft_script(&self) -> String {
        // Command by command: nft needs a fifth less memory for it than for the same table as a block.
        let mut script = String::new();
        // Deleting a table that is not there fails: the first line makes sure that it is.
        for change in ["add", "delete", "add"] {
            script += &format!("{change} table inet {NFT_TABLE}\n");
        }
        for Chain { kind, hook: name, priority, rules } in self.chains() {
            let hook = format!("type {kind} hook {name} priority {priority}; policy accept;");
            script += &format!("add chain inet {NFT_TABLE} {name} {{ {hook} }}\n");
            for rule in rules {
                script += &format!("add rule inet {NFT_TABLE} {name} {rule}\n");
            }
        }
        script
    }

    fn chains(&self) -> Vec<Chain> {
        let first = self.first();
        let mut chains = Vec::new();

        let outside = self.guarded_from_outside();
        if !outside.is_empty() {
            let ports = set(&outside);
            let redirect = format!("tcp dport {ports} redirect to :{first}");
            chains.push(Chain { kind: "nat", hook: "prerouting", priority: DSTNAT, rules: vec![redirect] });
            let reset = format!("iifname != \"lo\" tcp dport {ports} reject with tcp reset");
            chains.push(Chain { kind: "filter", hook: "input", priority: 0, rules: vec![reset] });
        }

        let mut rules = Vec::new();
        for (uid, ports) in self.exceptions() {
            rules.push(format!("oifname \"lo\" meta skuid {uid} tcp dport {} return", set(&ports)));
        }
        rules.push(format!("oifname \"lo\" tcp dport {} redirect to :{first}", set(&self.guarded())));
        if !self.outbound.is_empty() {
            let uids: BTreeSet<_> = self.chain().map(|hop| hop.uid).collect();
            rules.push(format!("meta skuid {} return", set(&uids)));
            rules.push(format!("oifname != \"lo\" tcp dport {} redirect to :{first}", set(&self.outbound)));
        }
        chains.push(Chain { kind: "nat", hook: "output", priority: DSTNAT, rules });
        chains
    }
}

/// The priority `dstnat`, a name that nft 1.0.6 refuses in an output chain.
const DSTNAT: i32 = -100;

/// A base chain; it has the name of its hook.
struct Chain {
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
