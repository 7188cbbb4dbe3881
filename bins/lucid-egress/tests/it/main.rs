//! Outbound traffic of a pod with the network rules, two auditors and `lucid-egress`, in real network namespaces.
//!
//! The tests need root and the programs `unshare`, `nsenter`, `setpriv` (util-linux), `ip` (iproute2), `nft` and
//! `iptables`. Without root they print a message and pass, unless `LUCID_NEED_ALL` is set.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests and their helpers fail by panicking")]

mod limits;
#[allow(dead_code, reason = "also used by the tests of lucid-init")]
#[path = "../../../lucid-init/tests/it/network.rs"]
mod network;
mod pod;
mod protocols;
mod traffic;
