//! Converts regular expressions of the `regex` crate to RE2, which CEL's `matches` uses.
//!
//! The dialects differ, for example in `[a-z&&[^x]]`, so the result is generated from the parsed expression.

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

use crate::error::Result;

/// Maximum product of nested repetitions in RE2.
const MOST: u32 = 1000;

/// Converts `pattern`, anchored to match a whole text of ASCII characters without line breaks, such as a label value.
pub(super) fn of(pattern: &str) -> Result<String> {
    let mut written = String::from("^(?:");
    write(&regex_syntax::parse(pattern)?, MOST, &mut written)?;
    written.push_str(")$");
    Ok(written)
}

/// Writes `hir`, which may be repeated up to `most` times.
fn write(hir: &Hir, most: u32, out: &mut String) -> Result<()> {
    match hir.kind() {
        HirKind::Empty => {}
        HirKind::Literal(literal) => {
            // Characters outside ASCII are written as bytes, which match no ASCII text.
            literal.0.iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
        }
        HirKind::Class(class) => {
            let ranges: Vec<(u32, u32)> = match class {
                Class::Unicode(class) => {
                    class.iter().map(|it| (it.start().into(), it.end().into())).collect()
                }
                Class::Bytes(class) => class.iter().map(|it| (it.start().into(), it.end().into())).collect(),
            };
            let ascii = ranges.into_iter().filter(|(start, _)| *start <= 0x7f);
            let ascii: String =
                ascii.map(|(start, end)| format!("\\x{start:02x}-\\x{:02x}", end.min(0x7f))).collect();
            // A class that does not match any character.
            let none = || "^\\x{0}-\\x{10ffff}".to_owned();
            out.push_str(&format!("[{}]", if ascii.is_empty() { none() } else { ascii }));
        }
        HirKind::Look(look) => out.push_str(match look {
            Look::Start | Look::StartLF | Look::StartCRLF => "^",
            Look::End | Look::EndLF | Look::EndCRLF => "$",
            Look::WordAscii | Look::WordUnicode => "\\b",
            Look::WordAsciiNegate | Look::WordUnicodeNegate => "\\B",
            // RE2 has no `\b{start}`.
            _ => return Err("it matches the start or the end of a word, expected \\b or \\B".into()),
        }),
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let times = max.unwrap_or(*min).max(1);
            let Some(most) = most.checked_div(times).filter(|most| *most > 0) else {
                return Err(format!("a repetition exceeds {MOST}, the limit of CEL").into());
            };
            out.push_str("(?:");
            write(sub, most, out)?;
            out.push_str(&match (min, max) {
                (0, None) => ")*".to_owned(),
                (1, None) => ")+".to_owned(),
                (0, Some(1)) => ")?".to_owned(),
                (min, None) => format!("){{{min},}}"),
                (min, Some(max)) => format!("){{{min},{max}}}"),
            });
        }
        HirKind::Capture(capture) => {
            out.push_str("(?:");
            write(&capture.sub, most, out)?;
            out.push(')');
        }
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| write(part, most, out))?,
        HirKind::Alternation(parts) => {
            out.push_str("(?:");
            for (number, part) in parts.iter().enumerate() {
                out.push_str(if number == 0 { "" } else { "|" });
                write(part, most, out)?;
            }
            out.push(')');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_keep_their_meaning_across_syntaxes() {
        for (pattern, written) in [
            ("CHG[0-9]{4,}", r"^(?:\x43\x48\x47(?:[\x30-\x39]){4,})$"),
            (r"\d", r"^(?:[\x30-\x39])$"),
            ("[a-c&&[^b]]", r"^(?:[\x61-\x61\x63-\x63])$"),
            ("(?x) a b # two", r"^(?:\x61\x62)$"),
            ("(?<id>a)|(?i)b?", r"^(?:(?:(?:\x61)|(?:[\x42-\x42\x62-\x62])?))$"),
            (r"^\bA*\B$", r"^(?:^\b(?:\x41)*\B$)$"),
            (r"\p{Greek}", r"^(?:[^\x{0}-\x{10ffff}])$"),
            ("", "^(?:)$"),
        ] {
            assert_eq!(of(pattern).unwrap(), written, "{pattern}");
        }
    }

    #[test]
    fn syntax_without_a_counterpart_is_rejected() {
        for (pattern, part) in [
            ("a{1001}", "exceeds 1000"),
            ("(a{30}b){40}", "exceeds 1000"),
            (r"\b{start}a", "start or the end of a word"),
            ("(", "unclosed group"),
        ] {
            let error = of(pattern).unwrap_err().to_string();
            assert!(error.contains(part), "{pattern}: {error}");
        }
    }
}
