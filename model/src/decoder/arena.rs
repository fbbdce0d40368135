//! The KV arena: keys, values and final hidden states of tokens already run through the model, as a trie.
//!
//! A node is a token on its path; sequences that begin alike share nodes, so rules are computed once, each distinct
//! observation once, and each distinct reply once. A node's path lies in a few contiguous stretches of arena rows,
//! which is all that attention needs to know.

use lapwing_tensor::{Gpu, Indices, Tensor, Visibility};

use super::arena_layout::ArenaLayout;
use super::trie::{ROOT, TokenNode};
use crate::{Adapter, Model, ModelError};

/// What a model and adapter, as they stand, computed for a growing set of sequences. After an optimiser step the
/// arena must be [cleared](KvArena::clear).
pub struct KvArena {
    gpu: Gpu,
    layout: ArenaLayout,
    keys: Vec<Tensor>,   // per block (S, K*D)
    values: Vec<Tensor>, // per block (S, K*D)
    hidden: Tensor,      // (S, C)
    most_rows: usize,
    rows_at_once: usize,
    computed: u64,
}

impl KvArena {
    /// An arena with a first capacity of `rows` tokens. When full it doubles, up to `most_rows` tokens: what the memory
    /// was planned for. (A kernel sees so much of a buffer only, so it may be less: [`KvArena::most_rows`].)
    pub fn new(model: &Model, rows: usize, most_rows: usize) -> KvArena {
        let config = model.config();
        let (gpu, kv_width) = (model.gpu().clone(), config.kv_heads * config.head_size);
        let floats = (gpu.caps().max_binding / 4) as usize;
        let bindable = config.most_arena_rows(gpu.caps().max_binding);
        let most_rows = most_rows.clamp(1, bindable);
        let rows = rows.clamp(1, most_rows);
        let table = |width: usize| Tensor::zeros(&gpu, &[rows, width]);
        let widest = config
            .width
            .max(config.mlp_width)
            .max(config.heads * config.head_size);
        KvArena {
            layout: ArenaLayout::new(),
            keys: (0..config.layers).map(|_| table(kv_width)).collect(),
            values: (0..config.layers).map(|_| table(kv_width)).collect(),
            hidden: table(config.width),
            most_rows,
            rows_at_once: (floats / widest).min(4096),
            computed: 0,
            gpu,
        }
    }

    /// Forgets everything, keeping the memory. Nodes handed out before are void.
    pub fn clear(&mut self) {
        self.layout = ArenaLayout::new();
    }

    /// Tokens that it can hold.
    pub fn most_rows(&self) -> usize {
        self.most_rows
    }

    /// Tokens that it holds, room kept free for replies included.
    pub fn rows(&self) -> usize {
        self.layout.rows()
    }

    /// Positions run through the model since the arena was made.
    pub fn computed(&self) -> u64 {
        self.computed
    }

    /// The final hidden states, one row per arena row: (S, C). Ask for rows with [`KvArena::row`].
    pub fn hidden(&self) -> &Tensor {
        &self.hidden
    }

    /// The arena row of a token.
    pub fn row(&self, node: TokenNode) -> u32 {
        self.layout.row(node)
    }

    /// The arena rows of a token and all that come before it, from the first.
    pub fn path(&self, node: TokenNode) -> Vec<u32> {
        let stretches = self.layout.stretches(node);
        stretches
            .into_iter()
            .flat_map(|(start, end)| start..end)
            .collect()
    }

    /// Makes sure that these sequences are in the arena and returns the node of each one's last token. Only tokens
    /// that are not there yet are computed.
    ///
    /// # Errors
    /// If the arena cannot grow enough; it is then cleared.
    ///
    /// # Panics
    /// If a sequence is empty.
    #[track_caller]
    pub fn prefill(
        &mut self,
        model: &Model,
        adapter: Option<&Adapter>,
        sequences: &[&[u32]],
    ) -> Result<Vec<TokenNode>, ModelError> {
        let empty = sequences.iter().position(|sequence| sequence.is_empty());
        assert!(empty.is_none(), "prefill: sequence {empty:?} is empty");
        let additions: Vec<(TokenNode, &[u32])> =
            sequences.iter().map(|&sequence| (ROOT, sequence)).collect();
        self.extend(model, adapter, &additions, 0)
    }

    /// The same below given nodes. Behind each new last token `room` rows are kept free for what follows it, so that
    /// a reply sampled token by token among others stays in one stretch.
    ///
    /// # Errors
    /// If the arena cannot grow enough; it is then cleared.
    pub fn extend(
        &mut self,
        model: &Model,
        adapter: Option<&Adapter>,
        additions: &[(TokenNode, &[u32])],
        room: u32,
    ) -> Result<Vec<TokenNode>, ModelError> {
        let first_new = self.layout.nodes();
        let layout = &mut self.layout;
        let place = |&(start, ids): &(TokenNode, &[u32])| layout.insert(start, ids, room);
        let ends = additions.iter().map(place).collect();
        if let Err(error) = self.grow() {
            self.clear();
            return Err(error);
        }
        let new: Vec<TokenNode> = (first_new..self.layout.nodes())
            .map(|node| TokenNode(node as u32))
            .collect();
        // Parents come before their children, so what a chunk looks at is in the same chunk or an earlier one.
        for chunk in new.chunks(self.rows_at_once) {
            self.compute(model, adapter, chunk);
        }
        Ok(ends)
    }

    /// Runs new nodes through the model.
    fn compute(&mut self, model: &Model, adapter: Option<&Adapter>, nodes: &[TokenNode]) {
        let indices = |of: &dyn Fn(TokenNode) -> u32| {
            Indices::new(
                &self.gpu,
                &nodes.iter().map(|&node| of(node)).collect::<Vec<u32>>(),
            )
        };
        let ids = indices(&|node| self.layout.id(node));
        let positions = indices(&|node| self.layout.position(node));
        let rows = indices(&|node| self.layout.row(node));
        let seen: Vec<Vec<(u32, u32)>> = nodes
            .iter()
            .map(|&node| self.layout.stretches(node))
            .collect();
        let visible = Visibility::ranges(&self.gpu, &seen);
        let (heads, kv_heads) = (model.config().heads, model.config().kv_heads);
        let hidden = model.run(&ids, &positions, adapter, |layer, q, k, v| {
            let (keys, values) = (&self.keys[layer], &self.values[layer]);
            keys.write_rows(&rows, &k);
            values.write_rows(&rows, &v);
            q.attention(keys, values, &visible, heads, kv_heads)
        });
        self.hidden.write_rows(&rows, &hidden);
        self.computed += nodes.len() as u64;
    }

    /// Makes room for all rows handed out.
    fn grow(&mut self) -> Result<(), ModelError> {
        let have = self.hidden.rows();
        if self.layout.rows() <= have {
            return Ok(());
        }
        if self.layout.rows() > self.most_rows {
            return Err(ModelError::ArenaFull {
                wanted: self.layout.rows(),
                most: self.most_rows,
            });
        }
        let rows = (2 * have).max(self.layout.rows()).min(self.most_rows);
        let old = Indices::new(&self.gpu, &(0..have as u32).collect::<Vec<u32>>());
        let tables = self
            .keys
            .iter_mut()
            .chain(&mut self.values)
            .chain([&mut self.hidden]);
        for table in tables {
            let larger = Tensor::zeros(&self.gpu, &[rows, table.cols()]);
            larger.write_rows(&old, table);
            *table = larger;
        }
        Ok(())
    }
}
