//! Integration tests of the public API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod anchors;
mod bundle;
mod ca;
mod clients;
mod common;
mod driver;
mod examples;
mod files;
mod files_served;
mod files_without_events;
mod go;
mod handshake;
mod hostile;
mod injector;
mod logs;
mod names;
mod openssl;
mod pod_certificate;
mod secret_source;
mod self_managed;
mod swaps;
mod target;
