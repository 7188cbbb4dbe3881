//! Where a log keeps what, and how a record stands in its line.
//!
//! ```text
//! DIRECTORY/
//!   segments/00000000000000000000.jsonl   records, one a line; the name is the first one's seq
//!   segments/00000000000000081920.jsonl
//!   checkpoint                            size and root, signed
//!   checkpoint.cosigned                   the latest one that witnesses have cosigned, if there are any
//!   vkey                                  who signs
//!   tile/0/000, tile/0/001.p/17, …        the tree
//!   tile/entries/000, …                   the records once more, as its leaves
//!   lock                                  taken by the process that writes
//!   reserve                               for a moment: the room that a full log needs before it takes records again
//! ```
//!
//! A line is `{"seq":7,"prev":"9f86d0…","time":…}`: the record's place in the log, from 0; the leaf hash of the line before,
//! or zeros in the first one; and the fields of the record. It is a leaf of the tree as it stands, without the newline.

use std::path::{Path, PathBuf};

use snafu::{OptionExt, Snafu, ensure};

use crate::merkle::Hash;
use crate::tile::{HASH, LONGEST_ENTRY};

/// The checkpoint's file.
pub const CHECKPOINT: &str = "checkpoint";
/// The file of the latest checkpoint that witnesses have cosigned.
pub const COSIGNED: &str = "checkpoint.cosigned";
/// The file of the key that verifies checkpoints.
pub const VKEY: &str = "vkey";
/// The file that the writing process has locked.
pub const LOCK: &str = "lock";
/// The file that tells whether there is room again.
pub(crate) const RESERVE: &str = "reserve";
/// The folder of the records.
pub const SEGMENTS: &str = "segments";
/// The folder of the tree.
pub const TILES: &str = "tile";

const SUFFIX: &str = ".jsonl";
const SEQ: &[u8] = b"{\"seq\":";
const PREV: &[u8] = b",\"prev\":\"";

/// The longest line, in bytes, without its newline.
pub const LONGEST_LINE: usize = LONGEST_ENTRY;

/// The longest JSON object that fits into a line wherever it comes to stand.
pub const LONGEST_RECORD: usize = LONGEST_LINE - (SEQ.len() + 20 + PREV.len() + 64 + 2) + 1;

/// Number of bytes that a record of `length` bytes takes on the disk at most: its line, and in a `sealed` log its entry and its
/// hash in the tiles.
pub(crate) const fn on_disk(length: usize, sealed: bool) -> u64 {
    let line = (length + LONGEST_LINE - LONGEST_RECORD) as u64;
    // Each full tile has a hash in the one above.
    const HASHES: u64 = HASH as u64 + 1;
    if sealed { line + 1 + 2 + line + HASHES } else { line + 1 }
}

/// The file of the segment that begins with record `first`.
#[must_use]
pub fn segment(directory: &Path, first: u64) -> PathBuf {
    directory.join(SEGMENTS).join(format!("{first:020}{SUFFIX}"))
}

/// The first record of the segment in a file of this name; `None` when it is no segment's.
#[must_use]
pub fn parse_segment(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// A line that is no record.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum LineError {
    /// It is too long to be a leaf.
    #[snafu(display("the line has {found} bytes, accepted are {LONGEST_LINE}"))]
    Long {
        /// How long it is.
        found: usize,
    },
    /// It does not begin with the two fields.
    #[snafu(display("the line does not begin with seq, a number, and prev, 64 hexadecimal digits"))]
    Shape,
}

/// A record in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its place in the log, from 0.
    pub seq: u64,
    /// The leaf hash of the line before, or zeros in the first one.
    pub prev: Hash,
    /// The fields after these two, without the opening brace.
    pub fields: &'a [u8],
}

impl<'a> Line<'a> {
    /// Reads a line without its newline. Only the two fields are looked at.
    ///
    /// # Errors
    ///
    /// When it does not begin with them, exactly as [`write_line`] writes them.
    pub fn parse(line: &'a [u8]) -> Result<Self, LineError> {
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

/// Appends a record to `lines`, with its newline. `record` is a JSON object in one line with at least one field.
pub fn write_line(lines: &mut Vec<u8>, seq: u64, prev: &Hash, record: &[u8]) {
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
    fn a_line_reads_as_it_is_written() {
        for seq in [0, 7, u64::MAX] {
            let prev = Hash([0xab; 32]);
            let mut line = Vec::new();
            write_line(&mut line, seq, &prev, br#"{"time":"now"}"#);
            assert_eq!(line.pop(), Some(b'\n'));
            let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!((&json["seq"], &json["prev"]), (&seq.into(), &prev.to_string().into()));
            assert_eq!(Line::parse(&line), Ok(Line { seq, prev, fields: br#""time":"now"}"# }));
        }
    }

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
    fn what_is_no_line_is_refused() {
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
