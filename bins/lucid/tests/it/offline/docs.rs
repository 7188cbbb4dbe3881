//! The page of the commands: its output is compared with that of the commands.

use std::path::Path;
use std::process::Command;

use lucid_e2e::page::{Page, commands};

#[test]
fn the_commands_of_the_page_print_what_it_says() {
    let page = Page::read("docs/cli.md").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_lucid")).parent().unwrap();
    let search = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut sessions = 0;
    for (language, text) in page.blocks() {
        match language {
            "yaml" => {
                let (name, _) = text.strip_prefix("# ").unwrap().split_once('\n').unwrap();
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            "json" => {
                let (name, json) = text.strip_prefix("// ").unwrap().split_once('\n').unwrap();
                std::fs::write(folder.path().join(name), json).unwrap();
            }
            "console" => {
                sessions += 1;
                for (command, said) in commands(text) {
                    let ran = Command::new("sh")
                        .args(["-c", &command])
                        .current_dir(folder.path())
                        .env("PATH", &search)
                        .output()
                        .unwrap();
                    let printed = String::from_utf8(ran.stdout).unwrap();
                    assert_eq!(printed, said, "$ {command}{}", String::from_utf8_lossy(&ran.stderr));
                }
                page.ran(text);
            }
            // Drawn, not run.
            "mermaid" => {}
            other => panic!("what to do with {other}?"),
        }
    }
    assert_eq!(sessions, 6);
}
