//! `lucid image parse`: parses image references, one per line.

use std::io::{self, BufRead, BufReader, Read, Write};

use lucid_notary::{Digest, ImageReference};
use serde::Serialize;

use crate::error::{Result, ResultExt};

/// Maximum length of a line in bytes; references are shorter than 1 KiB. The rest of a longer line is skipped.
const LONGEST: usize = 64 * 1024;
const SHOWN: usize = 256;

/// Options of `lucid image`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum ImageCommand {
    /// Parse references from standard input, one per line, and print one line for each: the canonical form or the error
    /// with its position. Exit code 0: all references are valid; 3: some are not.
    Parse(ParseArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct ParseArgs {
    /// Print one JSON object per line with the keys input, ok, registry, repository, tag, digest and error, instead of
    /// text.
    #[arg(long)]
    json: bool,
}

/// Result for one line. All keys are present; unknown values are null.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    input: &'a str,
    ok: bool,
    registry: Option<&'a str>,
    repository: Option<&'a str>,
    tag: Option<&'a str>,
    digest: Option<&'a Digest>,
    error: Option<&'a str>,
}

/// Writes one line to `output` for each line of `input`, in the same order. Returns `true` if all lines are valid
/// references.
///
/// A line ends with `\n`, which is not part of the reference; all other bytes are. An invalid line does not affect
/// later ones.
pub(crate) fn image(args: &ImageArgs, input: impl Read, output: &mut impl Write) -> Result<bool> {
    let ImageCommand::Parse(ParseArgs { json }) = args.command;
    let (mut input, mut output) = (BufReader::new(input), io::BufWriter::new(output));
    let (mut line, mut all) = (Vec::new(), true);
    while next_line(&mut input, &mut line).failed_to("read standard input")? {
        all &= answer(&line, json, &mut output).failed_to_print()?;
        // Interactive callers wait for the result before they send the next line.
        if input.buffer().is_empty() {
            output.flush().failed_to_print()?;
        }
    }
    output.flush().failed_to_print()?;
    Ok(all)
}

/// Reads a line without its terminator into `line`. Of a line longer than [`LONGEST`], `line` has one byte more than that.
/// Returns `false` at the end of the input.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if input.take(LONGEST as u64 + 1).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.pop_if(|last| *last == b'\n').is_none() && line.len() > LONGEST {
        input.skip_until(b'\n')?;
    }
    Ok(true)
}

fn answer(line: &[u8], json: bool, output: &mut impl Write) -> io::Result<bool> {
    let is_too_long = line.len() > LONGEST;
    let input = String::from_utf8_lossy(if is_too_long { &line[..SHOWN] } else { line });
    let parsed = match std::str::from_utf8(line) {
        _ if is_too_long => {
            Err(format!("is too long (the first {SHOWN} bytes are shown), expected at most {LONGEST} bytes"))
        }
        Ok(text) => text.parse::<ImageReference>().map_err(|error| error.to_string()),
        Err(error) => Err(format!("is not UTF-8 from byte {} on; a reference is ASCII", error.valid_up_to())),
    };
    if json {
        let reference = parsed.as_ref().ok();
        let answer = Answer {
            input: &input,
            ok: parsed.is_ok(),
            registry: reference.map(ImageReference::registry),
            repository: reference.map(ImageReference::repository),
            tag: reference.and_then(ImageReference::tag),
            digest: reference.and_then(ImageReference::digest),
            error: parsed.as_ref().err().map(String::as_str),
        };
        serde_json::to_writer(&mut *output, &answer)?;
        writeln!(output)?;
    } else {
        match &parsed {
            Ok(reference) => writeln!(output, "{}: {}", input.escape_debug(), reference.canonical())?,
            // The error escapes what it quotes.
            Err(error) => writeln!(output, "{}: error: {}", input.escape_debug(), error)?,
        }
    }
    Ok(parsed.is_ok())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(input: &[u8]) -> (bool, Vec<Value>) {
        let args = ImageArgs { command: ImageCommand::Parse(ParseArgs { json: true }) };
        let mut output = Vec::new();
        let all = image(&args, input, &mut output).unwrap();
        let lines = String::from_utf8(output).unwrap();
        (all, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[test]
    fn each_line_has_a_result_with_all_keys() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let (all, lines) = parse(format!("nginx\nlocalhost:5000/a/b:1@{digest}\n").as_bytes());
        assert!(all);
        let first = json!({"input": "nginx", "ok": true, "registry": "docker.io", "repository": "library/nginx",
            "tag": null, "digest": null, "error": null});
        let second = json!({"input": format!("localhost:5000/a/b:1@{digest}"), "ok": true, "registry": "localhost:5000",
            "repository": "a/b", "tag": "1", "digest": digest, "error": null});
        assert_eq!(lines, [first, second]);
        let (all, lines) = parse(b"a/B\n\n nginx\nnginx\r\n\xff\nnginx:1");
        assert!(!all);
        assert_eq!(lines.len(), 6);
        for (line, input) in lines[..5].iter().zip(["a/B", "", " nginx", "nginx\r", "\u{fffd}"]) {
            assert_eq!(
                (&line["input"], &line["ok"], &line["registry"]),
                (&json!(input), &json!(false), &Value::Null)
            );
            assert!(!line["error"].as_str().unwrap().is_empty());
        }
        assert_eq!(lines[5]["ok"], true);
        assert_eq!(parse(b""), (true, Vec::new()));
    }

    #[test]
    fn endless_lines_are_skipped_without_being_buffered() {
        let long = io::repeat(b'a').take(100 * 1024 * 1024);
        let input = long.chain(&b"\nnginx\n"[..]);
        let args = ImageArgs { command: ImageCommand::Parse(ParseArgs { json: true }) };
        let mut output = Vec::new();
        assert!(!image(&args, input, &mut output).unwrap());
        let lines: Vec<_> = output.split(|byte| *byte == b'\n').collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].len() < 1024 && lines[0].ends_with(b"expected at most 65536 bytes\"}"));
        assert!(lines[1].starts_with(br#"{"input":"nginx","ok":true"#));
        let just = [vec![b'a'; LONGEST], vec![b'a'; LONGEST + 1]].join(&b'\n');
        let (_, lines) = parse(&just);
        assert_eq!(lines[0]["input"].as_str().unwrap().len(), LONGEST);
        assert_eq!(lines[1]["input"].as_str().unwrap().len(), SHOWN);
    }
}
