use std::fmt;

use snafu::Snafu;

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
    pub(super) fn expected(self) -> &'static str {
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
            Self::Digest => "sha256:HEX or sha512:HEX",
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
/// Messages quote the string, name the invalid part and its byte offset, and list the expected values.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("image reference {reference} {fault}"))]
pub struct ReferenceError {
    /// Quoted and truncated.
    pub(super) reference: String,
    pub(super) part: Part,
    pub(super) offset: usize,
    pub(super) fault: String,
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
