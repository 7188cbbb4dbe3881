//! Trees and proofs compared with the definitions of RFC 6962 and a third-party implementation.

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::tile::Frontier;

/// Definitions of section 2.1, over whole entries.
mod naive {
    use super::*;

    pub(super) fn mth(d: &[Vec<u8>]) -> [u8; 32] {
        match d {
            [] => Sha256::digest([]).into(),
            [d0] => Sha256::new().chain_update([0]).chain_update(d0).finalize().into(),
            _ => {
                let k = k(d.len());
                node(mth(&d[..k]), mth(&d[k..]))
            }
        }
    }

    fn k(n: usize) -> usize {
        n.next_power_of_two() / 2
    }

    fn node(left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
        Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
    }

    pub(super) fn path(m: usize, d: &[Vec<u8>]) -> Vec<[u8; 32]> {
        if d.len() == 1 {
            return Vec::new();
        }
        let k = k(d.len());
        let (mut path, sibling) =
            if m < k { (path(m, &d[..k]), mth(&d[k..])) } else { (path(m - k, &d[k..]), mth(&d[..k])) };
        path.push(sibling);
        path
    }

    pub(super) fn proof(m: usize, d: &[Vec<u8>]) -> Vec<[u8; 32]> {
        if m == 0 { Vec::new() } else { subproof(m, d, true) }
    }

    fn subproof(m: usize, d: &[Vec<u8>], b: bool) -> Vec<[u8; 32]> {
        if m == d.len() {
            return if b { Vec::new() } else { vec![mth(d)] };
        }
        let k = k(d.len());
        let (mut proof, sibling) = if m <= k {
            (subproof(m, &d[..k], b), mth(&d[k..]))
        } else {
            (subproof(m - k, &d[k..], false), mth(&d[..k]))
        };
        proof.push(sibling);
        proof
    }
}

fn entries(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|entry| entry.to_string().into_bytes()).collect()
}

fn leaves(entries: &[Vec<u8>]) -> Vec<Hash> {
    entries.iter().map(|entry| leaf_hash(entry)).collect()
}

fn plain(hashes: &[Hash]) -> Vec<[u8; 32]> {
    hashes.iter().map(|hash| hash.0).collect()
}

const MOST: usize = 67;

#[test]
fn roots_are_those_of_the_definition() {
    let entries = entries(MOST);
    let leaves = leaves(&entries);
    let mut frontier = Frontier::new();
    for size in 0..=MOST {
        let expected = naive::mth(&entries[..size]);
        assert_eq!(root(&leaves[..], size as u64).unwrap().0, expected, "{size}");
        assert_eq!(frontier.root().0, expected, "{size}");
        if let Some(leaf) = leaves.get(size) {
            frontier.append(*leaf);
        }
    }
}

