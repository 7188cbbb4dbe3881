//! Merkle trees as of RFC 6962, section 2.1, and RFC 9162, section 2.1: roots and proofs.
//!
//! A tree of `size` leaves is made of *complete* subtrees, each of a power of two leaves: the node at `(level, index)` is
//! the root over the leaves `index << level` to `(index + 1) << level`, and never changes once all of them are there.
//! Whoever can look these up ([`Nodes`]) can have every root and every proof of the tree.
//!
//! ```
//! use lucid_audit::merkle::{self, Frontier, leaf_hash};
//!
//! let leaves: Vec<_> = [&b"a"[..], b"b", b"c"].into_iter().map(leaf_hash).collect();
//! let mut tree = Frontier::new();
//! for leaf in &leaves {
//!     tree.append(*leaf);
//! }
//! let proof = merkle::inclusion_proof(&leaves[..], 1, 3)?;
//! merkle::verify_inclusion(&leaves[1], 1, 3, &proof, &tree.root())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod hash;
mod proof;

use std::convert::Infallible;

pub use hash::{Hash, ParseHashError, empty_root, leaf_hash, node_hash};
pub use proof::{ProofError, consistency_proof, inclusion_proof, verify_consistency, verify_inclusion};

/// Where the nodes of a tree are looked up.
pub trait Nodes {
    /// Why one cannot be had.
    type Error;

    /// The root of the complete subtree over the leaves `index << level` to `(index + 1) << level`. It is only asked for
    /// nodes whose leaves are all in the tree.
    ///
    /// # Errors
    ///
    /// When it cannot be had.
    fn node(&self, level: u8, index: u64) -> Result<Hash, Self::Error>;
}

/// The hashes of all leaves. What is not there, and is asked for by nobody, is [`Hash::ZERO`].
impl Nodes for [Hash] {
    type Error = Infallible;

    fn node(&self, level: u8, index: u64) -> Result<Hash, Infallible> {
        if level == 0 {
            let leaf = usize::try_from(index).ok().and_then(|index| self.get(index));
            return Ok(leaf.copied().unwrap_or(Hash::ZERO));
        }
        Ok(node_hash(&self.node(level - 1, index * 2)?, &self.node(level - 1, index * 2 + 1)?))
    }
}

/// The root of the tree over the first `size` leaves.
///
/// # Errors
///
/// When a node cannot be had.
pub fn root<N: Nodes + ?Sized>(nodes: &N, size: u64) -> Result<Hash, N::Error> {
    if size == 0 { Ok(empty_root()) } else { range_root(nodes, 0, size) }
}

/// The root over the leaves from `begin` up to `end`, more than none, where `begin` is a multiple of the largest power of
/// two below their number: as a tree is divided.
fn range_root<N: Nodes + ?Sized>(nodes: &N, begin: u64, end: u64) -> Result<Hash, N::Error> {
    let count = end - begin;
    if count.is_power_of_two() {
        // At most 63, so it fits.
        let level = count.trailing_zeros() as u8;
        return nodes.node(level, begin >> level);
    }
    let middle = begin + left_of(count);
    Ok(node_hash(&range_root(nodes, begin, middle)?, &range_root(nodes, middle, end)?))
}

/// How many of `count` leaves, more than one, are left of the root: the largest power of two below.
const fn left_of(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}

/// The right edge of a growing tree: what is needed to append to it and to have its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// Roots of the complete subtrees that the tree consists of, the largest first: one for each bit of `size`.
    peaks: Vec<Hash>,
}

impl Frontier {
    /// A tree without leaves.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The tree over the first `size` leaves.
    ///
    /// # Errors
    ///
    /// When a node cannot be had.
    pub fn of<N: Nodes + ?Sized>(nodes: &N, size: u64) -> Result<Self, N::Error> {
        let mut peaks = Vec::new();
        for level in (0..64_u8).rev().filter(|level| size >> level & 1 == 1) {
            // What is left of the peak consists of larger subtrees.
            peaks.push(nodes.node(level, (size >> level) - 1)?);
        }
        Ok(Self { size, peaks })
    }

    /// Appends a leaf.
    pub fn append(&mut self, leaf: Hash) {
        let mut hash = leaf;
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                hash = node_hash(&left, &hash);
            }
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    /// How many leaves it has.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return empty_root() };
        peaks.fold(*last, |right, left| node_hash(left, &right))
    }
}
