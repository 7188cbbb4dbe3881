//! `notarize`, `revoke` and `list` as processes on real files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

fn command(registry: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lucid-verifier"));
    command.env_clear().args(arguments);
    if !arguments.contains(&"--registry") {
        command.arg("--registry").arg(registry);
    }
    command
}

/// Returns exit code, standard output and standard error.
fn run(registry: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = command(registry, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn done(registry: &Path, arguments: &[&str]) {
    let (code, _, error) = run(registry, arguments);
    assert_eq!(code, 0, "{arguments:?}: {error}");
}

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn listed(registry: &Path) -> Value {
    let (code, output, error) = run(registry, &["list", "-o", "json"]);
    assert_eq!(code, 0, "{error}");
    serde_json::from_str(&output).unwrap()
}

fn folder(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.yaml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn notarized_digests_are_listed_until_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let registry = folder.path().join("registry.yaml");
    let [a, b, c] = ['a', 'b', 'c'].map(digest);
    let image = format!("ghcr.io/lucid/lucid-pii-auditor:1.4.2@{b}");
    done(&registry, &["notarize", &a]);
    done(&registry, &["notarize", &image, "--note", "reviewed: \"twice\" # by us\nyes"]);
    done(&registry, &["notarize", &c, "--note", "c"]);
    let entry_b = json!({"digest": b, "image": image, "note": "reviewed: \"twice\" # by us\nyes"});
    assert_eq!(listed(&registry), json!({"notarized": [{"digest": a}, entry_b, {"digest": c, "note": "c"}]}));
    // Existing fields are kept, new ones replace them.
    done(&registry, &["notarize", &b]);
    done(&registry, &["notarize", &format!("registry.example/c@{c}")]);
    done(&registry, &["notarize", &a, "--note", "later"]);
    let entry_c = json!({"digest": c, "image": format!("registry.example/c@{c}"), "note": "c"});
    let entry_a = json!({"digest": a, "note": "later"});
    assert_eq!(listed(&registry), json!({"notarized": [entry_a, entry_b, entry_c]}));
    done(&registry, &["revoke", &image]);
    done(&registry, &["revoke", &c]);
    assert_eq!(listed(&registry), json!({"notarized": [entry_a]}));
    done(&registry, &["revoke", &a]);
    assert_eq!(fs::read_to_string(&registry).unwrap(), "notarized: []\n");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the registry");
}

#[test]
fn the_comments_at_the_top_are_kept() {
    let [a, b, c] = ['a', 'b', 'c'].map(digest);
    let header = "# Reviewed images.\n\n# By the platform team.\n";
    let text = format!("{header}notarized:\n  - {a}   # since May\n  - note: 'two'\n    digest: \"{b}\"\n");
    let (_folder, registry) = folder(&text);
    done(&registry, &["notarize", &c, "--note", "three"]);
    let entries = format!("notarized:\n- digest: {a}\n- digest: {b}\n  note: two\n");
    let with_c = format!("{header}{entries}- digest: {c}\n  note: three\n");
    assert_eq!(fs::read_to_string(&registry).unwrap(), with_c);
    done(&registry, &["revoke", &c]);
    assert_eq!(fs::read_to_string(&registry).unwrap(), format!("{header}{entries}"));
    // Without a change, the file is not even replaced.
    let inode = fs::metadata(&registry).unwrap().ino();
    done(&registry, &["notarize", &b]);
    assert_eq!(fs::metadata(&registry).unwrap().ino(), inode);
}

#[test]
fn mode_owner_and_symbolic_links_are_kept() {
    let (folder, registry) = folder("notarized: []\n");
    fs::set_permissions(&registry, Permissions::from_mode(0o640)).unwrap();
    let is_root = chown(&registry, Some(10_001), Some(10_002)).is_ok();
    let link = folder.path().join("link");
    symlink("registry.yaml", &link).unwrap();
    done(&link, &["notarize", &digest('a')]);
    assert!(link.is_symlink());
    let metadata = fs::metadata(&registry).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o640);
    if is_root {
        assert_eq!((metadata.uid(), metadata.gid()), (10_001, 10_002));
    }
    assert_eq!(listed(&registry)["notarized"][0]["digest"], digest('a'));
}

#[test]
fn concurrent_writers_do_not_lose_updates() {
    let (_folder, registry) = folder("# ours\nnotarized: []\n");
    let digests: Vec<_> = (0..24).map(|number| format!("sha256:{number:064x}")).collect();
    let start =
        |digest: &String| command(&registry, &["notarize", digest]).stdout(Stdio::null()).spawn().unwrap();
    for mut writer in digests.iter().map(start).collect::<Vec<_>>() {
        assert!(writer.wait().unwrap().success());
    }
    let text = fs::read_to_string(&registry).unwrap();
    assert!(text.contains("# ours"), "{text}");
    let listed = listed(&registry)["notarized"].as_array().unwrap().clone();
    assert_eq!(listed.iter().map(|entry| entry["digest"].as_str().unwrap()).collect::<Vec<_>>(), digests);
}

#[test]
fn readers_never_see_a_partial_file() {
    let (_folder, registry) = folder(&format!("notarized:\n- {}\n", digest('a')));
    let reader = std::thread::spawn({
        let registry = registry.clone();
        move || {
            let mut counts = Vec::new();
            while counts.last() != Some(&9) {
                counts.push(listed(&registry)["notarized"].as_array().unwrap().len());
            }
            counts
        }
    });
    for number in 0..8 {
        done(&registry, &["notarize", &format!("sha256:{number:064x}")]);
    }
    assert!(reader.join().unwrap().is_sorted());
}

#[test]
fn failed_commands_change_nothing() {
    let a = digest('a');
    let text = format!("notarized:\n- {a}\n");
    let (folder, registry) = folder(&text);
    for (arguments, code, says) in [
        (&["notarize", "ghcr.io/lucid/pii:1.4.2"][..], 2, "the image has no digest"),
        (&["notarize", "latest"], 2, "expected sha256:HEX"),
        (&["notarize", "nginx:1.25"], 2, "the image has no digest"),
        (&["revoke", "nginx:1.25"], 2, "the image has no digest"),
        (&["notarize", "sha256:00"], 2, "has 2 hexadecimal digits; expected 64"),
        (&["notarize", "a/B@sha256:00"], 2, "expected lower-case letters"),
        (&["notarize"], 2, "DIGEST|IMAGE@DIGEST"),
        (&["revoke", &digest('b')], 1, "is not notarized in"),
        (&["list", "-o", "xml"], 2, "table, json"),
        (&["list", "--registry", "/nonexistent/registry.yaml"], 1, "/nonexistent/registry.yaml"),
        (&["notarize", &a, "--registry", "/nonexistent/registry.yaml"], 1, "failed to read /nonexistent: "),
        (&["revoke", &a, "--registry", "/nonexistent/registry.yaml"], 1, "/nonexistent/registry.yaml"),
    ] {
        let (found, _, error) = run(&registry, arguments);
        assert_eq!(found, code, "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
        assert_eq!(fs::read_to_string(&registry).unwrap(), text);
    }
    let absent = folder.path().join("absent.yaml");
    assert_eq!(run(&absent, &["revoke", &a]).0, 1);
    assert!(!absent.exists());
    for broken in
        ["", "notarized: {}\n", "notarized: [x]\n", "notarised: []\n", "notarized: []\n---\nnotarized: []\n"]
    {
        fs::write(&registry, broken).unwrap();
        for command in ["notarize", "revoke"] {
            let (code, _, error) = run(&registry, &[command, &a]);
            assert!(code == 1 && error.contains("registry.yaml"), "{command} {broken:?}: {error}");
            assert_eq!(fs::read_to_string(&registry).unwrap(), broken);
        }
    }
}

#[test]
fn the_table_is_aligned_and_escaped() {
    let [a, b] = ['a', 'b'].map(digest);
    let text = json!({"notarized": [a, {"digest": b, "image": "web:1", "note": "red \u{1b}[31m\nand \u{202e}back"}]});
    let (_folder, registry) = folder(&text.to_string());
    let (_, output, _) = run(&registry, &["list"]);
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines.len(), 3, "{output}");
    let space = " ".repeat(65);
    assert!(lines[0].starts_with(&format!("DIGEST{space}  IMAGE")), "{output}");
    assert!(lines[1].starts_with(&format!("{a}  -    ")), "{output}");
    assert!(lines[2].ends_with("  red \\u{1b}[31m\\nand \\u{202e}back"), "{output}");
}

#[test]
fn edits_keep_the_byte_order_mark_and_remove_empty_notes() {
    let [a, b] = ['a', 'b'].map(digest);
    let (_folder, registry) = folder(&format!("\u{feff}notarized:\n- digest: {a}\n  note: one\n"));
    done(&registry, &["notarize", &b, "--note", ""]);
    done(&registry, &["notarize", &a, "--note", ""]);
    assert_eq!(listed(&registry), json!({"notarized": [{"digest": a}, {"digest": b}]}));
    done(&registry, &["revoke", &b]);
    let text = fs::read_to_string(&registry).unwrap();
    assert!(text.starts_with("\u{feff}notarized:") && text.contains(&a), "{text:?}");
}

#[test]
fn irregular_files_are_rejected_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("registry.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for arguments in [&["list"][..], &["notarize", &digest('a')], &["serve", "--listen", "127.0.0.1:0"]] {
        let (code, _, error) = run(&pipe, arguments);
        assert!(code == 1 && error.contains("expected a regular file"), "{arguments:?}: {error}");
    }
}

