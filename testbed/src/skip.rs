//! Tests that cannot be run on this machine.

use std::{
    env,
    fmt::Display,
    process::{Command, Stdio},
    thread,
};

use crate::say;

/// Set where every test has to have been run.
const NEEDED: &str = "LUCID_NEED_ALL";

/// Says on standard error, past the capture of `cargo test`, that a test or a part of it is skipped, and why. With
/// `LUCID_NEED_ALL=1` in the environment, as CI has it, that is a failure.
///
/// # Panics
/// When `LUCID_NEED_ALL` is set to anything but `0` and nothing.
pub fn skip(why: impl Display) {
    let needed = env::var_os(NEEDED).is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!needed, "with {NEEDED} nothing may be skipped: {why}");
    // libtest names the thread of a test after it.
    let thread = thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or("what needs it");
    say(format_args!("skipped {test}: {why}"));
}

/// For what needs a program that ends when it is asked for its `--version`: whether to go on. When it is not there, that is [skipped](skip()).
///
/// # Panics
/// As [`skip()`].
pub fn has_program(name: &str) -> bool {
    // Some know no such option, and are there.
    let has = Command::new(name).arg("--version").stdin(Stdio::null()).output().is_ok();
    if !has {
        skip(format_args!("{name} is not installed"));
    }
    has
}
