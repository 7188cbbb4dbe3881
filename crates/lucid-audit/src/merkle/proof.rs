use snafu::{Snafu, ensure};

use super::{Hash, Nodes, empty_root, left_of, node_hash, range_root};

/// A proof does not prove what it is to prove.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum ProofError {
    /// The leaf is not in a tree of this size.
    #[snafu(display("leaf {index} is not in a tree of {size} leaves"))]
    Index {
        /// The leaf that was asked for.
        index: u64,
        /// The size of the tree.
        size: u64,
    },
    /// The older tree is larger.
    #[snafu(display("a tree of {old} leaves is no beginning of one of {size}"))]
    Sizes {
        /// The size of the older tree.
        old: u64,
        /// The size of the newer tree.
        size: u64,
    },
    /// It has too many or too few hashes.
    #[snafu(display("the proof has {found} hashes, more or fewer than it needs"))]
    Length {
        /// How many it has.
        found: usize,
    },
    /// It leads to another root.
    #[snafu(display("the proof leads to the root {}, not {}", found.to_base64(), expected.to_base64()))]
    Root {
        /// Where it leads.
        found: Hash,
        /// Where it was to lead.
        expected: Hash,
    },
}

/// The proof that leaf `index` is in the tree over the first `size` leaves: from its sibling up to a child of the root (RFC
/// 6962, section 2.1.1). Empty when there is no such leaf.
///
/// # Errors
///
/// When a node cannot be had.
pub fn inclusion_proof<N: Nodes + ?Sized>(nodes: &N, index: u64, size: u64) -> Result<Vec<Hash>, N::Error> {
    let (mut begin, mut end) = (0, size);
    let mut proof = Vec::new();
    if index >= size {
        return Ok(proof);
    }
    while end - begin > 1 {
        let middle = begin + left_of(end - begin);
        if index < middle {
            proof.push(range_root(nodes, middle, end)?);
            end = middle;
        } else {
            proof.push(range_root(nodes, begin, middle)?);
            begin = middle;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// Whether `proof` proves that the leaf with hash `leaf` is number `index` of the tree of `size` leaves with this root (RFC
/// 9162, section 2.1.3.2).
///
/// # Errors
///
/// When it does not.
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
    root: &Hash,
) -> Result<(), ProofError> {
    ensure!(index < size, IndexSnafu { index, size });
    let length = LengthSnafu { found: proof.len() };
    let (mut node, mut last) = (index, size - 1);
    let mut found = *leaf;
    for hash in proof {
        ensure!(last > 0, length);
        if node & 1 == 1 || node == last {
            found = node_hash(hash, &found);
            // A last node without a sibling is its own parent.
            let steps = if node & 1 == 1 { 0 } else { node.trailing_zeros().min(u64::BITS - 1) };
            node >>= steps;
            last >>= steps;
        } else {
            found = node_hash(&found, hash);
        }
        node >>= 1;
        last >>= 1;
    }
    ensure!(last == 0, length);
    ensure!(found == *root, RootSnafu { found, expected: *root });
    Ok(())
}

/// The proof that the tree over the first `old` leaves is the beginning of the one over the first `size` (RFC 6962, section
/// 2.1.2). Empty when there is nothing to prove: for an empty tree, the same tree, and sizes the wrong way round.
///
/// # Errors
///
/// When a node cannot be had.
pub fn consistency_proof<N: Nodes + ?Sized>(nodes: &N, old: u64, size: u64) -> Result<Vec<Hash>, N::Error> {
    let (mut begin, mut end) = (0, size);
    let mut proof = Vec::new();
    if old == 0 || old >= size {
        return Ok(proof);
    }
    while end != old {
        let middle = begin + left_of(end - begin);
        if old <= middle {
            proof.push(range_root(nodes, middle, end)?);
            end = middle;
        } else {
            proof.push(range_root(nodes, begin, middle)?);
            begin = middle;
        }
    }
    // Who checks the proof has the root of the older tree, which is not one of its subtrees otherwise.
    if begin > 0 {
        proof.push(range_root(nodes, begin, end)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Whether `proof` proves that the tree of `old` leaves with root `old_root` is the beginning of the one of `size` leaves with
/// this root (RFC 9162, section 2.1.4.2).
///
/// # Errors
///
/// When it does not.
pub fn verify_consistency(
    old: u64,
    old_root: &Hash,
    size: u64,
    root: &Hash,
    proof: &[Hash],
) -> Result<(), ProofError> {
    ensure!(old <= size, SizesSnafu { old, size });
    let length = LengthSnafu { found: proof.len() };
    if old == 0 || old == size {
        ensure!(proof.is_empty(), length);
        let expected = if old == 0 { &empty_root() } else { root };
        ensure!(old_root == expected, RootSnafu { found: *old_root, expected: *expected });
        return Ok(());
    }
    let mut hashes = proof.iter();
    let first = if old.is_power_of_two() { Some(old_root) } else { hashes.next() };
    let Some(first) = first else { return length.fail() };
    let (mut node, mut last) = (old - 1, size - 1);
    let skipped = node.trailing_ones();
    node >>= skipped;
    last >>= skipped;
    let (mut found_old, mut found) = (*first, *first);
    for hash in hashes {
        ensure!(last > 0, length);
        if node & 1 == 1 || node == last {
            found_old = node_hash(hash, &found_old);
            found = node_hash(hash, &found);
            let steps = if node & 1 == 1 { 0 } else { node.trailing_zeros().min(u64::BITS - 1) };
            node >>= steps;
            last >>= steps;
        } else {
            found = node_hash(&found, hash);
        }
        node >>= 1;
        last >>= 1;
    }
    ensure!(last == 0, length);
    ensure!(found_old == *old_root, RootSnafu { found: found_old, expected: *old_root });
    ensure!(found == *root, RootSnafu { found, expected: *root });
    Ok(())
}
