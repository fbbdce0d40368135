//! The launches of the two variants of the attention kernels.

use std::sync::Arc;

use super::visibility::{KeyWalk, QueryWalk, Visibility};
use crate::gpu::{Bind, Binding, Groups, Kernel, Storage};
use crate::{Gpu, Tensor};

const SUM_ROWS: Kernel = Kernel::new("attention", "sum_rows");
const SUM_ITEMS: Kernel = Kernel::new("attention", "sum_items");

/// Operations per channel of a pair of query and key: up to four products and sums, and a share of the softmax.
const WORK: usize = 16;

/// lavapipe takes minutes to compile [`AttentionKernels::Lanes`] for heads of 128.
pub(crate) const WIDEST_FOR_LANES: u32 = 96;

/// The variants of the kernels. Their results are equal up to rounding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum AttentionKernels {
    /// For a processor: eight threads exchange rows.
    Lanes,
    /// For a GPU: the threads of a group read the same row.
    Blocks,
}

impl AttentionKernels {
    /// Must not depend on the number of queries: a rollout and its update must compute the same bits.
    pub(super) fn for_device(gpu: &Gpu, head_size: usize) -> AttentionKernels {
        #[cfg(test)]
        if let Some(forced) = super::tests::FORCED.get() {
            return forced;
        }
        match gpu.is_software()
            && gpu.caps().subgroup.0 >= 8
            && head_size <= WIDEST_FOR_LANES as usize
        {
            true => AttentionKernels::Lanes,
            false => AttentionKernels::Blocks,
        }
    }

    fn kernel(self, entry: &'static str) -> Kernel {
        match self {
            AttentionKernels::Lanes => Kernel::new("attention_lanes", entry),
            AttentionKernels::Blocks => Kernel::new("attention", entry),
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    count: u32,
    heads: u32,
    kv_heads: u32,
    groups: u32,
    scale: f32,
    values_at: u32,
}

/// Queries of a block on a GPU, for this number of query heads per key head.
pub(crate) fn queries_of_a_block(sharing: usize) -> usize {
    (32 / sharing).clamp(1, 16)
}

/// The sizes of one attention.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) kernels: AttentionKernels,
    pub(super) queries: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_size: usize,
}

impl Sizes {
    /// Query heads that share a key head.
    fn sharing(self) -> usize {
        self.heads / self.kv_heads
    }

    /// Queries of a block. On a GPU the query heads of one key head, which always see the same keys, share a subgroup.
    fn queries_together(self) -> usize {
        match self.kernels {
            AttentionKernels::Lanes => 8,
            AttentionKernels::Blocks => queries_of_a_block(self.sharing()),
        }
    }

    /// Query heads that a workgroup computes.
    fn heads_together(self) -> usize {
        match self.kernels {
            AttentionKernels::Lanes => 1,
            AttentionKernels::Blocks => self.sharing(),
        }
    }

    /// Keys of a block.
    pub(super) fn keys_together(self) -> usize {
        match self.kernels {
            AttentionKernels::Lanes => 8,
            AttentionKernels::Blocks => 32,
        }
    }

    pub(super) fn by_query(self, visible: &Visibility) -> QueryWalk {
        visible.by_query(
            self.queries_together(),
            self.kernels == AttentionKernels::Lanes,
        )
    }

    pub(super) fn launch_by_query<const N: usize>(
        self,
        entry: &'static str,
        walk: &QueryWalk,
        inputs: [&Tensor; 3],
        others: [&Tensor; N],
    ) {
        let mut buffers: Vec<&dyn Bind> = inputs.map(|x| x as &dyn Bind).into();
        buffers.push(&walk.words);
        buffers.extend(others.map(|x| x as &dyn Bind));
        let groups = walk.blocks * self.heads / self.heads_together();
        let work = walk.met * self.queries_together() * self.heads * self.head_size * WORK;
        self.kernels.kernel(entry).launch(
            &self.constants(self.queries_together()),
            &buffers,
            &self.params(groups, 0),
            Groups::count(groups).work(work),
        );
    }

    /// `block`: queries or keys of a block.
    fn constants(self, block: usize) -> [(&'static str, u32); 3] {
        [
            ("HEAD_SIZE", self.head_size as u32),
            ("SHARING", self.sharing() as u32),
            ("BLOCK", block as u32),
        ]
    }

    fn params(self, groups: usize, values_at: usize) -> Params {
        Params {
            count: self.queries as u32,
            heads: self.heads as u32,
            kv_heads: self.kv_heads as u32,
            groups: groups as u32,
            scale: 1.0 / (self.head_size as f32).sqrt(),
            values_at: values_at as u32,
        }
    }

    /// The log sum and dy · y of each row and head.
    pub(super) fn row_sums(self, y: &Tensor, log_sums: &Tensor, dy: &Tensor) -> Tensor {
        let row_sums = Tensor::empty(y.gpu(), &[self.queries, self.heads, 2]);
        SUM_ROWS.launch(
            &self.constants(self.queries_together()),
            &[y, log_sums, dy, &row_sums],
            &self.params(0, 0),
            Groups::of(self.queries * self.heads, 64),
        );
        row_sums
    }

    pub(super) fn key_gradients(self, walk: &KeyWalk, inputs: [&Tensor; 5]) -> [Tensor; 2] {
        let (gpu, cols) = (inputs[1].gpu(), inputs[1].cols());
        let block = self.keys_together();
        let split = walk.items > walk.blocks;
        let sums = TensorPair::new(gpu, self.queries, cols);
        let partial = if split {
            TensorPair::new(gpu, walk.items * block, cols)
        } else {
            sums.clone()
        };
        let groups = walk.items * self.kv_heads;
        let work = walk.met * block * self.heads * self.head_size * WORK;
        let [q, k, v, dy, row_sums] = inputs;
        self.kernels.kernel("keys_backward").launch(
            &self.constants(block),
            &[q, k, v, &walk.words, dy, row_sums, &partial],
            &self.params(groups, partial.second_at()),
            Groups::count(groups).work(work),
        );
        if split {
            SUM_ITEMS.launch(
                &self.constants(block),
                &[&partial, &walk.starts, &sums],
                &self.params(sums.second_at(), partial.second_at()),
                Groups::of(self.queries * cols / 4, 64),
            );
        }
        sums.tensors()
    }
}

/// Two tensors of one shape in one buffer, since a kernel can bind only seven.
#[derive(Clone)]
struct TensorPair {
    storage: Arc<Storage>,
    shape: [usize; 2],
}

impl TensorPair {
    fn new(gpu: &Gpu, rows: usize, cols: usize) -> TensorPair {
        let shape = [rows, cols];
        TensorPair {
            storage: gpu.alloc(2 * TensorPair::bytes(shape)),
            shape,
        }
    }

    /// Bytes of one tensor, padded so that the second is aligned.
    fn bytes([rows, cols]: [usize; 2]) -> u64 {
        (4 * rows * cols).next_multiple_of(256) as u64
    }

    /// The start of the second tensor, in units of 16 bytes.
    fn second_at(&self) -> usize {
        TensorPair::bytes(self.shape) as usize / 16
    }

    fn tensors(self) -> [Tensor; 2] {
        let second = TensorPair::bytes(self.shape);
        [0, second].map(|offset| Tensor::view(self.storage.clone(), offset, &self.shape))
    }
}

impl Bind for TensorPair {
    fn binding(&self) -> Binding {
        Binding::new(self.storage.clone(), 0, 2 * TensorPair::bytes(self.shape))
    }
}
