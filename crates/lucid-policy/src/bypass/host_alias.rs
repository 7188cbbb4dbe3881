//! Addresses of the loopback interface, over which auditors forward.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns `true` for the loopback addresses that the kubelet writes, 127.0.0.1 and ::1. The rest of 127.0.0.0/8 is
/// excluded: another process could listen there on the port of an auditor bound to 127.0.0.1.
pub(super) fn is_loopback(address: &str) -> bool {
    let address = address.parse::<IpAddr>().map(|address| address.to_canonical());
    address == Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)) || address == Ok(IpAddr::V6(Ipv6Addr::LOCALHOST))
}
