//! Reports of tests that cannot run on this machine.

use std::{
    env,
    fmt::Display,
    process::{Command, Stdio},
    thread,
};

use crate::say;

/// Variable set where every test must run.
const NEEDED: &str = "LUCID_NEED_ALL";

/// Reports a skipped test or part of a test, with the reason, on standard error, bypassing the capture of `cargo test`.
///
/// # Panics
///
/// Panics if `LUCID_NEED_ALL` is set to a value other than `0` and the empty string, as in CI.
pub fn skip(why: impl Display) {
    let needed = env::var_os(NEEDED).is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!needed, "with {NEEDED} nothing may be skipped: {why}");
    skip_version(why);
}

/// Like [`skip()`], for tests that need another version of Kubernetes: never panics.
pub fn skip_version(why: impl Display) {
    // libtest names the thread after the test.
    let thread = thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or("what needs it");
    say(format_args!("skipped {test}: {why}"));
}

/// Returns `true` if a program that exits on `--version` is installed. Otherwise [skips](skip()) the test.
///
/// # Panics
///
/// See [`skip()`].
pub fn has_program(name: &str) -> bool {
    // Programs without this option exist as well.
    let has = Command::new(name).arg("--version").stdin(Stdio::null()).output().is_ok();
    if !has {
        skip(format_args!("{name} is not installed"));
    }
    has
}
