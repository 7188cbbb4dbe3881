//! The single list of checks and tasks
fn main() {}
