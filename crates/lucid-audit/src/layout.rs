//! Files of a log and the format of its lines. The crate's documentation has an overview.

use std::path::{Path, PathBuf};

use snafu::{OptionExt, Snafu, ensure};

use crate::merkle::Hash;

pub(crate) const CHECKPOINT: &str = "checkpoint";
pub(crate) const COSIGNED: &str = "checkpoint.cosigned";
pub(crate) const VKEY: &str = "vkey";
/// File with the first record that a pruned log keeps.
pub(crate) const MINIMUM: &str = "minimum";
/// File with a generated signing key.
pub(crate) const KEY: &str = "key";
pub(crate) const LOCK: &str = "lock";
/// Temporary file for checking the free space.
pub(crate) const RESERVE: &str = "reserve";
pub(crate) const SEGMENTS: &str = "segments";
pub(crate) const TILES: &str = "tile";

const SUFFIX: &str = ".jsonl";
const SEQ: &[u8] = b"{\"seq\":";
const PREV: &[u8] = b",\"prev\":\"";

/// Maximum length of a line in bytes, without its newline: that of an entry in a tile.
pub(crate) const LONGEST_LINE: usize = u16::MAX as usize;

pub(crate) const HASH: usize = 32;

/// Maximum length of a record in bytes. Its line fits at any position in the log.
pub(crate) const LONGEST_RECORD: usize = LONGEST_LINE - (SEQ.len() + 20 + PREV.len() + 64 + 2) + 1;

/// Returns the maximum disk usage in bytes of a record of `length` bytes: its line and, in a `sealed` log, its entry and its
/// hashes in the tiles.
pub(crate) const fn on_disk(length: usize, sealed: bool) -> u64 {
    let line = (length + LONGEST_LINE - LONGEST_RECORD) as u64;
    // Each full tile adds a hash to the tile above.
    const HASHES: u64 = HASH as u64 + 1;
    if sealed { line + 1 + 2 + line + HASHES } else { line + 1 }
}

/// Returns the disk usage in bytes of a sealed segment: its lines, and their entries and hashes in the tiles.
pub(crate) const fn segment_on_disk(length: u64, records: u64) -> u64 {
    length.saturating_mul(2).saturating_add(records.saturating_mul(2 + HASH as u64))
}

pub(crate) fn segment(directory: &Path, first: u64) -> PathBuf {
    directory.join(SEGMENTS).join(format!("{first:020}{SUFFIX}"))
}

/// Parses the file name of a segment. Returns the sequence number of its first record, or `None` for other files.
pub(crate) fn parse_segment(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
pub(crate) enum LineError {
    #[snafu(display("expected a line of at most {LONGEST_LINE} bytes, found {found}"))]
    Long { found: usize },
    #[snafu(display("the line does not begin with seq, a number, and prev, 64 hexadecimal digits"))]
    Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Position of the record in the log, from 0.
    pub(crate) seq: u64,
    /// Leaf hash of the previous line, or zeros in the first one.
    pub(crate) prev: Hash,
    /// Remaining fields, without the opening brace.
    pub(crate) fields: &'a [u8],
}

impl<'a> Line<'a> {
    /// Parses `seq` and `prev` of a line without its newline. The remaining fields are not checked.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, LineError> {
        ensure!(line.len() <= LONGEST_LINE, LongSnafu { found: line.len() });
        Self::split(line).context(ShapeSnafu)
    }

    fn split(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_prefix(SEQ)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, line) = line.split_at(digits);
        let padded = number.len() > 1 && number.first() == Some(&b'0');
        let seq = if padded { None } else { str::from_utf8(number).ok()?.parse().ok() };
        let (prev, line) = line.strip_prefix(PREV)?.split_at_checked(64)?;
        Some(Self { seq: seq?, prev: Hash::from_hex(prev)?, fields: line.strip_prefix(b"\",")? })
    }
}

/// Appends the line of a record to `lines`, with its newline. `record` is a one-line JSON object with at least one field.
pub(crate) fn write_line(lines: &mut Vec<u8>, seq: u64, prev: &Hash, record: &[u8]) {
    lines.extend_from_slice(SEQ);
    lines.extend_from_slice(seq.to_string().as_bytes());
    lines.extend_from_slice(PREV);
    lines.extend_from_slice(&prev.to_hex());
    lines.extend_from_slice(b"\",");
    lines.extend_from_slice(record.get(1..).unwrap_or_default());
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_record_is_the_longest_line() {
        let mut line = Vec::new();
        let record = format!("{{\"a\":\"{}\"}}", "x".repeat(LONGEST_RECORD - 8));
        assert_eq!(record.len(), LONGEST_RECORD);
        write_line(&mut line, u64::MAX, &Hash::ZERO, record.as_bytes());
        line.pop();
        assert_eq!(line.len(), LONGEST_LINE);
        assert!(Line::parse(&line).is_ok());
        line.push(b' ');
        assert_eq!(Line::parse(&line), Err(LineError::Long { found: LONGEST_LINE + 1 }));
    }

    #[test]
    fn malformed_lines_are_rejected() {
        let prev = "ab".repeat(32);
        let good = format!(r#"{{"seq":7,"prev":"{prev}","a":1}}"#);
        assert!(Line::parse(good.as_bytes()).is_ok());
        for line in [
            String::new(),
            good.replace(":7", ":07"),
            good.replace(":7", ":"),
            good.replace(":7", ":-7"),
            good.replace(":7", ": 7"),
            good.replace(":7", ":18446744073709551616"),
            good.replace("ab\",", "AB\","),
            good.replace("ab\",", "\","),
            format!(r#"{{"prev":"{prev}","seq":7,"a":1}}"#),
            format!(" {good}"),
        ] {
            assert_eq!(Line::parse(line.as_bytes()), Err(LineError::Shape), "{line}");
        }
    }

    #[test]
    fn segments_are_named_by_their_first_record() {
        let path = segment(Path::new("/log"), 81_920);
        assert_eq!(path, Path::new("/log/segments/00000000000000081920.jsonl"));
        assert_eq!(parse_segment("00000000000000081920.jsonl"), Some(81_920));
        for name in
            ["0.jsonl", "00000000000000081920", "0000000000000008192+.jsonl", "99999999999999999999.jsonl"]
        {
            assert_eq!(parse_segment(name), None, "{name}");
        }
    }
}
