//! Regular expressions of the crate regex in the syntax of RE2, which CEL's `matches` takes.
//!
//! The two read some expressions differently, `[a-z&&[^x]]` for one. So what is written is made of what the expression means.

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};
use snafu::{OptionExt, ResultExt, Snafu};

/// The most repetitions that RE2 takes, also when they are nested.
const MOST: u32 = 1000;

/// RE2 has nothing for it.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum Re2Error {
    /// It is no regular expression at all.
    #[snafu(display("{source}"))]
    Syntax {
        /// What is wrong where.
        #[snafu(source(from(regex_syntax::Error, Box::new)))]
        source: Box<regex_syntax::Error>,
    },
    /// It counts too far.
    #[snafu(display("it repeats something more than {MOST} times, which CEL does not take"))]
    Repetition,
    /// It looks for the start or the end of a word.
    #[snafu(display("it asks for the start or the end of a word, accepted are \\b and \\B"))]
    Look,
}

/// `pattern` for all of a text of ASCII characters without line breaks, such as a label's value.
///
/// # Errors
///
/// When RE2 cannot say it.
pub(super) fn of(pattern: &str) -> Result<String, Re2Error> {
    let mut written = String::from("^(?:");
    write(&regex_syntax::parse(pattern).context(SyntaxSnafu)?, MOST, &mut written)?;
    written.push_str(")$");
    Ok(written)
}

/// Writes `hir`, which may be repeated up to `most` times.
fn write(hir: &Hir, most: u32, out: &mut String) -> Result<(), Re2Error> {
    match hir.kind() {
        HirKind::Empty => {}
        HirKind::Literal(literal) => {
            // What is not ASCII is written byte by byte, and matches nothing that is.
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
            // One that no character is in.
            let none = || "^\\x{0}-\\x{10ffff}".to_owned();
            out.push_str(&format!("[{}]", if ascii.is_empty() { none() } else { ascii }));
        }
        HirKind::Look(look) => out.push_str(match look {
            Look::Start | Look::StartLF | Look::StartCRLF => "^",
            Look::End | Look::EndLF | Look::EndCRLF => "$",
            Look::WordAscii | Look::WordUnicode => "\\b",
            Look::WordAsciiNegate | Look::WordUnicodeNegate => "\\B",
            _ => return LookSnafu.fail(),
        }),
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let times = max.unwrap_or(*min).max(1);
            let most = most.checked_div(times).filter(|most| *most > 0).context(RepetitionSnafu)?;
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
    fn what_an_expression_means_is_kept_where_the_syntaxes_differ() {
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
    fn what_has_no_counterpart_is_refused() {
        for (pattern, part) in [
            ("a{1001}", "more than 1000 times"),
            ("(a{30}b){40}", "more than 1000 times"),
            (r"\b{start}a", "start or the end of a word"),
            ("(", "unclosed group"),
        ] {
            let error = of(pattern).unwrap_err().to_string();
            assert!(error.contains(part), "{pattern}: {error}");
        }
    }
}
