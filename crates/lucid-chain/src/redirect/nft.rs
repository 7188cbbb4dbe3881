//! A [`Redirect`] as a script for `nft`.

use std::{collections::BTreeSet, fmt::Display, num::NonZeroU16};

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
        // Deleting a table that is not there fails: the first line makes sure that it is.
        format!("table inet {NFT_TABLE} {{}}\ndelete table inet {NFT_TABLE}\n{}", self.table())
    }

    fn table(&self) -> String {
        let first = self.first();
        let mut chains = Vec::new();

        let outside = self.guarded_from_outside();
        if !outside.is_empty() {
            let ports = set(&outside);
            // -100 is `dstnat`, a name that nft 1.0.6 refuses in an output chain.
            chains.push(chain(
                "prerouting",
                "nat",
                -100,
                [format!("tcp dport {ports} redirect to :{first}")],
            ));
            let reset = format!("iifname != \"lo\" tcp dport {ports} reject with tcp reset");
            chains.push(chain("input", "filter", 0, [reset]));
        }

        let mut output = Vec::new();
        for (uid, ports) in self.exceptions() {
            output.push(format!("oifname \"lo\" meta skuid {uid} tcp dport {} return", set(&ports)));
        }
        output.push(format!("oifname \"lo\" tcp dport {} redirect to :{first}", set(&self.guarded())));
        if !self.outbound.is_empty() {
            let uids = self.chain().map(|hop| hop.uid).collect();
            output.push(format!("meta skuid {} return", set::<u32>(&uids)));
            output.push(format!(
                "oifname != \"lo\" tcp dport {} redirect to :{first}",
                set::<NonZeroU16>(&self.outbound)
            ));
        }
        chains.push(chain("output", "nat", -100, output));

        format!("table inet {NFT_TABLE} {{\n{}}}\n", chains.concat())
    }
}

fn chain(hook: &str, kind: &str, priority: i32, rules: impl IntoIterator<Item = String>) -> String {
    let rules: String = rules.into_iter().map(|rule| format!("\t\t{rule}\n")).collect();
    format!(
        "\tchain {hook} {{\n\t\ttype {kind} hook {hook} priority {priority}; policy accept;\n{rules}\t}}\n"
    )
}

/// An anonymous set, or its only element alone.
fn set<T: Display>(elements: &BTreeSet<T>) -> String {
    let texts: Vec<_> = elements.iter().map(ToString::to_string).collect();
    match &*texts {
        [only] => only.clone(),
        _ => format!("{{ {} }}", texts.join(", ")),
    }
}
