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
    /// They were kept as those of a block, by a pass over the same tokens. The last is the block's output.
    Known(&'a KeptResults, usize, &'a Tensor),
}

/// The number of results of a block: seven linear layers, in the order of [`Linear::BLOCK`] (`o` and `down` with the residual),
/// and the two of [`Tensor::write_attention`].
const RESULTS: usize = 9;
const ATTENTION: [usize; 2] = [7, 8];

/// Which of a block's two buffers has each result. No kernel reads one of them and writes it.
const BUFFER: [usize; RESULTS] = [0, 0, 0, 1, 1, 1, 0, 0, 0];

/// Buffers grow by multiples of this many numbers.
const UNIT: usize = 64 * ALIGNMENT;

/// The kept results of several passes.
#[derive(Debug)]
pub(crate) struct KeptPasses {
    gpu: Gpu,
    /// of each result
    columns: [usize; RESULTS],
    blocks: Vec<[Tensor; 2]>,
    /// numbers that each buffer may have
    most: [usize; 2],
    passes: Vec<Pass>,
}

/// The results of one pass lie one after the other in the same place of all blocks' buffers.
#[derive(Debug)]
struct Pass {
    nodes: Range<usize>,
    place: [Range<usize>; 2],
}

impl KeptPasses {
    /// Buffers for the results of up to `most` tokens.
    pub(crate) fn new(gpu: &Gpu, config: &ModelConfig, most: usize) -> KeptPasses {
        let columns = std::array::from_fn(|result| match Linear::BLOCK.get(result) {
            Some(linear) => config.linear_shape(*linear).0,
            None if result == ATTENTION[0] => config.heads * config.head_size,
            None => config.heads,
        });
        let bindable = (gpu.caps().max_binding / 4) as usize / UNIT * UNIT;
        let empty = |_| [(); 2].map(|()| Tensor::zeros(gpu, &[0]));
        KeptPasses {
            gpu: gpu.clone(),
            columns,
            blocks: (0..config.layers).map(empty).collect(),
            most: [0, 1].map(|buffer| {
                let of_token: usize = in_buffer(buffer).map(|result| columns[result]).sum();
                // A unit more, since the results of a pass are aligned.
                ((most * of_token).next_multiple_of(UNIT) + UNIT).min(bindable)
            }),
            passes: Vec::new(),
        }
    }

    /// Forgets all passes.
    pub(crate) fn clear(&mut self) {
        self.passes.clear();
    }

    /// Begins a pass over these nodes. If there is no room for it, the buffers are freed and there never is any again.
    pub(crate) fn begin(&mut self, nodes: Range<usize>) -> bool {
        let place = [0, 1].map(|buffer| {
            let start = self.passes.last().map_or(0, |pass| pass.place[buffer].end);
            let sizes = in_buffer(buffer).map(|result| self.room(result, nodes.len()));
            start..start + sizes.sum::<usize>()
        });
        let wanted = [0, 1].map(|buffer| place[buffer].end.next_multiple_of(UNIT));
        if wanted
            .iter()
            .zip(self.most)
            .any(|(wanted, most)| *wanted > most)
        {
            self.most = [0; 2];
            for buffer in self.blocks.iter_mut().flatten() {
                *buffer = Tensor::zeros(&self.gpu, &[0]);
            }
            return false;
        }
        for (buffer, wanted) in wanted.into_iter().enumerate() {
            let have = self.blocks[0][buffer].len();
            if wanted > have {
                self.enlarge(buffer, wanted.max((2 * have).min(self.most[buffer])));
            }
        }
        self.passes.push(Pass { nodes, place });
        true
    }

    fn enlarge(&mut self, buffer: usize, size: usize) {
        let rows = |tensor: &Tensor| tensor.reshape(&[tensor.len() / UNIT, UNIT]);
        let have = self.blocks[0][buffer].len() / UNIT;
        let before = Indices::new(&self.gpu, &(0..have as u32).collect::<Vec<u32>>());
        for block in &mut self.blocks {
            let larger = Tensor::zeros(&self.gpu, &[size]);
            rows(&larger).write_rows(&before, &rows(&block[buffer]));
            block[buffer] = larger;
            // The old buffer is too small for all later ones.
            self.gpu.drop_unused();
        }
    }

