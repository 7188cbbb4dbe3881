//! Completions and man pages.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use lucid_e2e::has_program;

use crate::cli::run;

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn script(shell: &str) -> String {
    run("lucid", &["completions", shell]).printed()
}

#[test]
fn bash_completes_commands_options_and_values() {
    for (words, expected) in [
        (&["ch"][..], "check"),
        (&["check", "--out"], "--output"),
        (&["check", "--output", ""], "json"),
        (&["certs", "ro"], "rotate"),
        (&["audit", "ver"], "verify"),
        (&["audit", "verify", "--wit"], "--witness"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("completions");
        fs::write(&path, script("bash")).unwrap();
        // Like bash when Tab is pressed.
        let session = r#"source "$1"; name=$2; shift 2
            spec=$(complete -p "$name") || exit 1
            words=${spec#*-F }; function=${words%% *}
            COMP_WORDS=("$name" "$@"); COMP_CWORD=$#
            previous=${COMP_WORDS[COMP_CWORD-1]}
            "$function" "$name" "${COMP_WORDS[COMP_CWORD]}" "$previous"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", session, "bash"]).arg(&path).arg("lucid").args(words);
        let output = output(&mut bash);
        let (replies, problems) = (text(output.stdout), text(output.stderr));
        assert!(replies.lines().any(|line| line == expected), "{words:?}: {replies}{problems}");
        assert_eq!(problems, "");
    }
}

#[test]
fn completions_are_valid_for_other_shells() {
    for (shell, check) in [("zsh", &["-n"][..]), ("fish", &["--no-execute"])] {
        let script = script(shell);
        assert!(script.contains("lucid"), "{shell}");
        if has_program(shell) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("completions");
            fs::write(&path, script).unwrap();
            let output = output(Command::new(shell).args(check).arg(&path));
            assert!(output.status.success(), "{shell}: {}", text(output.stderr));
        }
    }
    for shell in ["elvish", "powershell"] {
        assert!(script(shell).contains("lucid"), "{shell}");
    }
}

/// Formats a page; a correct page does not cause troff warnings.
fn formatted(page: &Path) -> String {
    let mut groff = Command::new("groff");
    let output = output(groff.args(["-k", "-man", "-ww", "-Tutf8", "-P-cbou"]).arg(page));
    let complaints = text(output.stderr);
    assert_eq!(complaints, "", "{}", page.display());
    text(output.stdout)
}

#[test]
fn man_pages_are_valid_and_complete() {
    let can_format = has_program("groff");
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("man1");
    run("lucid", &["manual", directory.to_str().unwrap()]).printed();
    let pages: Vec<_> = fs::read_dir(&directory).unwrap().map(|page| page.unwrap().path()).collect();
    assert!(pages.len() >= 4, "{pages:?}");
    assert!(pages.iter().any(|page| page.ends_with("lucid.1")), "{pages:?}");
    for page in pages {
        let source = fs::read_to_string(&page).unwrap();
        assert!(source.contains(".TH"), "{}", page.display());
        if can_format {
            assert!(formatted(&page).contains("SYNOPSIS"), "{}", page.display());
        }
    }
    let help = run("lucid", &["help"]).printed();
    let source = fs::read_to_string(directory.join("lucid.1")).unwrap().replace('\\', "");
    for command in help.lines().filter_map(|line| line.strip_prefix("  ")) {
        let word = command.split_whitespace().next().unwrap_or_default();
        if command.starts_with(char::is_lowercase) && word != "help" {
            let listed = format!("lucid-{word}(1)");
            assert!(source.contains(&listed), "{listed} is not in {source}");
        }
    }
}

#[test]
fn the_man_page_of_lucid_init_equals_its_help() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../bins/lucid-init/lucid-init.8");
    let source = fs::read_to_string(page).unwrap().replace('\\', "");
    let help = run("lucid-init", &["--help"]).printed();
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)));
    let options = words.filter(|word| word.starts_with("--") || word.starts_with("LUCID_"));
    let mut count = 0;
    for option in options {
        assert!(source.contains(option), "{option} is not in the page");
        count += 1;
    }
    assert!(count >= 6, "{help}");
    for line in help.lines().filter_map(|line| line.strip_prefix("  ")) {
        if let Some((code, meaning)) = line.split_once("  ").filter(|(code, _)| code.parse::<u8>().is_ok()) {
            assert!(source.contains(meaning), "{code}: {meaning}");
        }
    }
    if has_program("groff") {
        formatted(Path::new(page));
    }
}
