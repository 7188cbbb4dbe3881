//! An auditor that refuses texts which name a competitor.
fn main() {}
