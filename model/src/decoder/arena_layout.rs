//! The assignment of tokens to rows of the KV arena.

use super::token_tree::PackedTree;
use super::trie::{ROOT, TokenNode, Trie};

/// A trie of tokens, each with a row. Rows are assigned in order, so tokens that are added together are adjacent.
#[derive(Debug)]
pub(crate) struct ArenaLayout {
    trie: Trie,
    rows: Vec<NodeRows>, // per node; the root's is unused
    used: usize,
}

#[derive(Clone, Debug, Copy)]
struct NodeRows {
    row: u32,
    /// The node at the start of the contiguous range that this row belongs to.
    start: TokenNode,
    /// Free rows after this one, kept for the first child.
    spare: u32,
}

impl ArenaLayout {
    pub(crate) fn new() -> ArenaLayout {
        let root = NodeRows {
            row: 0,
            start: ROOT,
            spare: 0,
        };
        ArenaLayout {
            trie: Trie::default(),
            rows: vec![root],
            used: 0,
        }
    }

    /// Returns the number of rows in use or kept free.
    pub(crate) fn rows(&self) -> usize {
        self.used
    }

    /// Returns the number of nodes, including the root. New nodes have higher numbers.
    pub(crate) fn nodes(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn id(&self, node: TokenNode) -> u32 {
        self.trie.get(node).id
    }

    /// Returns the token's index on its path.
    pub(crate) fn position(&self, node: TokenNode) -> u32 {
        self.trie.get(node).depth - 1
    }

    pub(crate) fn row(&self, node: TokenNode) -> u32 {
        self.rows[node.index()].row
    }

    /// Returns the node of every token of a packed tree; `None` if one is missing.
    pub(crate) fn find(&self, tree: &PackedTree) -> Option<Vec<TokenNode>> {
        // In depth-first order a token's path begins with the path of the one before, as far as its parent.
        let mut path = vec![ROOT];
        let mut nodes = Vec::with_capacity(tree.len());
        for (&id, &position) in tree.ids.iter().zip(&tree.positions) {
            path.truncate(position as usize + 1);
            let node = self.trie.find(path[position as usize], id)?;
            path.push(node);
            nodes.push(node);
        }
        Some(nodes)
    }

    /// Adds tokens below `start` and returns the last node. If that is new, `spare` rows are kept free after it.
    pub(crate) fn insert(&mut self, start: TokenNode, ids: &[u32], spare: u32) -> TokenNode {
        let last = ids.len().saturating_sub(1);
        let tokens = ids.iter().enumerate();
        tokens.fold(start, |node, (i, &id)| {
            self.child(node, id, if i == last { spare } else { 0 })
        })
    }

    fn child(&mut self, parent: TokenNode, id: u32, spare: u32) -> TokenNode {
        let node = self.trie.child(parent, id);
        if node.index() < self.rows.len() {
            return node;
        }
        let above = self.rows[parent.index()];
        let rows = if above.spare > 0 {
            self.rows[parent.index()].spare = 0;
            NodeRows {
                row: above.row + 1,
                start: above.start,
                spare: above.spare - 1,
            }
        } else {
            let row = self.used as u32;
            self.used += 1 + spare as usize;
            let adjacent = parent != ROOT && row == above.row + 1;
            NodeRows {
                row,
                start: if adjacent { above.start } else { node },
                spare,
            }
        };
        self.rows.push(rows);
        node
    }

    /// Returns the rows of a node's path in order, as few ranges (start, end).
    pub(crate) fn ranges(&self, node: TokenNode) -> Vec<(u32, u32)> {
        let mut ranges = Vec::new();
        let mut at = node;
        while at != ROOT {
            let NodeRows { row, start, .. } = self.rows[at.index()];
            ranges.push((self.row(start), row + 1));
            at = self.trie.get(start).parent;
        }
        ranges.reverse();
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_tensor::random::Random;
    use proptest::prelude::*;

    #[test]
    fn a_shared_prefix_is_stored_once() {
        let mut layout = ArenaLayout::new();
        let one = layout.insert(ROOT, &[7, 8, 1, 2], 0);
        let two = layout.insert(ROOT, &[7, 8, 3], 0);
        assert_eq!(layout.ranges(one), [(0, 4)]);
        assert_eq!(layout.ranges(two), [(0, 2), (4, 5)]);
        assert_eq!(layout.rows(), 5);
        assert_eq!(layout.insert(ROOT, &[7, 8, 3], 0), two);
    }

    #[test]
    fn replies_sampled_in_turn_stay_in_one_range_each() {
        let mut layout = ArenaLayout::new();
        let mut ends = [1, 2, 3].map(|id| layout.insert(ROOT, &[9, id], 0));
        for token in 0..4 {
            for (i, end) in ends.iter_mut().enumerate() {
                *end = layout.insert(*end, &[10 * token + i as u32], 3);
            }
        }
        for end in ends {
            // The shared token, the prompt's own (which follows it directly for the first), the reply.
            assert!(layout.ranges(end).len() <= 3, "{:?}", layout.ranges(end));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn ranges_hold_the_path_and_no_row_is_assigned_twice(seed: u64, count in 1usize..40) {
            let mut random = Random::new(seed);
            let mut draw = |below: u64| (random.next_u64() % below) as u32;
            let mut layout = ArenaLayout::new();
            let mut known: Vec<(TokenNode, Vec<u32>)> = vec![(ROOT, vec![])];
            for _ in 0..count {
                let (start, mut path) = known[draw(known.len() as u64) as usize].clone();
                let ids: Vec<u32> = (0..1 + draw(4)).map(|_| draw(3)).collect();
                let end = layout.insert(start, &ids, draw(3));
                path.extend(ids);
                known.push((end, path));
            }
            let mut holder = vec![None; layout.rows()];
            for node in (1..layout.nodes()).map(|node| TokenNode(node as u32)) {
                let before = holder[layout.row(node) as usize].replace(node);
                prop_assert_eq!(before, None);
            }
            for (node, path) in &known {
                let rows = layout.ranges(*node).into_iter().flat_map(|(start, end)| start..end);
                let held: Vec<u32> = rows.map(|row| layout.id(holder[row as usize].unwrap())).collect();
                prop_assert_eq!(&held, path);
            }
        }
    }
}
