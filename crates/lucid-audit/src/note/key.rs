use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use snafu::{OptionExt, ensure};
use zeroize::Zeroizing;

use crate::merkle::Hash;

use super::{NoteError, malformed};

/// Signature algorithm of a key, encoded as the first byte of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Algorithm {
    /// Ed25519 over the text of the note.
    Ed25519 = 1,
    /// Ed25519 over a checkpoint and the time at which a witness saw it (C2SP tlog-cosignature).
    CosignatureV1 = 4,
}

/// Public key for verifying notes, with its name (C2SP signed-note).
///
/// Formatted as a *vkey*, `NAME+ID+KEY`.
///
/// ```
/// use lucid_audit::note::VerifierKey;
///
/// let key: VerifierKey = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k".parse()?;
/// assert_eq!(key.name(), "example.com/foo");
/// # Ok::<(), lucid_audit::note::NoteError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VerifierKey {
    name: String,
    id: u32,
    algorithm: Algorithm,
    key: [u8; 32],
}

impl VerifierKey {
    fn new(name: &str, algorithm: Algorithm, key: [u8; 32]) -> Result<Self, NoteError> {
        ensure!(
            is_name(name),
            malformed(format!(
                "the key's name {name:?} is empty or has a space, a plus or a control character"
            ))
        );
        let id = key_id(name, algorithm, &key);
        Ok(Self { name: name.to_owned(), id, algorithm, key })
    }

    /// Returns the name. The name of a log's key is the origin of the log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key ID: the first bytes of a hash over name, algorithm and key. It distinguishes keys of the same name.
    pub(crate) const fn id(&self) -> u32 {
        self.id
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    fn check_id(&self, found: u32) -> Result<(), NoteError> {
        let Self { name, id, .. } = self;
        ensure!(
            found == *id,
            malformed(format!(
                "the key of {name}: expected the id {id:08x} by name and key, found {found:08x}: one of them was changed"
            ))
        );
        Ok(())
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.key).verify(message, signature).is_ok()
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:08x}+{}", self.name, self.id, encode(self.algorithm, &self.key))
    }
}

impl fmt::Debug for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifierKey({self})")
    }
}

impl FromStr for VerifierKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let shape = "expected a verifier key as NAME+ID+KEY: a name, 8 hexadecimal digits, and base64";
        let (name, id, algorithm, key) = parse(text, shape)?;
        let algorithm = match algorithm {
            1 => Algorithm::Ed25519,
            4 => Algorithm::CosignatureV1,
            _ => {
                return malformed(format!(
                    "the key of {name}: expected the algorithm 0x01 (Ed25519) or 0x04 (cosignature/v1), found {algorithm:#04x}"
                ))
                .fail();
            }
        };
        let verifier = Self::new(name, algorithm, *key)?;
        verifier.check_id(id)?;
        Ok(verifier)
    }
}

impl Serialize for VerifierKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VerifierKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Ed25519 key pair for signing notes.
///
/// The text format `PRIVATE+KEY+NAME+ID+KEY` is that of Go's `golang.org/x/mod/sumdb/note`. Secrets are zeroed in memory
/// after use.
pub struct SigningKey {
    seed: Zeroizing<[u8; 32]>,
    pair: Ed25519KeyPair,
    verifier: VerifierKey,
}

const PRIVATE: &str = "PRIVATE+KEY+";
const MAKE: &str = "failed to make an Ed25519 key pair";

impl SigningKey {
    /// Generates a key.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is invalid, or the system provides no randomness.
    pub fn generate(name: &str) -> Result<Self, NoteError> {
        let mut seed = Zeroizing::new([0; 32]);
        SystemRandom::new().fill(&mut *seed).ok().context(malformed(MAKE))?;
        Self::from_seed(name, seed)
    }

    fn from_seed(name: &str, seed: Zeroizing<[u8; 32]>) -> Result<Self, NoteError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&*seed).ok().context(malformed(MAKE))?;
        let key = pair.public_key().as_ref().try_into().ok().context(malformed(MAKE))?;
        Ok(Self { verifier: VerifierKey::new(name, Algorithm::Ed25519, key)?, pair, seed })
    }

    /// Returns the same key with another name, and therefore another ID.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is invalid.
    pub fn named(&self, name: &str) -> Result<Self, NoteError> {
        Self::from_seed(name, self.seed.clone())
    }

    /// Formats the key as text, which is secret.
    #[must_use]
    pub fn to_secret(&self) -> Zeroizing<String> {
        let VerifierKey { name, id, .. } = &self.verifier;
        let key = Zeroizing::new(encode(Algorithm::Ed25519, &self.seed));
        Zeroizing::new(format!("{PRIVATE}{name}+{id:08x}+{}", *key))
    }

    /// Returns the public key.
    #[must_use]
    pub const fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// Parses the text of [`SigningKey::to_secret`], ignoring surrounding whitespace.
impl FromStr for SigningKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let shape =
            "expected a signing key as PRIVATE+KEY+NAME+ID+KEY: a name, 8 hexadecimal digits, and base64";
        let text = text.trim().strip_prefix(PRIVATE).context(malformed(shape))?;
        let (name, id, algorithm, seed) = parse(text, shape)?;
        ensure!(
            algorithm == 1,
            malformed(format!(
                "the key of {name}: expected the algorithm 0x01 (Ed25519), found {algorithm:#04x}"
            ))
        );
        let signer = Self::from_seed(name, seed)?;
        signer.verifier.check_id(id)?;
        Ok(signer)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.verifier)
    }
}

/// Returns `true` if `name` is a valid name of a key (C2SP signed-note).
#[must_use]
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|char: char| char.is_whitespace() || char.is_control() || char == '+')
}

/// Name, ID, algorithm and key.
type Parts<'a> = (&'a str, u32, u8, Zeroizing<[u8; 32]>);

fn parse<'a>(text: &'a str, shape: &'static str) -> Result<Parts<'a>, NoteError> {
    let parts = || {
        // The base64 alphabet includes `+`.
        let mut parts = text.splitn(3, '+');
        let (name, id, key) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = id.len() == 8 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let id = is_hex.then(|| u32::from_str_radix(id, 16).ok())??;
        Some((name, id, Zeroizing::new(STANDARD.decode(key).ok()?)))
    };
    let (name, id, key) = parts().context(malformed(shape))?;
    let (&algorithm, key) = key.split_first().context(malformed(shape))?;
    let wrong = || malformed(format!("the key of {name}: expected 32 bytes, found {}", key.len()));
    let key = key.try_into().ok().with_context(wrong)?;
    Ok((name, id, algorithm, Zeroizing::new(key)))
}

fn key_id(name: &str, algorithm: Algorithm, key: &[u8; 32]) -> u32 {
    let text = [name.as_bytes(), b"\n", &[algorithm as u8], key].concat();
    let [a, b, c, d, ..] = Hash::of(&text).0;
    u32::from_be_bytes([a, b, c, d])
}

fn encode(algorithm: Algorithm, key: &[u8; 32]) -> String {
    let mut bytes = Zeroizing::new([algorithm as u8; 33]);
    bytes[1..].copy_from_slice(key);
    STANDARD.encode(*bytes)
}
