//! Names of the loopback interface.

use std::net::IpAddr;

/// Returns `true` if the name commonly refers to the local host, such as `localhost`, by which each auditor calls the
/// next one.
pub fn is_loopback_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    // RFC 6761, section 6.3. The other names are written to the hosts file by the kubelet or by distributions.
    let last = name.rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("localhost")
        || ["localhost.localdomain", "localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_loopback_names() {
        for name in
            ["localhost", "LOCALHOST", "localhost.", "a.localhost", "ip6-loopback", "127.0.0.1", "127.0.0.2"]
        {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in ["", "localhosts", "mylocalhost", "localhost.example.com", "ledger.internal", "10.0.0.1"]
        {
            assert!(!is_loopback_name(name), "{name}");
        }
    }
}
