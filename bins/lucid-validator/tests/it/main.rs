//! Tests that need only what is public.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails in a helper fails the test"
)]

mod browser;
mod image;
mod ring;
mod ui;
