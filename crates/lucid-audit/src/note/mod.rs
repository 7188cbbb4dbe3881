//! Signed notes (C2SP signed-note): a text followed by signature lines.
//!
//! ```
//! use lucid_audit::note::{Note, VerifierKey};
//!
//! let note: Note = "This is an example message.\n\n\u{2014} example.com/foo \
//!     Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n".parse()?;
//! let key: VerifierKey = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k".parse()?;
//! note.verify(&key)?;
//! # Ok::<(), lucid_audit::note::NoteError>(())
//! ```

mod key;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use snafu::{OptionExt, Snafu, ensure};

use key::Algorithm;
pub use key::{SigningKey, VerifierKey, is_name};

/// Maximum number of signatures in a note: as many as any implementation must accept.
const MOST_SIGNATURES: usize = 16;
const DASH: &str = "\u{2014} ";

/// A text with signatures. Parsing does not verify any of them: see [`Self::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<Signature>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) id: u32,
    /// Signature without the key ID. A cosignature begins with its timestamp.
    bytes: Vec<u8>,
}

/// Error of a note, a key or a checkpoint. Messages do not quote keys, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("{message}"), visibility(pub(crate)))]
pub struct NoteError {
    pub(crate) kind: NoteErrorKind,
    message: Cow<'static, str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoteErrorKind {
    /// The text is malformed, or a checkpoint of another log.
    Malformed,
    Unsigned,
    Wrong,
}

/// Returns the context of an error of the text.
pub(crate) fn malformed(
    message: impl Into<Cow<'static, str>>,
) -> NoteSnafu<NoteErrorKind, Cow<'static, str>> {
    NoteSnafu { kind: NoteErrorKind::Malformed, message: message.into() }
}

const SHAPE: &str = "a signed note is a text, an empty line, and signatures, each in a line";

impl Note {
    /// Creates a note without signatures.
    ///
    /// # Errors
    ///
    /// Returns an error if the text does not end with a newline, or contains other control characters.
    pub fn new(text: impl Into<String>) -> Result<Self, NoteError> {
        let text = text.into();
        ensure!(
            text.ends_with('\n') && !text.bytes().any(|byte| byte < b' ' && byte != b'\n'),
            malformed("a note's text ends with a newline and has no other control characters")
        );
        Ok(Self { text, signatures: Vec::new() })
    }

    /// Returns the text, including its final newline.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// Signs the text with `key`.
    pub fn sign(&mut self, key: &SigningKey) {
        let bytes = key.sign(self.text.as_bytes());
        self.add(Signature { name: key.verifier().name().to_owned(), id: key.verifier().id(), bytes });
    }

    /// Adds a signature, replacing any by the same key.
    pub(crate) fn add(&mut self, signature: Signature) {
        self.signatures.retain(|it| (&it.name, it.id) != (&signature.name, signature.id));
        self.signatures.push(signature);
    }

    /// Verifies that `key` has signed the text. Returns the time at which a witness saw the checkpoint, in seconds since the Unix
    /// epoch, or `None` for signatures without a timestamp.
    ///
    /// # Errors
    ///
    /// Returns an error if the signature is missing or does not match the text.
    pub fn verify(&self, key: &VerifierKey) -> Result<Option<u64>, NoteError> {
        let mut by_key = self.signatures.iter().filter(|it| it.name == key.name() && it.id == key.id());
        let signature = by_key.next().with_context(|| NoteSnafu {
            kind: NoteErrorKind::Unsigned,
            message: format!("the note is not signed by {key}, it is signed by {}", self.signers()),
        })?;
        let verified = match key.algorithm() {
            Algorithm::Ed25519 => key.verifies(self.text.as_bytes(), &signature.bytes).then_some(None),
            Algorithm::CosignatureV1 => self.verify_cosignature(key, &signature.bytes).map(Some),
        };
        verified.with_context(|| NoteSnafu {
            kind: NoteErrorKind::Wrong,
            message: format!("the signature by {key} is not one of this text: text or signature was changed"),
        })
    }

    fn verify_cosignature(&self, key: &VerifierKey, bytes: &[u8]) -> Option<u64> {
        let (time, signature) = bytes.split_first_chunk()?;
        let time = u64::from_be_bytes(*time);
        let message = format!("cosignature/v1\ntime {time}\n{}", self.text);
        // Zero means no timestamp.
        let sane = (1..=i64::MAX as u64).contains(&time);
        (sane && key.verifies(message.as_bytes(), signature)).then_some(time)
    }

    pub(crate) fn signers(&self) -> String {
        let names = self.signatures.iter().map(|it| format!("{}+{:08x}", it.name, it.id));
        let names: Vec<_> = names.collect();
        if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| write!(f, "{signature}"))
    }
}

impl FromStr for Note {
    type Err = NoteError;

