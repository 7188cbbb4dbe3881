use std::fmt;

use aws_lc_rs::digest::{Context, SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// SHA-256 hash. Formatted and serialized as 64 lowercase hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hash(pub(crate) [u8; 32]);

impl Hash {
    /// All zeros: the `prev` of the first record.
    pub(crate) const ZERO: Self = Self([0; 32]);

    pub(crate) fn to_base64(self) -> String {
        STANDARD.encode(self.0)
    }

    /// Decodes base64. Returns `None` unless it encodes exactly 32 bytes.
    pub(crate) fn from_base64(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn to_hex(self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        hex
    }

    pub(crate) fn from_hex(hex: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let hex: &[u8; 64] = hex.try_into().ok()?;
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(hash))
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::from_digest(digest(&SHA256, bytes).as_ref())
    }

    fn from_digest(digest: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest);
        Self(hash)
    }
}

/// Returns the hash of a leaf: SHA-256 of a zero byte and the entry (RFC 6962, section 2.1).
pub(crate) fn leaf_hash(entry: &[u8]) -> Hash {
    let mut context = Context::new(&SHA256);
    context.update(&[0]);
    context.update(entry);
    Hash::from_digest(context.finish().as_ref())
}

/// Returns the hash of a node: SHA-256 of a one byte and the hashes of its children (RFC 6962, section 2.1).
pub(crate) fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(&left.0);
    bytes[33..].copy_from_slice(&right.0);
    Hash::of(&bytes)
}

/// Returns the root of an empty tree: SHA-256 of the empty string (RFC 6962, section 2.1).
pub(crate) fn empty_root() -> Hash {
    Hash::of(&[])
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = Self::from_hex(text.as_bytes());
        hash.ok_or_else(|| {
            de::Error::invalid_value(de::Unexpected::Str(&text), &"64 lowercase hexadecimal digits")
        })
    }
}
