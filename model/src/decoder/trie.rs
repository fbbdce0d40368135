//! A trie of token ids.

/// A token of a trie. It stands for the path from the root; equal prefixes have equal nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenNode(pub(crate) u32);

impl TokenNode {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The parent of every first token. It holds no token.
pub(crate) const ROOT: TokenNode = TokenNode(0);
const NONE: u32 = u32::MAX;

/// The nodes are in order of creation, so a parent comes before its children.
pub(crate) struct Trie {
    nodes: Vec<TrieEntry>,
}

struct TrieEntry {
    id: u32,
    parent: u32,
    depth: u32,
    first_child: u32,
    last_child: u32,
    next_sibling: u32,
}

impl Trie {
    pub(crate) fn new() -> Trie {
        let mut trie = Trie { nodes: Vec::new() };
        trie.push(0, NONE, 0);
        trie
    }

    /// Returns the number of nodes, including the root.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn id(&self, node: TokenNode) -> u32 {
        self.nodes[node.index()].id
    }

    /// Returns the parent; the root has none.
    pub(crate) fn parent(&self, node: TokenNode) -> Option<TokenNode> {
        let parent = self.nodes[node.index()].parent;
        (parent != NONE).then_some(TokenNode(parent))
    }

    /// Returns the number of tokens on the path from the root, including this one.
    pub(crate) fn depth(&self, node: TokenNode) -> u32 {
        self.nodes[node.index()].depth
    }

    /// Returns the child of `parent` with this id, and adds it if there is none.
    pub(crate) fn child(&mut self, parent: TokenNode, id: u32) -> TokenNode {
        let mut at = self.nodes[parent.index()].first_child;
        while at != NONE {
            let entry = &self.nodes[at as usize];
            if entry.id == id {
                return TokenNode(at);
            }
            at = entry.next_sibling;
        }
        self.add(parent, id)
    }

    fn add(&mut self, parent: TokenNode, id: u32) -> TokenNode {
        let new = self.nodes.len() as u32;
        let depth = self.depth(parent) + 1;
        self.push(id, parent.0, depth);
        let last = std::mem::replace(&mut self.nodes[parent.index()].last_child, new);
        if last == NONE {
            self.nodes[parent.index()].first_child = new;
        } else {
            self.nodes[last as usize].next_sibling = new;
        }
        TokenNode(new)
    }

    fn push(&mut self, id: u32, parent: u32, depth: u32) {
        self.nodes.push(TrieEntry {
            id,
            parent,
            depth,
            first_child: NONE,
            last_child: NONE,
            next_sibling: NONE,
        });
    }
}