    fn from_str(note: &str) -> Result<Self, NoteError> {
        let at = note.rfind("\n\n").context(malformed(SHAPE))?;
        let (text, signatures) = (&note[..=at], &note[at + 2..]);
        let mut read = Self::new(text)?;
        let lines: Vec<_> = signatures.split_inclusive('\n').collect();
        ensure!(!lines.is_empty(), malformed(SHAPE));
        let count = lines.len();
        ensure!(
            count <= MOST_SIGNATURES,
            malformed(format!("expected a note with up to {MOST_SIGNATURES} signatures, found {count}"))
        );
        for (line, text) in (1..).zip(lines) {
            read.signatures.push(Signature::parse(text, line)?);
        }
        Ok(read)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.id.to_be_bytes()[..], &self.bytes].concat();
        writeln!(f, "{DASH}{} {}", self.name, STANDARD.encode(bytes))
    }
}

impl Signature {
    /// Parses signature line `number` of a note.
    fn parse(line: &str, number: usize) -> Result<Self, NoteError> {
        let parse = || {
            let (name, bytes) = line.strip_prefix(DASH)?.strip_suffix('\n')?.split_once(' ')?;
            let bytes = STANDARD.decode(bytes).ok()?;
            let (id, bytes) = bytes.split_first_chunk()?;
            let signature =
                Self { name: name.to_owned(), id: u32::from_be_bytes(*id), bytes: bytes.to_vec() };
            (is_name(name) && !bytes.is_empty()).then_some(signature)
        };
        parse().with_context(|| {
            malformed(format!(
                "invalid signature in line {number}: expected an em dash, a name, and base64 of more than 4 bytes"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VKEY: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
    const NOTE: &str = "This is an example message.\n\n\u{2014} example.com/foo \
        Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";

    #[test]
    fn the_example_of_the_specification_verifies() {
        let key: VerifierKey = VKEY.parse().unwrap();
        let note: Note = NOTE.parse().unwrap();
        assert_eq!(key.to_string(), VKEY);
        assert_eq!(note.to_string(), NOTE);
        assert_eq!(note.verify(&key), Ok(None));
    }

    #[test]
    fn a_changed_text_or_another_key_is_noticed() {
        let key: VerifierKey = VKEY.parse().unwrap();
        let changed: Note = NOTE.replace("example message", "Example message").parse().unwrap();
        assert_eq!(changed.verify(&key).unwrap_err().kind, NoteErrorKind::Wrong);
        let other = SigningKey::generate("example.com/foo").unwrap();
        let error = NOTE.parse::<Note>().unwrap().verify(other.verifier()).unwrap_err();
        assert!(error.to_string().ends_with("it is signed by example.com/foo+530d903a"), "{error}");
    }

    #[test]
    fn keys_round_trip() {
        let key = SigningKey::generate("lucid.computing/prod/lucid-operator-0").unwrap();
        let read = format!(" {}\n", *key.to_secret()).parse::<SigningKey>().unwrap();
        assert_eq!(read.verifier(), key.verifier());
        assert!(!format!("{key:?}").contains(&key.to_secret()["PRIVATE+KEY+".len()..]));
        let mut note = Note::new("text\n\nwith an empty line\n").unwrap();
        note.sign(&read);
        assert!(note.to_string().parse::<Note>().unwrap().verify(key.verifier()).is_ok());
        let other = key.named("lucid.computing/prod/lucid-operator-1").unwrap();
        assert_ne!(other.verifier().id(), key.verifier().id());
    }

    #[test]
    fn malformed_keys_name_the_problem() {
        for (text, wrong) in [
            ("", "NAME+ID+KEY"),
            ("example.com/foo+530d903a", "NAME+ID+KEY"),
            ("example.com/foo+530D903A+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k", "NAME+ID+KEY"),
            ("example.com/foo+530d903a+", "NAME+ID+KEY"),
            (
                "example.com/fob+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
                "one of them was changed",
            ),
            ("example.com/foo+530d903a+AukyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k", "found 0x02"),
            (
                "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3Q==",
                "expected 32 bytes, found 30",
            ),
            (" +530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k", "has a space"),
        ] {
            let error = text.parse::<VerifierKey>().unwrap_err().to_string();
            assert!(error.contains(wrong), "{text}: {error}");
        }
        assert!(VKEY.parse::<SigningKey>().unwrap_err().to_string().contains("PRIVATE+KEY+NAME+ID+KEY"));
        assert!(SigningKey::generate("a b").is_err());
    }

    #[test]
    fn malformed_notes_are_rejected() {
        let line = NOTE.split_once("\n\n").unwrap().1;
        for text in [
            String::new(),
            "text\n".to_owned(),
            "text\n\n".to_owned(),
            format!("text\n{line}"),
            format!("te\rxt\n\n{line}"),
            format!("text\n\n{}", line.trim_end()),
            format!("text\n\n-{line}"),
            "text\n\n\u{2014} example.com/foo AAAAAA==\n".to_owned(),
            format!("text\n\n{}", line.repeat(17)),
        ] {
            assert!(text.parse::<Note>().is_err(), "{text:?}");
        }
        assert!(format!("text\n\n{}", line.repeat(16)).parse::<Note>().is_ok());
    }
}
