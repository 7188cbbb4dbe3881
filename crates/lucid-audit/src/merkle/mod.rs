//! Merkle trees (RFC 6962, section 2.1, and RFC 9162, section 2.1): roots and proofs.
//!
//! A tree of `size` leaves consists of *complete* subtrees, each with a power of two leaves. The node at `(level, index)` is
//! the root over the leaves from `index << level` up to, but not including, `(index + 1) << level`. It is immutable once all
//! these leaves exist. All roots and proofs derive from these [`Nodes`].

mod hash;
mod proof;
#[cfg(test)]
mod tests;

use std::convert::Infallible;

pub(crate) use hash::Hash;
pub(crate) use hash::{empty_root, leaf_hash, node_hash};
pub(crate) use proof::{consistency_proof, inclusion_proof, verify_consistency, verify_inclusion};

pub(crate) trait Nodes {
    type Error;

    /// Returns the root of the complete subtree over the leaves from `index << level` up to, but not including,
    /// `(index + 1) << level`. Callers request only nodes whose leaves are all in the tree.
    fn node(&self, level: u8, index: u64) -> Result<Hash, Self::Error>;
}

/// Hashes of all leaves. Leaves out of bounds, which callers never request, are [`Hash::ZERO`].
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

pub(crate) fn root<N: Nodes + ?Sized>(nodes: &N, size: u64) -> Result<Hash, N::Error> {
    if size == 0 { Ok(empty_root()) } else { range_root(nodes, 0, size) }
}

/// Computes the root over the leaves in `begin..end`. The range is not empty, and `begin` is a multiple of the largest power
/// of two below its length.
fn range_root<N: Nodes + ?Sized>(nodes: &N, begin: u64, end: u64) -> Result<Hash, N::Error> {
    let count = end - begin;
    if count.is_power_of_two() {
        // At most 63.
        let level = count.trailing_zeros() as u8;
        return nodes.node(level, begin >> level);
    }
    let middle = begin + left_of(count);
    Ok(node_hash(&range_root(nodes, begin, middle)?, &range_root(nodes, middle, end)?))
}

/// Returns the largest power of two below `count`: the size of the left subtree. `count` is at least 2.
const fn left_of(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}
