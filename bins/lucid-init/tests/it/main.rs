//! Effects of the installed rules, in real network namespaces.
//!
//! The tests need root and the programs `unshare`, `nsenter`, `setpriv` (util-linux), `ip` (iproute2), `nft` and
//! `iptables`. Without root they print a message and pass, unless `LUCID_NEED_ALL` is set.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests and their helpers fail by panicking")]

mod closed;
mod failures;
mod hops;
mod init;
mod network;
mod older;
mod outbound;
mod paths;
mod repeat;
mod routes;
