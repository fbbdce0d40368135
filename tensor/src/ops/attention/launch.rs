//! The launches of the two variants of the attention kernels.

use super::Visibility;
use crate::gpu::{Bind, Groups, Kernel, params};
use crate::{Gpu, Tensor};

const LANES: &str = "attention_lanes";
const BLOCKS: &str = "attention";
const SUM_ROWS: Kernel = Kernel::new(BLOCKS, "sum_rows");
const SUM_ITEMS: Kernel = Kernel::new(BLOCKS, "sum_items");

/// Operations per channel of a pair of query and key: up to four products and sums, and a share of the softmax.
const WORK: usize = 16;

/// lavapipe takes minutes to compile `attention_lanes` for heads of 128.
pub(crate) const WIDEST_FOR_LANES: u32 = 96;

/// Whether the kernels are those for a processor, in which eight threads exchange rows. In those for a GPU the threads of a
/// group read the same row. The results are equal up to rounding.
/// Must not depend on the number of queries: a rollout and its update must compute the same bits.
fn uses_lanes(gpu: &Gpu, head_size: usize) -> bool {
    #[cfg(test)]
    if let Some(forced) = super::tests::FORCED.get() {
        return forced;
    }
    let exchanges = gpu.is_software() && gpu.caps().subgroup.0 >= 8;
    exchanges && head_size <= WIDEST_FOR_LANES as usize
}

/// Queries of a block on a GPU, for this number of query heads per key head.
pub(crate) fn queries_of_a_block(sharing: usize) -> usize {
    (32 / sharing).clamp(1, 16)
}

/// The sizes of one attention.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) queries: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    shader: &'static str,
    /// queries of a block
    queries_together: usize,
    /// keys of a block
    keys_together: usize,
    /// query heads that a workgroup computes
    heads_together: usize,
}

impl Sizes {
    pub(super) fn new(
        gpu: &Gpu,
        queries: usize,
        heads: usize,
        kv_heads: usize,
        head_size: usize,
    ) -> Sizes {
        let sharing = heads / kv_heads;
        let (shader, queries_together, keys_together, heads_together) =
            match uses_lanes(gpu, head_size) {
                true => (LANES, 8, 8, 1),
                // The query heads of one key head, which always see the same keys, share a subgroup.
                false => (BLOCKS, queries_of_a_block(sharing), 32, sharing),
            };
        Sizes {
            queries,
            heads,
            kv_heads,
            head_size,
            shader,
            queries_together,
            keys_together,
            heads_together,
        }
    }

    pub(super) fn launch_by_query<const N: usize>(
        self,
        entry: &'static str,
        visible: &Visibility,
        inputs: [&Tensor; 3],
        others: [&Tensor; N],
    ) {
        let (is_forward, sharing) = (entry == "forward", self.heads / self.kv_heads);
        let (mut together, mut heads_together) = (self.queries_together, self.heads_together);
        let mut constants = self.constants(self.queries_together).to_vec();
        if self.shader == LANES && is_forward {
            // With few queries, threads of one workgroup take the heads that see the same keys. No bit depends on it.
            let packed = self.queries.div_ceil((8 / sharing).max(1));
            if sharing <= 8 && packed <= self.queries.div_ceil(8) * sharing {
                (together, heads_together) = (8 / sharing, sharing);
            }
            constants.push(("HEADS", heads_together as u32));
        }
        let walk = visible.by_query(together, self.shader == LANES);
        let mut buffers: Vec<&dyn Bind> = inputs.map(|x| x as &dyn Bind).into();
        buffers.push(&walk.words);
        buffers.extend(others.map(|x| x as &dyn Bind));
        let groups = walk.blocks * self.heads / heads_together;
        let work = walk.met * together * self.heads * self.head_size * WORK;
        Kernel::new(self.shader, entry).launch(
            &constants,
            &buffers,
            &self.params(groups, 0),
            Groups::count(groups).work(work),
        );
    }

    /// `block`: queries or keys of a block.
    fn constants(self, block: usize) -> [(&'static str, u32); 3] {
        [
            ("HEAD_SIZE", self.head_size as u32),
            ("SHARING", (self.heads / self.kv_heads) as u32),
            ("BLOCK", block as u32),
        ]
    }

    fn params(self, groups: usize, values_at: usize) -> impl bytemuck::Pod {
        params! {
            count: u32 = self.queries,
            heads: u32 = self.heads,
            kv_heads: u32 = self.kv_heads,
            groups: u32 = groups,
            scale: f32 = 1.0 / (self.head_size as f32).sqrt(),
            values_at: u32 = values_at,
        }
    }

    /// The log sum and dy · y of each row and head.
    pub(super) fn row_sums(self, y: &Tensor, log_sums: &Tensor, dy: &Tensor) -> Tensor {
        let row_sums = Tensor::empty(y.gpu(), &[self.queries, self.heads, 2]);
        SUM_ROWS.launch(
            &self.constants(self.queries_together),
            &[y, log_sums, dy, &row_sums],
            &self.params(0, 0),
            Groups::of(self.queries * self.heads, 64),
        );
        row_sums
    }

    pub(super) fn key_gradients(self, visible: &Visibility, inputs: [&Tensor; 5]) -> [Tensor; 2] {
        let (gpu, cols) = (inputs[1].gpu(), inputs[1].cols());
        let block = self.keys_together;
        let walk = visible.by_key(block);
        let split = walk.items > walk.blocks;
        let sums = pair(gpu, self.queries * cols);
        let partial = match split {
            true => pair(gpu, walk.items * block * cols),
            false => sums.clone(),
        };
        // In units of four numbers.
        let second_at = |pair: &Tensor| pair.cols() / 4;
        let groups = walk.items * self.kv_heads;
        let work = walk.met * block * self.heads * self.head_size * WORK;
        let [q, k, v, dy, row_sums] = inputs;
        Kernel::new(self.shader, "keys_backward").launch(
            &self.constants(block),
            &[q, k, v, &walk.words, dy, row_sums, &partial],
            &self.params(groups, second_at(&partial)),
            Groups::count(groups).work(work),
        );
        if split {
            SUM_ITEMS.launch(
                &self.constants(block),
                &[&partial, &walk.starts, &sums],
                &self.params(second_at(&sums), second_at(&partial)),
                Groups::of(self.queries * cols / 4, 64),
            );
        }
        [0, sums.cols()].map(|first| {
            let sums = sums.window(first..first + self.queries * cols);
            sums.reshape(&[self.queries, cols])
        })
    }
}

/// Two tensors of `len` elements in one, since a kernel can bind only seven. The second starts with the second row.
fn pair(gpu: &Gpu, len: usize) -> Tensor {
    Tensor::empty(gpu, &[2, len.next_multiple_of(64)])
}
