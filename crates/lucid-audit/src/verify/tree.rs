//! Tree over the records in memory.

use std::convert::Infallible;

use crate::merkle::{self, Hash, Nodes};
use crate::tile::{WIDTH, full_root};

/// Roots of blocks of 256 leaves and the remaining leaves, sufficient for every tile above level 0.
#[derive(Debug, Default)]
pub(super) struct Tree {
    blocks: Vec<Hash>,
    rest: Vec<Hash>,
}

impl Tree {
    pub(super) fn append(&mut self, leaf: Hash) {
        self.rest.push(leaf);
        if self.rest.len() as u64 == WIDTH {
            self.blocks.push(full_root(&self.rest));
            self.rest.clear();
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.blocks.len() as u64 * WIDTH + self.rest.len() as u64
    }

    pub(super) fn root(&self) -> Hash {
        let Ok(root) = merkle::root(self, self.size());
        root
    }

    /// Returns the hashes of a tile at `level`, above 0: the roots of the full tiles below.
    pub(super) fn tile(&self, level: u8, index: u64) -> Vec<Hash> {
        let below = u32::from(level - 1) * 8;
        let all = (self.blocks.len() as u64).checked_shr(below).unwrap_or(0);
        let nodes = (index * WIDTH..all.min((index + 1) * WIDTH)).map(|number| {
            let Ok(hash) = self.node(level * 8, number);
            hash
        });
        nodes.collect()
    }
}

impl Nodes for Tree {
    type Error = Infallible;

    fn node(&self, level: u8, index: u64) -> Result<Hash, Infallible> {
        match level.checked_sub(8) {
            Some(above) => self.blocks[..].node(above, index),
            // Requested only at the right edge.
            None => self.rest[..].node(level, index - ((self.blocks.len() as u64 * WIDTH) >> level)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::{Frontier, leaf_hash};

    #[test]
    fn its_root_is_that_of_the_tree_at_every_size() {
        let (mut tree, mut frontier) = (Tree::default(), Frontier::new());
        for leaf in 0..1500_u64 {
            assert_eq!((tree.root(), tree.size()), (frontier.root(), leaf));
            tree.append(leaf_hash(&leaf.to_be_bytes()));
            frontier.append(leaf_hash(&leaf.to_be_bytes()));
        }
        assert_eq!(tree.tile(1, 0).len(), 5);
        assert!(tree.tile(1, 1).is_empty() && tree.tile(2, 0).is_empty());
    }
}
