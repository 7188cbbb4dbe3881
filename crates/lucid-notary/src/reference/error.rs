use std::fmt;

use snafu::Snafu;

use crate::digest::DigestError;

/// A part of an image reference, to say where something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The registry's host.
    Registry,
    /// The registry's port, after the colon.
    Port,
    /// The path within the registry.
    Repository,
    /// The tag, after the colon.
    Tag,
    /// The digest, after the `@`.
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

/// Why a text is no [`ImageReference`](super::ImageReference).
///
/// Each message quotes the text, says which part is wrong at which byte, and what is accepted there.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum ReferenceError {
    /// There is nothing.
    #[snafu(display("image reference is empty; accepted is [registry[:port]/]repository[:tag][@digest]"))]
    Empty,
    /// 64 hexadecimal digits: an image's local identifier, which names no repository.
    #[snafu(display(
        "image reference {reference} is a bare identifier of 64 hexadecimal digits, which names no repository; \
         accepted is [registry[:port]/]repository[:tag][@digest]"
    ))]
    Identifier {
        /// The text, quoted and cut to a readable length.
        reference: String,
    },
    /// A part is announced by its delimiter, or required, and empty.
    #[snafu(display(
        "image reference {reference} has an empty {part} at byte {offset}; accepted are {}",
        part.accepted()
    ))]
    Missing {
        /// The text, quoted and cut to a readable length.
        reference: String,
        /// What is missing; for a registry or repository it may be one component of it.
        part: Part,
        /// Where it should stand, in bytes.
        offset: usize,
    },
    /// A character does not belong where it stands.
    #[snafu(display(
        "image reference {reference} has {found:?} in the {part} at byte {offset}; accepted are {}",
        part.accepted()
    ))]
    Character {
        /// The text, quoted and cut to a readable length.
        reference: String,
        /// The part that does not accept the character.
        part: Part,
        /// The first character that is not accepted.
        found: char,
        /// Where it stands, in bytes.
        offset: usize,
    },
    /// The bracket that opens an IPv6 address is not closed.
    #[snafu(display(
        "image reference {reference} has a '[' at byte 0 that is not closed; accepted is [IPV6]"
    ))]
    Unclosed {
        /// The text, quoted and cut to a readable length.
        reference: String,
    },
    /// A repository, normalised, or a tag is too long.
    #[snafu(display(
        "image reference {reference} has a {part} of {length} characters at byte {offset}; \
         accepted are at most {limit}"
    ))]
    TooLong {
        /// The text, quoted and cut to a readable length.
        reference: String,
        /// The part that is too long.
        part: Part,
        /// Its length in characters.
        length: usize,
        /// The greatest length that is accepted.
        limit: usize,
        /// Where it starts, in bytes.
        offset: usize,
    },
    /// The digest is none.
    #[snafu(display("image reference {reference} is wrong from byte {offset}: {problem}"))]
    Digest {
        /// The text, quoted and cut to a readable length.
        reference: String,
        /// Where the digest starts, in bytes.
        offset: usize,
        /// What is wrong with the digest.
        problem: DigestError,
    },
}

impl ReferenceError {
    /// Where the fault is, in bytes from the start of the reference.
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

    /// The part that is wrong.
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
