//! Names and addresses of the loopback interface, over which auditors forward.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns `true` if the name commonly refers to the local host, such as `localhost`, by which each auditor calls the
/// next one.
pub(super) fn is_loopback_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    // RFC 6761, section 6.3. The other names are written to the hosts file by the kubelet or by distributions.
    let last = name.rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("localhost")
        || ["localhost.localdomain", "localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns `true` for the loopback addresses that the kubelet writes, 127.0.0.1 and ::1. The rest of 127.0.0.0/8 is
/// excluded: another process could listen there on the port of an auditor bound to 127.0.0.1.
pub(super) fn is_loopback(address: &str) -> bool {
    let address = address.parse::<IpAddr>().map(|address| address.to_canonical());
    address == Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)) || address == Ok(IpAddr::V6(Ipv6Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_loopback_names_and_addresses() {
        for name in
            ["localhost", "LOCALHOST", "localhost.", "a.localhost", "ip6-loopback", "127.0.0.1", "127.0.0.2"]
        {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in ["", "localhosts", "mylocalhost", "localhost.example.com", "ledger.internal", "10.0.0.1"]
        {
            assert!(!is_loopback_name(name), "{name}");
        }
        for address in ["127.0.0.1", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"] {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["127.0.0.2", "10.0.0.1", "::", "::2", "0.0.0.0", "localhost", ""] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}
