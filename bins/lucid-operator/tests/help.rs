//! `lucid-operator run --help`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::process::Command;

#[test]
fn every_option_has_a_description_and_a_default() {
    let output = Command::new(env!("CARGO_BIN_EXE_lucid-operator")).args(["run", "--help"]).output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    let options: Vec<&str> = help.split("\n      --").skip(1).collect();
    assert!(options.len() > 30, "{help}");
    for option in options {
        // Up to the next heading.
        let option = option.split("\n\n").filter(|part| part.starts_with(' ') || !part.ends_with(':'));
        let words: Vec<&str> = option.flat_map(str::split_whitespace).collect();
        let text = words.join(" ");
        let name = words[0];
        assert_eq!(text.contains("[env: "), text.contains("[env: LUCID_"), "--{name}: {text}");
        let tells = ["[default: ", "default", "Without it", "unless said otherwise", "instead of"];
        assert!(tells.iter().any(|says| text.contains(says)), "--{name} does not tell its default: {text}");
        assert!(words.len() > 8, "--{name} does not tell what it does: {text}");
    }
}
