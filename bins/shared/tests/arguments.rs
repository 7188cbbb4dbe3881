//! Error messages for invalid values.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ffi::OsString;
use std::process::Command;

use clap::Parser;

#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    Run {
        #[arg(long, env = "LUCID_TEST_PORT", default_value = "8443")]
        port: u16,
        #[arg(long, value_name = "FILE", requires = "log")]
        key: Option<String>,
        #[arg(long, env = "LUCID_TEST_LOG", value_name = "DIR")]
        log: Option<String>,
    },
}

fn parse(arguments: &[&str]) -> Result<Args, String> {
    lucid_shared::try_parse_from(arguments.iter().map(OsString::from)).map_err(|error| error.to_string())
}

/// Re-runs one test of this file in a process whose environment has `LUCID_TEST_PORT=seven`.
fn in_child(test: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored"])
        .env("LUCID_TEST_PORT", "seven")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn a_wrong_value_from_the_environment_names_the_variable() {
    in_child("child_wrong_value_from_the_environment");
}

#[test]
#[ignore = "run by a_wrong_value_from_the_environment_names_the_variable"]
fn child_wrong_value_from_the_environment() {
    let message = parse(&["lucid", "run"]).unwrap_err();
    assert!(message.contains("environment variable LUCID_TEST_PORT (the same as --port)"), "{message}");
    assert!(message.contains("seven"), "{message}");
    let message = parse(&["lucid", "run", "--port", "eight"]).unwrap_err();
    assert!(message.contains("eight") && !message.contains("LUCID_TEST_PORT"), "{message}");
}

#[test]
fn a_missing_partner_is_named_with_its_variable() {
    let message = parse(&["lucid", "run", "--key", "x"]).unwrap_err();
    assert!(message.contains("not provided:\n  --log <DIR> [env: LUCID_TEST_LOG]\n"), "{message}");
}

#[test]
fn a_right_value_parses_and_the_default_holds() {
    let Sub::Run { port, .. } = parse(&["lucid", "run"]).unwrap().command;
    assert_eq!(port, 8443);
    let Sub::Run { port, .. } = parse(&["lucid", "run", "--port=1"]).unwrap().command;
    assert_eq!(port, 1);
}
