//! The start of `cargo xtask test` on a machine without any program.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

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
fn missing_packages_are_printed_before_compiling() {
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
fn missing_packages_are_errors_where_all_are_needed() {
    let output = start(&["test"], "1");
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("buildah"));
    // Only the run itself needs them.
    assert!(start(&["test", "--list"], "1").status.success());
}

#[test]
fn other_tasks_start_silently() {
    for arguments in [["testbed", "up"], ["demo", "--node"]] {
        let output = start(&arguments, "1");
        let expected = format!("run --quiet --bin xtask -- {}\n", arguments.join(" "));
        assert_eq!((output.stdout, output.stderr), (expected.into_bytes(), Vec::new()));
    }
}

#[test]
fn the_first_demo_compiles_with_go_beside_cargo() {
    let folder = std::env::temp_dir().join(format!("xtask-start-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    // Each waits for the other.
    let script = |name: &str, other: &str| {
        let path = folder.join(name);
        let wait = "timeout 60 sh -c 'while [ ! -e $name ]; do sleep 0.05; done'"
            .replace("$name", &format!("$F/{other}.ran"));
        std::fs::write(&path, format!("#!/bin/sh\necho $@ >>$F/{name}.ran\n{wait}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        path
    };
    let (cargo, _go) = (script("cargo", "go"), script("go", "cargo"));
    let run = || {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_xtask-start"));
        demo.args(["demo", "--once"]).env("CARGO", &cargo).env("F", &folder).env("XDG_CACHE_HOME", &folder);
        let path = format!("{}:/usr/bin:/bin", folder.display());
        assert!(
            demo.env("PATH", path)
                .env_remove("KUBEBUILDER_ASSETS")
                .env_remove("LUCID_TESTBED_CACHE")
                .status()
                .unwrap()
                .success()
        );
        ["cargo.ran", "go.ran"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap())
    };
    let [of_cargo, of_go] = run();
    let build = "build --quiet --bin xtask --bin lucid-operator --bin lucid-verifier\n";
    let demo = "run --quiet --bin xtask -- demo --once\n";
    assert_eq!(of_cargo, [build, demo].concat());
    assert!(of_go.starts_with("list -export -trimpath "), "{of_go}");
    // Later ones leave it to the test bed.
    std::fs::create_dir_all(folder.join("lucid/testbed")).unwrap();
    assert_eq!(run(), [[build, demo, demo].concat(), of_go]);
    std::fs::remove_dir_all(folder).unwrap();
}
