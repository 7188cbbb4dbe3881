//! Addresses of this network namespace, read from /proc.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Returns the addresses whose traffic can be redirected. Always includes 127.0.0.1.
pub(crate) fn all() -> BTreeSet<IpAddr> {
    let ipv4 = local_ipv4(&read("/proc/net/fib_trie")).into_iter().chain([Ipv4Addr::LOCALHOST]);
    let ipv6 = local_ipv6(&read("/proc/net/if_inet6"));
    ipv4.map(IpAddr::from).chain(ipv6.into_iter().map(IpAddr::from)).collect()
}

/// Returns `true` if any interface has an IPv6 address. The loopback interface has one unless IPv6 is disabled.
pub(crate) fn has_ipv6() -> bool {
    !read("/proc/net/if_inet6").is_empty()
}

/// Returns an empty string if the file is missing, as it is in kernels without IPv6.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Parses the local addresses from the leaves of the routing tables:
/// ```text
///         |-- 10.0.0.2
///            /32 host LOCAL
/// ```
fn local_ipv4(fib_trie: &str) -> Vec<Ipv4Addr> {
    let mut leaf: Option<Ipv4Addr> = None;
    let mut addresses = Vec::new();
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            addresses.extend(leaf);
        }
    }
    addresses
}

/// Parses lines of address, interface number, prefix length, scope and flags, all hexadecimal, and a name:
/// `fe80000000000000080027fffe9a1b2c 02 40 20 80     eth0`.
///
/// Link-local addresses are omitted: a socket connected to one is bound to its interface, and the redirected
/// connection is accepted by ::1, which is not on that interface. The model cannot be reached through them.
fn local_ipv6(if_inet6: &str) -> Vec<Ipv6Addr> {
    /// Flags of an address that failed or has not completed duplicate address detection (RFC 4862,
    /// `linux/if_addr.h`).
    const TENTATIVE_OR_FAILED: u8 = 0x40 | 0x08;
    let address = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let ip = Ipv6Addr::from(u128::from_str_radix(fields.next()?, 16).ok()?);
        let flags = u8::from_str_radix(fields.nth(3)?, 16).ok()?;
        (flags & TENTATIVE_OR_FAILED == 0 && !ip.is_unicast_link_local()).then_some(ip)
    };
    if_inet6.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses_in_use() {
        let fib_trie = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 10.0.0.0
        /24 link UNICAST
Local:
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.2
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
";
        assert_eq!(local_ipv4(fib_trie), [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::LOCALHOST]);

        let if_inet6 = "\
00000000000000000000000000000001 01 80 10 80       lo
20010db8000000000000000000000002 02 40 00 80     eth0
20010db8000000000000000000000003 02 40 00 c0     eth0
fe80000000000000080027fffe9a1b2c 0b 40 20 80     eth0
";
        let addresses = local_ipv6(if_inet6).into_iter().map(|address| address.to_string());
        assert_eq!(addresses.collect::<Vec<_>>(), ["::1", "2001:db8::2"]);
    }
}
