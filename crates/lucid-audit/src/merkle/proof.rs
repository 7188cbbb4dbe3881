use snafu::{Snafu, ensure};

use super::{Hash, Nodes, empty_root, left_of, node_hash, range_root};

/// Reason why a proof fails.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[non_exhaustive]
pub enum ProofError {
    /// The tree has no leaf with this index.
    #[snafu(display("leaf {index} is not in a tree of {size} leaves"))]
    Index {
        /// Requested leaf index.
        index: u64,
        /// Size of the tree.
        size: u64,
    },
    /// The older tree is larger.
    #[snafu(display("a tree of {old} leaves is no beginning of one of {size}"))]
    Sizes {
        /// Size of the older tree.
        old: u64,
        /// Size of the newer tree.
        size: u64,
    },
    /// The proof has too many or too few hashes.
    #[snafu(display("the proof has {found} hashes, more or fewer than it needs"))]
    Length {
        /// Number of hashes in the proof.
        found: usize,
    },
    /// The proof yields another root.
    #[snafu(display("the proof leads to the root {}, not {}", found.to_base64(), expected.to_base64()))]
    Root {
        /// Root computed from the proof.
        found: Hash,
        /// Expected root.
        expected: Hash,
    },
}

/// Creates the proof that leaf `index` is in the tree over the first `size` leaves: the path from its sibling up to a child of
/// the root (RFC 6962, section 2.1.1). Empty if there is no such leaf.
///
/// # Errors
///
/// Returns an error if a node cannot be read.
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

/// Verifies that the leaf with hash `leaf` has index `index` in the tree with `size` leaves and root `root` (RFC 9162, section
/// 2.1.3.2).
///
/// # Errors
///
/// Returns an error if the proof fails.
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
            // The last node moves up unchanged while it has no sibling.
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

/// Creates the proof that the tree over the first `old` leaves is a prefix of the tree over the first `size` leaves (RFC 6962,
/// section 2.1.2). Empty if `old` is 0, or not less than `size`.
///
/// # Errors
///
/// Returns an error if a node cannot be read.
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
    // If `begin` is 0, this subtree is the older tree, whose root the verifier knows.
    if begin > 0 {
        proof.push(range_root(nodes, begin, end)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Verifies that the tree with `old` leaves and root `old_root` is a prefix of the tree with `size` leaves and root `root`
/// (RFC 9162, section 2.1.4.2).
///
/// # Errors
///
/// Returns an error if the proof fails.
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
