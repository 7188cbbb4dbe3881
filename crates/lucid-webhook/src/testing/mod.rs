//! Helpers for the tests of a webhook (feature `testing`).

mod difference;
pub mod round_trip;
pub mod schema;
