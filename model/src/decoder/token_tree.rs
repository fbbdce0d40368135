//! The packed token tree: many sequences as one flat list of tokens in which equal prefixes occur once.
//!
//! Token `i` attends to token `j` exactly when `j <= i < visible_until[j]`. The tokens are in depth-first order, so every subtree
//! is contiguous and one number per token defines its visibility.

use serde::{Deserialize, Serialize};

use super::trie::{ROOT, TokenNode, Trie};

/// A tree of sequences in which equal prefixes are merged.
#[derive(Debug, Default)]
pub struct TokenTree {
    trie: Trie,
}

impl TokenTree {
    /// Adds a sequence and returns the node of its last token; equal sequences get equal nodes.
    ///
    /// # Panics
    /// If the sequence is empty.
    #[track_caller]
    pub fn insert(&mut self, ids: &[u32]) -> TokenNode {
        assert!(
            !ids.is_empty(),
            "token tree: an empty sequence has no last token"
        );
        ids.iter().fold(ROOT, |node, &id| self.trie.child(node, id))
    }

    /// Returns the number of tokens, which is the number of distinct prefixes.
    pub fn len(&self) -> usize {
        self.trie.nodes().len() - 1
    }

    /// Returns whether the tree has no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the tokens in depth-first order, children in order of insertion.
    pub fn pack(&self) -> PackedTree {
        let nodes = self.trie.nodes();
        // Parents come before their children: a pass from the back adds up subtrees,
        let mut subtree = vec![1u32; nodes.len()];
        for (node, entry) in nodes.iter().enumerate().skip(1).rev() {
            subtree[entry.parent.index()] += subtree[node];
        }
        // and one from the front assigns every child the next free range of its parent.
        let mut index = vec![0u32; nodes.len()];
        let mut free = vec![0u32; nodes.len()];
        let len = self.len();
        let (mut ids, mut positions, mut visible_until) =
            (vec![0; len], vec![0; len], vec![0; len]);
        for (node, entry) in nodes.iter().enumerate().skip(1) {
            let parent = entry.parent.index();
            let at = free[parent];
            free[parent] += subtree[node];
            free[node] = at + 1;
            index[node] = at;
            ids[at as usize] = entry.id;
            positions[at as usize] = entry.depth - 1;
            visible_until[at as usize] = at + subtree[node];
        }
        PackedTree {
            ids,
            positions,
            visible_until,
            index,
            parents: nodes.iter().map(|entry| entry.parent).collect(),
        }
    }
}

/// A token tree as flat arrays with one entry per token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PackedTree {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Index of each token on its path from the root.
    pub positions: Vec<u32>,
    /// End of the subtree below each token.
    pub visible_until: Vec<u32>,
    index: Vec<u32>,
    parents: Vec<TokenNode>,
}

impl PackedTree {
    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the packed index of the last token of a sequence, given its node from [`TokenTree::insert`].
    pub fn last(&self, node: TokenNode) -> u32 {
        self.index[node.index()]
    }

    /// Returns the packed index of every token of a sequence, first to last.
    pub fn path(&self, node: TokenNode) -> Vec<u32> {
        let mut path = Vec::new();
        let mut at = node;
        while at != ROOT {
            path.push(self.index[at.index()]);
            at = self.parents[at.index()];
        }
        path.reverse();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_tensor::random::Random;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_fork_is_packed_depth_first() {
        let mut tree = TokenTree::default();
        let left = tree.insert(&[7, 1, 2]);
        let right = tree.insert(&[7, 3]);
        let longer = tree.insert(&[7, 1, 2, 4]);
        let packed = tree.pack();
        assert_eq!(packed.ids, [7, 1, 2, 4, 3]);
        assert_eq!(packed.positions, [0, 1, 2, 3, 1]);
        assert_eq!(packed.visible_until, [5, 4, 4, 4, 5]);
        assert_eq!(packed.path(left), [0, 1, 2]);
        assert_eq!(packed.path(right), [0, 4]);
        assert_eq!(packed.last(longer), 3);
    }

    #[test]
    fn equal_sequences_share_their_node() {
        let mut tree = TokenTree::default();
        assert_eq!(tree.insert(&[1, 2]), tree.insert(&[1, 2]));
        assert_eq!(tree.len(), 2);
    }

    /// Sequences over three letters, so that many begin alike.
    fn sequences(seed: u64, count: usize, longest: usize) -> Vec<Vec<u32>> {
        let mut random = Random::new(seed);
        let mut draw = |below: usize| (random.next_u64() % below as u64) as usize;
        (0..count)
            .map(|_| (0..1 + draw(longest)).map(|_| draw(3) as u32).collect())
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_the_last_token_sees_is_its_own_sequence(seed: u64, count in 1usize..30, longest in 1usize..12) {
            let sequences = sequences(seed, count, longest);
            let mut tree = TokenTree::default();
            let nodes: Vec<TokenNode> = sequences.iter().map(|s| tree.insert(s)).collect();
            let packed = tree.pack();
            for (sequence, &node) in sequences.iter().zip(&nodes) {
                let last = packed.last(node);
                let seen: Vec<u32> =
                    (0..=last).filter(|&j| last < packed.visible_until[j as usize]).collect();
                prop_assert_eq!(&seen, &packed.path(node));
                let ids: Vec<u32> = seen.iter().map(|&j| packed.ids[j as usize]).collect();
                prop_assert_eq!(&ids, sequence);
                let positions: Vec<u32> = seen.iter().map(|&j| packed.positions[j as usize]).collect();
                prop_assert_eq!(positions, (0..sequence.len() as u32).collect::<Vec<_>>());
            }
        }

        #[test]
        fn every_distinct_prefix_is_one_token(seed: u64, count in 1usize..30, longest in 1usize..12) {
            let sequences = sequences(seed, count, longest);
            let mut tree = TokenTree::default();
            let mut prefixes = HashSet::new();
            for sequence in &sequences {
                tree.insert(sequence);
                prefixes.extend((1..=sequence.len()).map(|n| &sequence[..n]));
            }
            prop_assert_eq!(tree.len(), prefixes.len());
            prop_assert_eq!(tree.pack().len(), prefixes.len());
        }
    }
}
