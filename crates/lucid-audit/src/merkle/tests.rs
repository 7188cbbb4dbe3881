//! Trees and proofs compared with a third-party implementation of RFC 6962.

use proptest::prelude::*;

use super::*;
use crate::tile::Frontier;

fn leaves(count: usize) -> Vec<Hash> {
    (0..count).map(|entry| leaf_hash(entry.to_string().as_bytes())).collect()
}

fn theirs(hash: &Hash) -> tlog_tiles::Hash {
    tlog_tiles::Hash(hash.0)
}

/// tlog_tiles recomputes each root from a proof, so that no other root or proof passes.
#[test]
fn roots_and_proofs_verify_with_tlog_tiles_at_every_size() {
    const MOST: usize = 67;
    let all = |proof: &[Hash]| proof.iter().map(theirs).collect::<Vec<_>>();
    let leaves = leaves(MOST);
    let roots: Vec<_> = (0..=MOST as u64).map(|size| root(&leaves[..], size).unwrap()).collect();
    assert_eq!((roots[0].0, empty_root().0), (tlog_tiles::EMPTY_HASH.0, tlog_tiles::EMPTY_HASH.0));
    let mut frontier = Frontier::new();
    assert_eq!(frontier.root(), roots[0]);
    for size in 1..=MOST {
        frontier.append(leaves[size - 1]);
        let (now, count) = (&roots[size], size as u64);
        assert_eq!(frontier.root(), *now, "{size}");
        for index in 0..count {
            let proof = inclusion_proof(&leaves[..], index, count).unwrap();
            let leaf = tlog_tiles::record_hash(index.to_string().as_bytes());
            let checked = tlog_tiles::check_record(&all(&proof), count, theirs(now), index, leaf);
            assert!(checked.is_ok(), "{index} of {size}");
            assert!(verify_inclusion(&leaves[index as usize], index, count, &proof, now));
        }
        assert_eq!(consistency_proof(&leaves[..], 0, count).unwrap(), []);
        assert!(verify_consistency(0, &roots[0], count, now, &[]));
        for old in 1..=count {
            let (proof, before) = (consistency_proof(&leaves[..], old, count).unwrap(), &roots[old as usize]);
            let checked = tlog_tiles::check_tree(&all(&proof), count, theirs(now), old, theirs(before));
            assert!(checked.is_ok(), "{old} to {size}");
            assert!(verify_consistency(old, before, count, now, &proof));
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
        let leaves = leaves(size);
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
        let leaves = leaves(size);
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
}
