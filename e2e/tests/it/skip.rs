//! Reports of skipped tests.

use std::process::Command;

use lucid_e2e::{has_program, skip, skip_version};

#[test]
#[ignore = "run by the next test, in a process"]
fn needs_a_missing_program() {
    skip_version("too old");
    if !has_program("no-such-program") {
        skip("this too");
    }
}

#[test]
fn skipped_tests_are_named_and_fail_where_not_allowed() {
    let test = "skip::needs_a_missing_program";
    // The harness captures the output, as for every test.
    let mut captured = Command::new(std::env::current_exe().unwrap());
    captured.args(["--ignored", "--exact", test]).env("RUST_TEST_THREADS", "2");
    for (value, passes) in [(None, true), (Some("0"), true), (Some(""), true), (Some("1"), false)] {
        captured.env_remove("LUCID_NEED_ALL").envs(value.map(|value| ("LUCID_NEED_ALL", value)));
        let output = captured.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), passes, "{value:?}: {said}");
        let version = format!("testbed: skipped {test}: too old\n");
        let lines = [
            version.clone(),
            format!("testbed: skipped {test}: no-such-program is not installed\n"),
            format!("testbed: skipped {test}: this too\n"),
        ];
        assert_eq!(said, if passes { lines.concat() } else { version }, "{value:?}");
    }
}