#[test]
fn known_roots() {
    // Computed with sha256sum: of nothing, of "\0", and of "\1" with both hashes.
    assert_eq!(empty_root().to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    let leaf = leaf_hash(b"");
    assert_eq!(leaf.to_string(), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
    assert_eq!(
        node_hash(&leaf, &leaf).to_string(),
        "fe43d66afa4a9a5c4f9c9da89f4ffb52635c8f342e7ffb731d68e36c5982072a"
    );
}

#[test]
fn inclusion_proofs_are_those_of_the_definition_and_verify() {
    let entries = entries(MOST);
    let leaves = leaves(&entries);
    for size in 1..=MOST {
        let root = root(&leaves[..], size as u64).unwrap();
        for index in 0..size {
            let proof = inclusion_proof(&leaves[..], index as u64, size as u64).unwrap();
            assert_eq!(plain(&proof), naive::path(index, &entries[..size]), "{index} of {size}");
            assert!(verify_inclusion(&leaves[index], index as u64, size as u64, &proof, &root));
        }
    }
}

#[test]
fn consistency_proofs_are_those_of_the_definition_and_verify() {
    let entries = entries(MOST);
    let leaves = leaves(&entries);
    let roots: Vec<_> = (0..=MOST as u64).map(|size| root(&leaves[..], size).unwrap()).collect();
    for size in 1..=MOST {
        for old in 0..=size {
            let proof = consistency_proof(&leaves[..], old as u64, size as u64).unwrap();
            assert_eq!(plain(&proof), naive::proof(old, &entries[..size]), "{old} to {size}");
            assert!(verify_consistency(old as u64, &roots[old], size as u64, &roots[size], &proof));
        }
    }
}

fn changed(proof: &[Hash], at: prop::sample::Index, bit: usize) -> Vec<Hash> {
    let mut changed = proof.to_vec();
    if !changed.is_empty() {
        changed[at.index(proof.len())].0[bit / 8] ^= 1 << (bit % 8);
    }
    changed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn other_inclusion_proofs_do_not_verify(
        size in 1..400_usize, index: prop::sample::Index, other: prop::sample::Index,
        at: prop::sample::Index, bit in 0..256_usize,
    ) {
        let leaves = leaves(&entries(size));
        let (index, other, size) = (index.index(size), other.index(size), size as u64);
        let root = root(&leaves[..], size).unwrap();
        let proof = inclusion_proof(&leaves[..], index as u64, size).unwrap();
        let check = |leaf: &Hash, index: usize, size, proof: &[Hash]| {
            verify_inclusion(leaf, index as u64, size, proof, &root)
        };
        prop_assert!(check(&leaves[index], index, size, &proof));
        if other != index {
            prop_assert!(!check(&leaves[other], index, size, &proof));
            prop_assert!(!check(&leaves[index], other, size, &proof));
        }
        if !proof.is_empty() {
            prop_assert!(!check(&leaves[index], index, size, &changed(&proof, at, bit)));
            prop_assert!(!check(&leaves[index], index, size, &proof[1..]));
            prop_assert!(!check(&leaves[index], index, size, &proof[..proof.len() - 1]));
        }
        prop_assert!(!check(&leaves[index], index, size, &[&proof[..], &[root]].concat()));
        prop_assert!(!check(&leaves[index], size as usize, size, &proof));
    }

    #[test]
    fn other_consistency_proofs_do_not_verify(
        size in 2..400_usize, old: prop::sample::Index, at: prop::sample::Index, bit in 0..256_usize,
    ) {
        let leaves = leaves(&entries(size));
        let old = 1 + old.index(size - 1) as u64;
        let size = size as u64;
        let [before, now] = [old, size].map(|size| root(&leaves[..], size).unwrap());
        let proof = consistency_proof(&leaves[..], old, size).unwrap();
        let check = |old_root: &Hash, root: &Hash, proof: &[Hash]| {
            verify_consistency(old, old_root, size, root, proof)
        };
        prop_assert!(check(&before, &now, &proof));
        prop_assert!(!check(&now, &now, &proof));
        prop_assert!(!check(&before, &before, &proof));
        prop_assert!(!check(&before, &now, &changed(&proof, at, bit)));
        prop_assert!(!check(&before, &now, &proof[1..]));
        prop_assert!(!check(&before, &now, &[&proof[..], &[now]].concat()));
        // A fork: one earlier leaf differs.
        let mut forked = leaves;
        let last = forked.len() - 1;
        forked[at.index(old as usize).min(last)].0[bit / 8] ^= 1 << (bit % 8);
        let fork = root(&forked[..], size).unwrap();
        let proof = consistency_proof(&forked[..], old, size).unwrap();
        prop_assert!(!check(&before, &fork, &proof));
    }

    #[test]
    fn tlog_tiles_computes_the_same_hashes(size in 1..400_usize, index: prop::sample::Index, old: prop::sample::Index) {
        let leaves = leaves(&entries(size));
        let (index, old, size) = (index.index(size) as u64, 1 + old.index(size) as u64, size as u64);
        let theirs = |hashes: &[Hash]| hashes.iter().map(|hash| tlog_tiles::Hash(hash.0)).collect::<Vec<_>>();
        let [before, now] = [old, size].map(|size| tlog_tiles::Hash(root(&leaves[..], size).unwrap().0));
        let leaf = tlog_tiles::record_hash(index.to_string().as_bytes());
        prop_assert_eq!(leaf.0, leaves[index as usize].0);
        let proof = theirs(&inclusion_proof(&leaves[..], index, size).unwrap());
        prop_assert!(tlog_tiles::check_record(&proof, size, now, index, leaf).is_ok());
        let proof = theirs(&consistency_proof(&leaves[..], old, size).unwrap());
        prop_assert!(tlog_tiles::check_tree(&proof, size, now, old, before).is_ok());
    }
}