#[test]
fn reports_of_tests_are_recorded() {
    let (folder, registry) = folder("notarized: []\n");
    let report = folder.path().join("report.json");
    let check = |name: &str, status: &str| json!({"name": name, "status": status, "requirement": "…", "sent": "GET /"});
    let write = |version: u32, checks: &[Value]| {
        let report_text = json!({"version": version, "kit": "lucid 0.1.0", "auditor": "a", "checks": checks});
        fs::write(&report, report_text.to_string()).unwrap();
    };
    let a = digest('a');
    let notarize = ["notarize", &a, "--conformance", report.to_str().unwrap()];
    write(1, &[check("health", "passed"), check("body", "passed"), check("mask", "skipped")]);
    let (code, _, error) = run(&registry, &notarize);
    assert_eq!((code, error.as_str()), (0, ""));
    let conformance = json!({"kit": "lucid 0.1.0", "passed": 2, "skipped": 1, "failed": []});
    assert_eq!(listed(&registry)["notarized"][0], json!({"digest": a, "conformance": conformance}));
    // Later commands keep it.
    done(&registry, &["notarize", &a, "--note", "reviewed"]);
    assert_eq!(listed(&registry)["notarized"][0]["conformance"], conformance);
    let (_, table, _) = run(&registry, &["list"]);
    assert!(table.contains("CONFORMANCE") && table.contains("  2 passed  "), "{table}");

    write(1, &[check("health", "passed"), check("refuse-gzip", "failed")]);
    let (code, _, error) = run(&registry, &notarize);
    assert!(code == 0 && error.contains("although checks failed: refuse-gzip"), "{error}");
    assert_eq!(listed(&registry)["notarized"][0]["conformance"]["failed"], json!(["refuse-gzip"]));
    let (_, table, _) = run(&registry, &["list"]);
    assert!(table.contains("1 failed, 1 passed"), "{table}");

    // Other files change nothing.
    let before = fs::read_to_string(&registry).unwrap();
    for (text, told) in [
        ("{}".to_owned(), "expected the output of lucid auditor test -o json"),
        (json!({"version": 2, "kit": "", "checks": []}).to_string(), "expected version 1, found 2"),
        (json!({"version": 1, "kit": "", "checks": []}).to_string(), "expected 1 to 256 checks"),
        (
            json!({"version": 1, "kit": "x".repeat(65), "checks": [check("a", "passed")]}).to_string(),
            "at most 64 bytes",
        ),
        (" ".repeat(5 << 20), "expected at most 4194304 bytes"),
    ] {
        fs::write(&report, text).unwrap();
        let (code, _, error) = run(&registry, &notarize);
        assert!(code == 1 && error.contains(told), "{told}: {error}");
    }
    assert_eq!(fs::read_to_string(&registry).unwrap(), before);
}
