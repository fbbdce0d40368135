//! The KV arena: the cache of keys, values and final hidden states of computed tokens, as a trie.
//!
//! Sequences with equal prefixes share the nodes of the prefix, so rules, observations and replies are computed once each. The
//! path of a node lies in a few contiguous ranges of arena rows, and attention reads these ranges. On request the arena keeps
//! what the update of a rollout needs, too (`results.rs`).

use lapwing_tensor::{Gpu, Indices, Tensor, Visibility};

use super::arena_layout::ArenaLayout;
use super::results::{KeptPasses, KeptResults, Results};
use super::trie::{ROOT, TokenNode};
use crate::{Adapter, Model, ModelError, PackedTree};

/// The cache of one model and adapter. [Clear](KvArena::clear) it after an optimiser step, and before another adapter uses it:
/// it does not notice either.
#[derive(Debug)]
pub struct KvArena {
    gpu: Gpu,
    layout: ArenaLayout,
    keys: Vec<Tensor>,   // per block (S, K*D)
    values: Vec<Tensor>, // per block (S, K*D)
    hidden: Tensor,      // (S, C)
    kept: Option<KeptPasses>,
    /// Whether results are kept now.
    keeps: bool,
    most_rows: usize,
    rows_at_once: usize,
    computed: u64,
}

impl KvArena {
    /// Creates an arena for `rows` tokens. It doubles when it is full, up to `most_rows` tokens, or fewer if a kernel cannot
    /// bind a buffer of that size ([`KvArena::most_rows`]).
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
            kept: None,
            keeps: false,
            most_rows,
            rows_at_once: (floats / widest).min(4096),
            computed: 0,
            gpu,
        }
    }

    /// Removes all tokens and keeps the memory. Earlier nodes become invalid.
    pub fn clear(&mut self) {
        self.layout = ArenaLayout::new();
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
    }

    /// Clears the arena, and keeps the results of its tokens from now on, for [`Model::forward_known`]. Once there were more
    /// than `most` tokens, or if the model saves memory by recomputation, none are kept.
    pub fn keep_results(&mut self, model: &Model, most: usize) {
        self.clear();
        self.keeps = !model.recomputes;
        if self.keeps {
            let new = || KeptPasses::new(&self.gpu, model.config(), most);
            self.kept.get_or_insert_with(new);
        }
    }

    /// Clears the arena, and keeps no results from now on. Their memory is kept for the next time.
    pub fn keep_nothing(&mut self) {
        self.clear();
        self.keeps = false;
    }

    /// Returns the results of the tokens of a packed tree, if they are kept.
    pub fn kept(&self, tree: &PackedTree) -> Option<KeptResults> {
        let kept = self.kept.as_ref().filter(|_| self.keeps)?;
        Some(kept.of(&self.layout.find(tree)?))
    }

    /// Returns the number of tokens that the arena can grow to.
    pub fn most_rows(&self) -> usize {
        self.most_rows
    }

    /// Returns the number of rows in use, including those kept free for replies.
    pub fn rows(&self) -> usize {
        self.layout.rows()
    }

    /// Returns the number of tokens computed since the arena was created.
    pub fn computed(&self) -> u64 {
        self.computed
    }

    /// Returns the final hidden states, one row per arena row: (S, C).
    pub fn hidden(&self) -> &Tensor {
        &self.hidden
    }

    /// Returns the arena row of a token.
    pub fn row(&self, node: TokenNode) -> u32 {
        self.layout.row(node)
    }

    /// Returns the arena rows of a token's path, from the first token to this one.
    pub fn path(&self, node: TokenNode) -> Vec<u32> {
        let ranges = self.layout.ranges(node);
        ranges
            .into_iter()
            .flat_map(|(start, end)| start..end)
            .collect()
    }

    /// Adds sequences and returns the node of each one's last token. Only new tokens are computed.
    ///
    /// # Errors
    /// The arena cannot grow enough. It is then cleared.
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

    /// Adds tokens below given nodes and returns the node of each last token. After each new last token `spare` rows are kept
    /// free, so that a reply that is sampled token by token beside others stays in one range.
    pub(crate) fn extend(
        &mut self,
        model: &Model,
        adapter: Option<&Adapter>,
        additions: &[(TokenNode, &[u32])],
        spare: u32,
    ) -> Result<Vec<TokenNode>, ModelError> {
        let first_new = self.layout.nodes();
        let layout = &mut self.layout;
        let place = |&(start, ids): &(TokenNode, &[u32])| layout.insert(start, ids, spare);
        let ends = additions.iter().map(place).collect();
        if let Err(error) = self.grow() {
            self.clear();
            return Err(error);
        }
        let new: Vec<TokenNode> = (first_new..self.layout.nodes())
            .map(|node| TokenNode(node as u32))
            .collect();
        // Parents come before their children, so a chunk attends to itself and earlier chunks only.
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
        let seen: Vec<Vec<(u32, u32)>> =
            nodes.iter().map(|&node| self.layout.ranges(node)).collect();
        let visible = Visibility::ranges(&self.gpu, &seen);
        let first = nodes[0].index();
        if let Some(kept) = self.kept.as_mut().filter(|_| self.keeps) {
            self.keeps = kept.begin(first..first + nodes.len());
        }
        let results = |layer: usize| match &self.kept {
            Some(kept) if self.keeps => Results::Kept(kept, layer),
            _ => Results::Computed,
        };
        let heads = [model.config().heads, model.config().kv_heads];
        let hidden = model.run(&ids, adapter, results, &visible, |layer, qkv| {
            let [keys, values] = [&self.keys[layer], &self.values[layer]];
            let q = qkv.store(&positions, &model.rotations, heads, &rows, [keys, values]);
            [q, keys.clone(), values.clone()]
        });
        self.hidden.write_rows(&rows, &hidden);
        self.computed += nodes.len() as u64;
    }

    /// Grows the tensors to the rows in use.
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
            // The old table is too small for all later ones.
            self.gpu.drop_unused();
        }
        Ok(())
    }
}
