//! Helpers for the tests of a webhook (feature `testing`).
