//! The results of a block's linear layers and of its attention. Everything else in a block takes little time.
//!
//! A rollout can keep them for the update after it: the bits of a token's results do not depend on the other tokens, so the
//! update needs no forward pass.

use std::ops::Range;

use lapwing_tensor::{ALIGNMENT, Gpu, Indices, LinearLayer, Tensor, Visibility};

use super::linear_layers::Linear;
use super::trie::TokenNode;
use crate::ModelConfig;

/// How a block gets its results.
pub(crate) enum Results<'a> {
    /// It computes them.
    Computed,
    /// It computes them, and they are kept as those of a block.
    Kept(&'a KeptPasses, usize),
    /// They were kept as those of a block, by a pass over the same tokens.
    Known(&'a KeptResults, usize),
}

/// The number of results of a block: seven linear layers, in the order of [`Linear::BLOCK`] (`o` and `down` with the residual),
/// and the two of [`Tensor::write_attention`].
const RESULTS: usize = 9;
const ATTENTION: [usize; 2] = [7, 8];

/// The results in each of a block's two buffers. No kernel reads and writes one of them at once.
const BUFFERS: [&[usize]; 2] = [
    &[
        Linear::Q as usize,
        Linear::K as usize,
        Linear::V as usize,
        ATTENTION[0],
        ATTENTION[1],
        Linear::Down as usize,
    ],
    &[
        Linear::O as usize,
        Linear::Gate as usize,
        Linear::Up as usize,
    ],
];

/// Buffers grow by multiples of this many numbers.
const UNIT: usize = 64 * ALIGNMENT;

/// The kept results of several passes.
pub(crate) struct KeptPasses {
    gpu: Gpu,
    /// of each result
    columns: [usize; RESULTS],
    blocks: Vec<[Tensor; 2]>,
    passes: Vec<Pass>,
}

/// The results of one pass lie one after the other in the same place of all blocks' buffers.
struct Pass {
    nodes: Range<usize>,
    place: [Range<usize>; 2],
}

impl KeptPasses {
    pub(crate) fn new(gpu: &Gpu, config: &ModelConfig) -> KeptPasses {
        let columns = |result| match Linear::BLOCK.get(result) {
            Some(linear) => config.linear_shape(*linear).0,
            None if result == ATTENTION[0] => config.heads * config.head_size,
            None => config.heads,
        };
        let empty = |_| [(); 2].map(|()| Tensor::zeros(gpu, &[0]));
        KeptPasses {
            gpu: gpu.clone(),
            columns: std::array::from_fn(columns),
            blocks: (0..config.layers).map(empty).collect(),
            passes: Vec::new(),
        }
    }

    /// Forgets all passes.
    pub(crate) fn clear(&mut self) {
        self.passes.clear();
    }

    /// Begins a pass over these nodes. Returns whether there is room for them.
    pub(crate) fn begin(&mut self, nodes: Range<usize>) -> bool {
        let size = |buffer: usize| BUFFERS[buffer].iter().map(|r| self.room(*r, nodes.len()));
        let place = [0, 1].map(|buffer| {
            let start = self.passes.last().map_or(0, |pass| pass.place[buffer].end);
            start..start + size(buffer).sum::<usize>()
        });
        let most = (self.gpu.caps().max_binding / 4) as usize;
        for buffer in [0, 1] {
            let have = self.blocks[0][buffer].len();
            let wanted = place[buffer].end.next_multiple_of(UNIT);
            if wanted > most {
                return false;
            }
            if wanted > have {
                self.enlarge(buffer, wanted.max(2 * have).min(most / UNIT * UNIT));
            }
        }
        self.passes.push(Pass { nodes, place });
        true
    }

    fn enlarge(&mut self, buffer: usize, size: usize) {
        for block in &mut self.blocks {
            let rows = |tensor: &Tensor| tensor.reshape(&[tensor.len() / UNIT, UNIT]);
            let larger = Tensor::zeros(&self.gpu, &[size]);
            let before = rows(&block[buffer]);
            let numbers: Vec<u32> = (0..before.rows() as u32).collect();
            rows(&larger).write_rows(&Indices::new(&self.gpu, &numbers), &before);
            block[buffer] = larger;
            // The old buffer is too small for all later ones.
            self.gpu.drop_unused();
        }
    }

    /// Returns the numbers that a result for so many tokens takes.
    fn room(&self, result: usize, tokens: usize) -> usize {
        (tokens * self.columns[result]).next_multiple_of(ALIGNMENT)
    }

    /// Returns the buffer of a result of a pass, and its place there.
    fn place(&self, pass: &Pass, result: usize) -> (usize, usize) {
        let buffer = usize::from(!BUFFERS[0].contains(&result));
        let before = BUFFERS[buffer].iter().take_while(|r| **r != result);
        let before: usize = before.map(|r| self.room(*r, pass.nodes.len())).sum();
        (buffer, pass.place[buffer].start + before)
    }

    /// Returns the part of a block's buffer for consecutive results of the present pass.
    fn window(&self, block: usize, results: &[usize]) -> Tensor {
        let pass = self.passes.last().expect("a pass that has begun");
        let (buffer, start) = self.place(pass, results[0]);
        let last = results[results.len() - 1];
        let end = self.place(pass, last).1 + pass.nodes.len() * self.columns[last];
        self.blocks[block][buffer].window(start..end)
    }

    /// Returns the results of these nodes, all of which must have been in a pass.
    pub(crate) fn of(&self, nodes: &[TokenNode]) -> KeptResults {
        let starts = |result: usize| {
            let start = |node: &TokenNode| {
                let at = self
                    .passes
                    .partition_point(|pass| pass.nodes.end <= node.index());
                let pass = &self.passes[at];
                let row = node.index() - pass.nodes.start;
                (self.place(pass, result).1 + row * self.columns[result]) as u32
            };
            let starts: Vec<u32> = nodes.iter().map(start).collect();
            Indices::new(&self.gpu, &starts)
        };
        KeptResults {
            columns: self.columns,
            blocks: self.blocks.clone(),
            starts: std::array::from_fn(starts),
        }
    }
}

/// The results that a [`KvArena`](crate::KvArena) keeps of the tokens of a packed tree.
#[derive(Clone)]
pub struct KeptResults {
    columns: [usize; RESULTS],
    blocks: Vec<[Tensor; 2]>,
    /// of each result and token, in the buffer of every block
    starts: [Indices; RESULTS],
}

impl KeptResults {
    /// Returns the output of a block.
    pub(crate) fn output(&self, block: usize) -> Tensor {
        self.get(block, Linear::Down as usize)
    }

    fn get(&self, block: usize, result: usize) -> Tensor {
        let buffer = usize::from(!BUFFERS[0].contains(&result));
        self.blocks[block][buffer].gather_slices(&self.starts[result], self.columns[result])
    }
}

impl Results<'_> {
    /// Several layers of one input.
    pub(crate) fn linears<'a, const N: usize>(
        &self,
        x: &Tensor,
        linears: [Linear; N],
        layer: impl Fn(Linear) -> LinearLayer<'a>,
    ) -> [Tensor; N] {
        let (layers, results) = (linears.map(layer), linears.map(|linear| linear as usize));
        match self {
            Results::Computed => x.linears(layers),
            Results::Kept(kept, block) => x.linears_into(layers, &kept.window(*block, &results)),
            Results::Known(known, block) => {
                x.known_linears(layers, results.map(|result| known.get(*block, result)))
            }
        }
    }

    /// residual + layer(x)
    pub(crate) fn add_linear(
        &self,
        residual: &Tensor,
        x: &Tensor,
        linear: Linear,
        layer: LinearLayer<'_>,
    ) -> Tensor {
        let LinearLayer { weight, bias, lora } = layer;
        match self {
            Results::Computed => x.linear(weight, bias, lora, Some(residual)),
            Results::Kept(kept, block) => {
                let into = kept.window(*block, &[linear as usize]);
                x.linear_into(layer, Some(residual), &into)
            }
            Results::Known(known, block) => {
                x.known_linear(layer, residual, known.get(*block, linear as usize))
            }
        }
    }

    /// silu(gate(x)) * up(x)
    pub(crate) fn gated<'a>(
        &self,
        x: &Tensor,
        layer: impl Fn(Linear) -> LinearLayer<'a>,
    ) -> Tensor {
        if let Results::Computed = self {
            return x.gated_linear(layer(Linear::Gate), layer(Linear::Up));
        }
        let [gate, up] = self.linears(x, [Linear::Gate, Linear::Up], layer);
        gate.swiglu(&up)
    }

    pub(crate) fn attention(
        &self,
        [q, k, v]: [&Tensor; 3],
        visible: &Visibility,
        [heads, kv_heads]: [usize; 2],
    ) -> Tensor {
        match self {
            Results::Computed => q.attention(k, v, visible, heads, kv_heads),
            Results::Kept(kept, block) => {
                let [y, log_sums] = ATTENTION.map(|result| kept.window(*block, &[result]));
                let y = y.reshape(q.shape());
                let log_sums = log_sums.reshape(&[q.rows(), heads]);
                q.write_attention(k, v, visible, heads, kv_heads, [&y, &log_sums]);
                y
            }
            Results::Known(known, block) => {
                let results = ATTENTION.map(|result| known.get(*block, result));
                q.known_attention(k, v, visible, heads, kv_heads, results)
            }
        }
    }
}
