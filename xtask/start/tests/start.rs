//! The start of `cargo xtask test` on a machine without any program.

use std::process::{Command, Output};

/// Starts a task with `/bin/echo` instead of Cargo.
fn start(arguments: &[&str], need_all: &str) -> Output {
    let mut start = Command::new(env!("CARGO_BIN_EXE_xtask-start"));
    start
        .args(arguments)
        .env("PATH", "/nonexistent")
        .env("CARGO", "/bin/echo")
        .env("LUCID_NEED_ALL", need_all);
    start.output().unwrap()
}

#[test]
fn what_is_missing_is_printed_before_anything_is_compiled() {
    let output = start(&["test"], "");
    let told = String::from_utf8(output.stderr).unwrap();
    let line = told.lines().nth(1).unwrap_or_default();
    assert!(line.starts_with("apt-get install --yes --no-install-recommends gcc libc6-dev"), "{told}");
    assert!(
        line.contains(" buildah ") && line.ends_with(" && rustup component add rustfmt clippy"),
        "{told}"
    );
    assert!(output.status.success());
    assert_eq!(output.stdout, b"run --quiet --bin xtask -- test\n");
}

#[test]
fn what_is_missing_is_an_error_where_all_is_needed() {
    let output = start(&["test"], "1");
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("buildah"));
    // Only the run itself needs them.
    assert!(start(&["test", "--list"], "1").status.success());
}

#[test]
fn other_tasks_start_without_a_word() {
    let output = start(&["demo", "--once"], "1");
    assert_eq!(
        (output.stdout, output.stderr),
        (b"run --quiet --bin xtask -- demo --once\n".to_vec(), Vec::new())
    );
}
