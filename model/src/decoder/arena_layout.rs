//! Which arena row holds which token: the host's half of the KV arena.

use super::trie::{ROOT, TokenNode, Trie};

/// A trie of tokens, each with a row. Rows are handed out in order, so what is added together lies together.
pub(crate) struct ArenaLayout {
    trie: Trie,
    places: Vec<NodeRows>, // per node; the root's is never used
    used: usize,
}

/// Where a node's numbers lie.
#[derive(Clone, Copy)]
struct NodeRows {
    row: u32,
    /// The node at which the contiguous stretch of rows that ends here begins.
    stretch: TokenNode,
    /// Free rows right behind this one, kept for the first child.
    room: u32,
}

impl ArenaLayout {
    pub(crate) fn new() -> ArenaLayout {
        let root = NodeRows {
            row: 0,
            stretch: ROOT,
            room: 0,
        };
        ArenaLayout {
            trie: Trie::new(),
            places: vec![root],
            used: 0,
        }
    }

    /// Rows handed out or kept free.
    pub(crate) fn rows(&self) -> usize {
        self.used
    }

    /// Nodes, the root among them. Their numbers grow with time.
    pub(crate) fn nodes(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn id(&self, node: TokenNode) -> u32 {
        self.trie.id(node)
    }

    /// The token's place on its path, from 0.
    pub(crate) fn position(&self, node: TokenNode) -> u32 {
        self.trie.depth(node) - 1
    }

    pub(crate) fn row(&self, node: TokenNode) -> u32 {
        self.places[node.index()].row
    }

    /// Makes sure that `ids` follow `start` and returns the last of them, with `room` rows kept free behind it if it
    /// is new.
    pub(crate) fn insert(&mut self, start: TokenNode, ids: &[u32], room: u32) -> TokenNode {
        let last = ids.len().saturating_sub(1);
        let tokens = ids.iter().enumerate();
        tokens.fold(start, |node, (i, &id)| {
            self.child(node, id, if i == last { room } else { 0 })
        })
    }

    fn child(&mut self, parent: TokenNode, id: u32, room: u32) -> TokenNode {
        let node = self.trie.child(parent, id);
        if node.index() < self.places.len() {
            return node;
        }
        let above = self.places[parent.index()];
        let place = if above.room > 0 {
            self.places[parent.index()].room = 0;
            NodeRows {
                row: above.row + 1,
                stretch: above.stretch,
                room: above.room - 1,
            }
        } else {
            let row = self.used as u32;
            self.used += 1 + room as usize;
            let adjacent = parent != ROOT && row == above.row + 1;
            NodeRows {
                row,
                stretch: if adjacent { above.stretch } else { node },
                room,
            }
        };
        self.places.push(place);
        node
    }

    /// The rows of a node's path, from the first token to its own, as few stretches (start, end).
    pub(crate) fn stretches(&self, node: TokenNode) -> Vec<(u32, u32)> {
        let mut stretches = Vec::new();
        let mut at = node;
        while at != ROOT {
            let NodeRows { row, stretch, .. } = self.places[at.index()];
            stretches.push((self.row(stretch), row + 1));
            at = self
                .trie
                .parent(stretch)
                .expect("only the root has no parent");
        }
        stretches.reverse();
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_tensor::random::Random;
    use proptest::prelude::*;

    #[test]
    fn what_is_shared_is_stored_once() {
        let mut layout = ArenaLayout::new();
        let one = layout.insert(ROOT, &[7, 8, 1, 2], 0);
        let two = layout.insert(ROOT, &[7, 8, 3], 0);
        assert_eq!(layout.stretches(one), [(0, 4)]);
        assert_eq!(layout.stretches(two), [(0, 2), (4, 5)]);
        assert_eq!(layout.rows(), 5);
        assert_eq!(layout.insert(ROOT, &[7, 8, 3], 0), two);
    }

    #[test]
    fn replies_written_in_turn_stay_in_one_stretch_each() {
        let mut layout = ArenaLayout::new();
        let mut ends = [1, 2, 3].map(|id| layout.insert(ROOT, &[9, id], 0));
        for token in 0..4 {
            for (i, end) in ends.iter_mut().enumerate() {
                *end = layout.insert(*end, &[10 * token + i as u32], 3);
            }
        }
        for end in ends {
            // The shared token, the prompt's own (which follows it directly for the first), the reply.
            assert!(
                layout.stretches(end).len() <= 3,
                "{:?}",
                layout.stretches(end)
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn stretches_hold_the_path_and_no_row_is_given_twice(seed: u64, count in 1usize..40) {
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
                let rows = layout.stretches(*node).into_iter().flat_map(|(start, end)| start..end);
                let held: Vec<u32> = rows.map(|row| layout.id(holder[row as usize].unwrap())).collect();
                prop_assert_eq!(&held, path);
            }
        }
    }
}
