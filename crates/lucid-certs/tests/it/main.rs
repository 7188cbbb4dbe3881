//! The public API of lucid-certs
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod bundle;
mod ca;
mod common;
mod handshake;
mod injector;
mod names;
mod openssl;
mod secret;
mod self_managed;
mod target;
