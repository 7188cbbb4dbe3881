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
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum ReferenceError {
    /// The string is empty.
    #[snafu(display("image reference is empty; accepted is [registry[:port]/]repository[:tag][@digest]"))]
    Empty,
    /// The string is a bare 64-digit hexadecimal image ID, which names no repository.
    #[snafu(display(
        "image reference {reference} is a bare identifier of 64 hexadecimal digits, which names no repository; \
         accepted is [registry[:port]/]repository[:tag][@digest]"
    ))]
    Identifier {
        /// The string, quoted and truncated.
        reference: String,
    },
    /// A part is required, or introduced by its delimiter, but empty.
    #[snafu(display(
        "image reference {reference} has an empty {part} at byte {offset}; accepted are {}",
        part.accepted()
    ))]
    Missing {
        /// The string, quoted and truncated.
        reference: String,
        /// The missing part. For a registry or repository, it may be one component of it.
        part: Part,
        /// Expected offset of the part in bytes.
        offset: usize,
    },
    /// A character is not accepted at its position.
    #[snafu(display(
        "image reference {reference} has {found:?} in the {part} at byte {offset}; accepted are {}",
        part.accepted()
    ))]
    Character {
        /// The string, quoted and truncated.
        reference: String,
        /// Part that contains the character.
        part: Part,
        /// First invalid character.
        found: char,
        /// Offset of the character in bytes.
        offset: usize,
    },
    /// The bracket of an IPv6 address is not closed.
    #[snafu(display(
        "image reference {reference} has a '[' at byte 0 that is not closed; accepted is [IPV6]"
    ))]
    Unclosed {
        /// The string, quoted and truncated.
        reference: String,
    },
    /// The normalized repository or the tag is too long.
    #[snafu(display(
        "image reference {reference} has a {part} of {length} characters at byte {offset}; \
         accepted are at most {limit}"
    ))]
    TooLong {
        /// The string, quoted and truncated.
        reference: String,
        /// Part that is too long.
        part: Part,
        /// Length in characters.
        length: usize,
        /// Maximum length in characters.
        limit: usize,
        /// Offset of the part in bytes.
        offset: usize,
    },
    /// The digest is invalid.
    #[snafu(display("image reference {reference} is wrong from byte {offset}: {problem}"))]
    Digest {
        /// The string, quoted and truncated.
        reference: String,
        /// Offset of the digest in bytes.
        offset: usize,
        /// Parse error of the digest.
        problem: DigestError,
    },
}

impl ReferenceError {
    /// Returns the offset of the fault, in bytes from the start of the reference.
    #[must_use]
    pub fn offset(&self) -> usize {
        match self {
            Self::Empty | Self::Identifier { .. } | Self::Unclosed { .. } => 0,
            Self::Missing { offset, .. } | Self::Character { offset, .. } | Self::TooLong { offset, .. } => {
                *offset
            }
            Self::Digest { offset, problem: DigestError::NotHex { offset: inner, .. }, .. } => offset + inner,
            Self::Digest { offset, .. } => *offset,
        }
    }

    /// Returns the invalid part.
    #[must_use]
    pub fn part(&self) -> Part {
        match self {
            Self::Empty | Self::Identifier { .. } => Part::Repository,
            Self::Unclosed { .. } => Part::Registry,
            Self::Missing { part, .. } | Self::Character { part, .. } | Self::TooLong { part, .. } => *part,
            Self::Digest { .. } => Part::Digest,
        }
    }
}
