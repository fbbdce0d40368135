//! A trie of token ids.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A token of a trie. It stands for the path from the root; equal prefixes have equal nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenNode(pub(crate) u32);

impl TokenNode {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The parent of every first token. It holds no token.
pub(crate) const ROOT: TokenNode = TokenNode(0);

/// The nodes are in order of creation, so a parent comes before its children.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Vec<TrieEntry>,
    /// All children but the first of each node.
    others: HashMap<(TokenNode, u32), TokenNode>,
}

#[derive(Clone, Debug, Copy)]
pub(crate) struct TrieEntry {
    pub(crate) id: u32,
    /// The root is its own parent.
    pub(crate) parent: TokenNode,
    /// Tokens on the path from the root, including this one.
    pub(crate) depth: u32,
    /// The child that was added first, so that a path without branches is walked without the table. The root, which is no
    /// child, if there is none.
    first: TokenNode,
}

impl Default for Trie {
    fn default() -> Trie {
        let root = TrieEntry {
            id: 0,
            parent: ROOT,
            depth: 0,
            first: ROOT,
        };
        Trie {
            nodes: vec![root],
            others: HashMap::new(),
        }
    }
}

impl Trie {
    /// Returns all nodes, beginning with the root.
    pub(crate) fn nodes(&self) -> &[TrieEntry] {
        &self.nodes
    }

    pub(crate) fn get(&self, node: TokenNode) -> TrieEntry {
        self.nodes[node.index()]
    }

    /// Returns the child of `parent` with this id, if there is one.
    pub(crate) fn find(&self, parent: TokenNode, id: u32) -> Option<TokenNode> {
        let first = self.get(parent).first;
        match first != ROOT && self.get(first).id == id {
            true => Some(first),
            false => self.others.get(&(parent, id)).copied(),
        }
    }

    /// Returns the child of `parent` with this id, and adds it if there is none.
    pub(crate) fn child(&mut self, parent: TokenNode, id: u32) -> TokenNode {
        let TrieEntry { depth, first, .. } = self.get(parent);
        if first != ROOT && self.get(first).id == id {
            return first;
        }
        let new = TokenNode(self.nodes.len() as u32);
        if first == ROOT {
            self.nodes[parent.index()].first = new;
        } else {
            let known = *self.others.entry((parent, id)).or_insert(new);
            if known != new {
                return known;
            }
        }
        self.nodes.push(TrieEntry {
            id,
            parent,
            depth: depth + 1,
            first: ROOT,
        });
        new
    }
}
