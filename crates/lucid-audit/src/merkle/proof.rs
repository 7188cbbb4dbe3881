use std::mem;
use std::ops::Range;

use super::{Hash, Nodes, empty_root, left_of, node_hash, range_root};

/// Creates the proof that leaf `index` is in the tree over the first `size` leaves: the path from its sibling up to a child of
/// the root (RFC 6962, section 2.1.1). Empty if there is no such leaf.
pub(crate) fn inclusion_proof<N: Nodes + ?Sized>(
    nodes: &N,
    index: u64,
    size: u64,
) -> Result<Vec<Hash>, N::Error> {
    let mut proof = Vec::new();
    let mut subtree = 0..size;
    while index < size && subtree.end - subtree.start > 1 {
        proof.push(descend(nodes, &mut subtree, index)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Creates the proof that the tree over the first `old` leaves is a prefix of the tree over the first `size` leaves (RFC 6962,
/// section 2.1.2). Empty if `old` is 0, or not less than `size`.
pub(crate) fn consistency_proof<N: Nodes + ?Sized>(
    nodes: &N,
    old: u64,
    size: u64,
) -> Result<Vec<Hash>, N::Error> {
    let mut proof = Vec::new();
    if old == 0 || old >= size {
        return Ok(proof);
    }
    let mut subtree = 0..size;
    while subtree.end != old {
        proof.push(descend(nodes, &mut subtree, old - 1)?);
    }
    // Otherwise this subtree is the older tree, whose root the verifier knows.
    if subtree.start > 0 {
        proof.push(range_root(nodes, subtree.start, subtree.end)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Narrows `subtree` to the child that contains `leaf`. Returns the root of the other child.
fn descend<N: Nodes + ?Sized>(nodes: &N, subtree: &mut Range<u64>, leaf: u64) -> Result<Hash, N::Error> {
    let middle = subtree.start + left_of(subtree.end - subtree.start);
    if leaf < middle {
        range_root(nodes, middle, mem::replace(&mut subtree.end, middle))
    } else {
        range_root(nodes, mem::replace(&mut subtree.start, middle), middle)
    }
}

/// Returns `true` if the leaf with hash `leaf` has index `index` in the tree with `size` leaves and root `root`
/// (RFC 9162, section 2.1.3.2).
pub(crate) fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> bool {
    index < size && included(leaf, index, size, proof).as_ref() == Some(root)
}

/// Returns the root that an inclusion proof leads to; `None` if it has a wrong length.
fn included(leaf: &Hash, index: u64, size: u64, proof: &[Hash]) -> Option<Hash> {
    if size == 1 {
        return proof.is_empty().then_some(*leaf);
    }
    let (sibling, rest) = proof.split_last()?;
    let left = left_of(size);
    Some(match index.checked_sub(left) {
        None => node_hash(&included(leaf, index, left, rest)?, sibling),
        Some(index) => node_hash(sibling, &included(leaf, index, size - left, rest)?),
    })
}

/// Returns `true` if the tree with `old` leaves and root `old_root` is a prefix of the tree with `size` leaves and root `root`
/// (RFC 9162, section 2.1.4.2).
pub(crate) fn verify_consistency(old: u64, old_root: &Hash, size: u64, root: &Hash, proof: &[Hash]) -> bool {
    if old == 0 {
        return proof.is_empty() && *old_root == empty_root();
    }
    old <= size && extended(old, size, Some(old_root), proof) == Some((*old_root, *root))
}

/// Returns the roots of both trees that a consistency proof leads to; `None` if it has a wrong length. `known` is the root of
/// the older tree while that is a prefix of the subtree.
fn extended(old: u64, size: u64, known: Option<&Hash>, proof: &[Hash]) -> Option<(Hash, Hash)> {
    if old == size {
        return match (known, proof) {
            (Some(root), []) | (None, [root]) => Some((*root, *root)),
            _ => None,
        };
    }
    let (sibling, rest) = proof.split_last()?;
    let left = left_of(size);
    if old <= left {
        let (found_old, found) = extended(old, left, known, rest)?;
        Some((found_old, node_hash(&found, sibling)))
    } else {
        let (found_old, found) = extended(old - left, size - left, None, rest)?;
        Some((node_hash(sibling, &found_old), node_hash(sibling, &found)))
    }
}
