//! What the installed rules do, in real network namespaces.
//!
//! The tests need root and the programs `unshare`, `nsenter`, `setpriv` (util-linux), `ip` (iproute2), `nft` and
//! `iptables`. Without root they say so and pass, but for where `LUCID_NEED_ALL` is set.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod failures;
mod hops;
mod init;
mod network;
mod older;
mod outbound;
mod paths;
mod repeat;
