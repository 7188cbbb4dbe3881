use std::fmt;

use snafu::Snafu;

use crate::digest::DigestError;

/// Part of an image reference, for error reporting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// Host of the registry.
    Registry,
    /// Port of the registry, after the colon.
    Port,
    /// Path within the registry.
    Repository,
    /// Tag, after the colon.
    Tag,
    /// Digest, after the `@`.
    Digest,
}

impl Part {
    fn accepted(self) -> &'static str {
        match self {
            Self::Registry => {
                "letters, digits and inner '-' in names joined by '.', or an IPv6 address in brackets, \
                 with an optional :port"
            }
            Self::Port => "decimal digits",
            Self::Repository => {
                "lower-case letters and digits, joined by one '.', one or two '_' or any number of '-', \
                 in components joined by '/'"
            }
            Self::Tag => "a letter, digit or '_', then letters, digits, '_', '.' and '-'",
            Self::Digest => "sha256:HEX and sha512:HEX",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Registry => "registry",
            Self::Port => "port",
            Self::Repository => "repository",
            Self::Tag => "tag",
            Self::Digest => "digest",
        })
    }
}

/// A string is not a valid [`ImageReference`](super::ImageReference).
///
/// Messages quote the string, name the invalid part and its byte offset, and list the accepted values.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("image reference {reference} {}", fault.describe(*part, *offset)), visibility(pub(super)))]
pub struct ReferenceError {
    /// Quoted and truncated.
    reference: String,
    part: Part,
    offset: usize,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Empty,
    /// A bare image ID.
    Identifier,
    /// The part, or one component of it, is required or introduced by its delimiter, but empty.
    Missing,
    Character(char),
    /// The bracket of an IPv6 address is not closed.
    Unclosed,
    TooLong {
        length: usize,
        limit: usize,
    },
    Digest(DigestError),
}

impl ReferenceError {
    /// Returns the offset of the fault, in bytes from the start of the reference.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the invalid part.
    #[must_use]
    pub fn part(&self) -> Part {
        self.part
    }
}

impl Fault {
    fn describe(&self, part: Part, offset: usize) -> String {
        const GRAMMAR: &str = "[registry[:port]/]repository[:tag][@digest]";
        let accepted = part.accepted();
        match self {
            Self::Empty => format!("is empty; accepted is {GRAMMAR}"),
            Self::Identifier => format!(
                "is a bare identifier of 64 hexadecimal digits, which names no repository; accepted is {GRAMMAR}"
            ),
            Self::Missing => format!("has an empty {part} at byte {offset}; accepted are {accepted}"),
            Self::Character(found) => {
                format!("has {found:?} in the {part} at byte {offset}; accepted are {accepted}")
            }
            Self::Unclosed => "has a '[' at byte 0 that is not closed; accepted is [IPV6]".to_owned(),
            Self::TooLong { length, limit } => {
                format!("has a {part} of {length} characters at byte {offset}; accepted are at most {limit}")
            }
            Self::Digest(error) => format!("is wrong from byte {offset}: {error}"),
        }
    }
}