    /// Returns the numbers that a result for so many tokens takes.
    fn room(&self, result: usize, tokens: usize) -> usize {
        (tokens * self.columns[result]).next_multiple_of(ALIGNMENT)
    }

    /// Returns the start of a result of a pass in its buffer.
    fn start(&self, pass: &Pass, result: usize) -> usize {
        let buffer = BUFFER[result];
        let before = in_buffer(buffer).take_while(|other| *other < result);
        let before = before.map(|other| self.room(other, pass.nodes.len()));
        pass.place[buffer].start + before.sum::<usize>()
    }

    /// Returns the part of a block's buffer for consecutive results of the present pass.
    fn window(&self, block: usize, results: &[usize]) -> Tensor {
        let pass = self.passes.last().expect("a pass that has begun");
        let (first, last) = (results[0], results[results.len() - 1]);
        let end = self.start(pass, last) + pass.nodes.len() * self.columns[last];
        self.blocks[block][BUFFER[first]].window(self.start(pass, first)..end)
    }

    /// Returns the results of these nodes, all of which must have been in a pass.
    pub(crate) fn of(&self, nodes: &[TokenNode]) -> KeptResults {
        let start = |node: &TokenNode, result: usize| {
            let before = |pass: &Pass| pass.nodes.end <= node.index();
            let pass = &self.passes[self.passes.partition_point(before)];
            let row = node.index() - pass.nodes.start;
            (self.start(pass, result) + row * self.columns[result]) as u32
        };
        KeptResults {
            columns: self.columns,
            blocks: self.blocks.clone(),
            starts: std::array::from_fn(|result| {
                let starts: Vec<u32> = nodes.iter().map(|node| start(node, result)).collect();
                Indices::new(&self.gpu, &starts)
            }),
        }
    }
}

/// The results in a buffer, in their order there.
fn in_buffer(buffer: usize) -> impl Iterator<Item = usize> {
    (0..RESULTS).filter(move |result| BUFFER[*result] == buffer)
}

/// The results that a [`KvArena`](crate::KvArena) keeps of the tokens of a packed tree.
#[derive(Clone, Debug)]
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
        let buffer = &self.blocks[block][BUFFER[result]];
        buffer.gather_slices(&self.starts[result], self.columns[result])
    }
}

impl Results<'_> {
    /// Layers of one input.
    pub(crate) fn linears<'a, const N: usize>(
        &self,
        x: &Tensor,
        linears: [Linear; N],
        layer: impl Fn(Linear) -> LinearLayer<'a>,
    ) -> [Tensor; N] {
        let layers = linears.map(layer);
        let results = linears.map(|linear| linear as usize);
        match self {
            Results::Computed => x.linears(layers),
            Results::Kept(kept, block) => x.linears_into(layers, &kept.window(*block, &results)),
            Results::Known(known, block, output) => {
                let known = linears.map(|linear| match linear {
                    Linear::Down => (*output).clone(),
                    _ => known.get(*block, linear as usize),
                });
                x.known_linears(layers, known)
            }
        }
    }

    /// residual + layer(x)
    pub(crate) fn add_linear<'a>(
        &self,
        residual: &Tensor,
        x: &Tensor,
        linear: Linear,
        layer: impl Fn(Linear) -> LinearLayer<'a>,
    ) -> Tensor {
        let residual = Some(residual);
        let layer = |linear| LinearLayer {
            residual,
            ..layer(linear)
        };
        let [y] = self.linears(x, [linear], layer);
        y
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
            Results::Known(known, block, _) => {
                let results = ATTENTION.map(|result| known.get(*block, result));
                q.known_attention(k, v, visible, heads, kv_heads, results)
            }
        }
    }
}
