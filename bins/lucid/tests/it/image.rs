//! `lucid image parse` as a process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lucid"));
    command.args(["image", "parse"]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Returns exit code and lines.
fn parse(arguments: &[&str], input: &[u8]) -> (i32, Vec<String>) {
    let mut child = command(arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text.lines().map(str::to_owned).collect())
}

#[test]
fn the_exit_code_is_1_if_a_line_is_not_a_reference() {
    assert_eq!(parse(&[], b"nginx\n"), (0, vec!["nginx: docker.io/library/nginx".to_owned()]));
    assert_eq!(parse(&["--json"], b"").0, 0);
    let (code, lines) = parse(&[], b"a/B\nnginx:1\n\x1b[31m\n");
    assert_eq!((code, lines.len()), (3, 3));
    assert!(lines[0].starts_with("a/B: error: ") && lines[1].ends_with(":1"), "{lines:?}");
    assert!(lines[2].starts_with("\\u{1b}[31m: error: "), "{lines:?}");
    let (_, lines) = parse(&[], b"nginx\r\n");
    assert!(
        lines[0]
            .starts_with(r#"nginx\r: error: image reference "nginx\r" has '\r' in the repository at byte 5"#),
        "{lines:?}"
    );
}

#[test]
fn hostile_bytes_do_not_stop_it() {
    let mut input: Vec<u8> = (0..=255).filter(|byte| *byte != b'\n').collect();
    for line in
        [&b"\0\0\0"[..], b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\xe2\x80\xae", &[b'a'; 1 << 20], b"nginx"]
    {
        input.push(b'\n');
        input.extend(line);
    }
    let (code, lines) = parse(&["--json"], &input);
    assert_eq!((code, lines.len()), (3, 8));
    for line in &lines {
        let response: Value = serde_json::from_str(line).unwrap();
        let keys = ["input", "ok", "registry", "repository", "tag", "digest", "error"];
        assert!(response.as_object().unwrap().keys().all(|key| keys.contains(&&**key)), "{line}");
        assert_eq!(response["ok"].as_bool().unwrap(), response["error"].is_null(), "{line}");
    }
    assert!(lines[7].contains("library/nginx"), "{}", lines[7]);
}

#[test]
fn output_is_flushed_after_each_line() {
    let mut child = command(&["--json"]).spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut responses = BufReader::new(output).lines();
    for name in ["nginx", "a/B", "busybox:1"] {
        writeln!(input, "{name}").unwrap();
        assert!(responses.next().unwrap().unwrap().contains(name));
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}
