//! Scaled dot-product attention with grouped heads, over the keys that a [`Visibility`] names (Dao et al. 2022 for the
//! running softmax and for what is kept).
//!
//! p_ij = softmax over the visible j of (q_i · k_j / √D), y_i = Σ_j p_ij v_j
//! With s_ij = p_ij (dy_i · v_j - dy_i · y_i): dq_i = Σ_j s_ij k_j / √D, dk_j = Σ_i s_ij q_i / √D, dv_j = Σ_i p_ij dy_i.
//! Only y and one number a row are kept; the p are computed again, once by query and once by key, so no two threads
//! add to one number.

use std::sync::Arc;

use super::visibility::{KeyWalk, QueryWalk, Visibility};
use crate::gpu::{Binding, Groups, Kernel, Storage};
use crate::{Gpu, Tensor};

const SUM_ROWS: Kernel = Kernel::new("attention", "sum_rows");
const SUM_ITEMS: Kernel = Kernel::new("attention", "sum_items");

/// The kernels for the walks. They give the same numbers up to rounding.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Variant {
    /// For a processor: eight threads in step hand rows to each other.
    Lanes,
    /// For a GPU, and right on any adapter: the threads of a group read the same row.
    Blocks,
}

impl Variant {
    /// Must not depend on the number of queries: a rollout and its update have to see the same bits.
    fn of(gpu: &Gpu, head_size: usize) -> Variant {
        // lavapipe takes minutes to compile `Lanes` for heads of 128.
        const WIDEST_FOR_LANES: usize = 96;
        #[cfg(test)]
        if let Some(forced) = tests::FORCED.get() {
            return forced;
        }
        match gpu.is_software() && gpu.caps().subgroup.0 >= 8 && head_size <= WIDEST_FOR_LANES {
            true => Variant::Lanes,
            false => Variant::Blocks,
        }
    }

    fn kernel(self, entry: &'static str) -> Kernel {
        match self {
            Variant::Lanes => Kernel::new("attention_lanes", entry),
            Variant::Blocks => Kernel::new("attention", entry),
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

/// The sizes of one attention.
#[derive(Clone, Copy)]
struct Sizes {
    variant: Variant,
    queries: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
}

/// The largest head whose rows the kernels hold.
const MAX_HEAD_SIZE: usize = 256;

impl Tensor {
    /// self (Tq, heads · D), keys and values (S, kv_heads · D) -> (Tq, heads · D): query heads h with the same
    /// h / (heads / kv_heads) share a key head; scores are scaled by 1/√D. Gradients for all three if the visibility is
    /// a tree.
    ///
    /// # Panics
    /// If the shapes do not fit, D is not a multiple of 4 up to 256, the visibility is for another number of queries
    /// or more keys, or something is tracked and the visibility is not a tree.
    #[track_caller]
    pub fn attention(
        &self,
        keys: &Tensor,
        values: &Tensor,
        visible: &Visibility,
        heads: usize,
        kv_heads: usize,
    ) -> Tensor {
        let sizes = check_sizes(self, keys, values, visible, heads, kv_heads);
        let gpu = self.gpu();
        let y = Tensor::empty(gpu, self.shape());
        let log_sums = Tensor::empty(gpu, &[sizes.queries, heads]);
        let inputs = [self, keys, values];
        let wanted = inputs.map(Tensor::is_tracked);
        let [q, k, v] = inputs.map(Tensor::detach);
        if sizes.queries > 0 {
            let walk = sizes.by_query(visible);
            sizes.launch_by_query("forward", &walk, [&q, &k, &v], [&y, &log_sums]);
        }
        let (kept_y, visible) = (y.clone(), visible.clone());
        y.recorded("attention", &inputs, move |dy| {
            let row_sums = sizes.row_sums(&kept_y, &log_sums, dy);
            let dq = wanted[0].then(|| {
                let dq = Tensor::empty(q.gpu(), q.shape());
                let walk = sizes.by_query(&visible);
                let others = [dy, &row_sums, &dq];
                sizes.launch_by_query("queries_backward", &walk, [&q, &k, &v], others);
                dq
            });
            let [dk, dv] = if wanted[1] || wanted[2] {
                let walk = visible.by_key(sizes.keys_together());
                sizes
                    .key_gradients(&walk, [&q, &k, &v, dy, &row_sums])
                    .map(Some)
            } else {
                [None, None]
            };
            vec![dq, dk.filter(|_| wanted[1]), dv.filter(|_| wanted[2])]
        })
    }
}

#[track_caller]
fn check_sizes(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    visible: &Visibility,
    heads: usize,
    kv_heads: usize,
) -> Sizes {
    let head_size = q.cols() / heads.max(1);
    let grouped = kv_heads > 0 && heads > 0 && heads.is_multiple_of(kv_heads);
    assert!(
        grouped
            && q.cols() == heads * head_size
            && k.cols() == kv_heads * head_size
            && k.shape() == v.shape(),
        "attention: queries {:?}, keys {:?} and values {:?} do not fit {heads} heads on {kv_heads} key heads",
        q.shape(),
        k.shape(),
        v.shape()
    );
    assert!(
        head_size.is_multiple_of(4) && head_size > 0 && head_size <= MAX_HEAD_SIZE,
        "attention: a head of {head_size} channels, wanted a multiple of 4 up to {MAX_HEAD_SIZE}; pad the heads with zeros"
    );
    assert!(
        visible.queries() == q.rows() && visible.keys() <= k.rows(),
        "attention: {} queries and {} keys, the visibility is for {} and at least {}",
        q.rows(),
        k.rows(),
        visible.queries(),
        visible.keys()
    );
    let tracked = q.is_tracked() || k.is_tracked() || v.is_tracked();
    assert!(
        !tracked || (visible.is_tree() && k.rows() == q.rows()),
        "attention: a gradient is wanted, and there is none over ranges of an arena; use Visibility::tree, or detach the inputs"
    );
    Sizes {
        variant: Variant::of(q.gpu(), head_size),
        queries: q.rows(),
        heads,
        kv_heads,
        head_size,
    }
}

impl Sizes {
    /// Query heads that share a key head.
    fn sharing(self) -> usize {
        self.heads / self.kv_heads
    }

    /// Queries that walk together. On a GPU the heads that share a key head, which always see the same keys, fill up a
    /// subgroup first.
    fn queries_together(self) -> usize {
        match self.variant {
            Variant::Lanes => 8,
            Variant::Blocks => (32 / self.sharing()).clamp(1, 16),
        }
    }

    /// Keys that walk together.
    fn keys_together(self) -> usize {
        match self.variant {
            Variant::Lanes => 8,
            Variant::Blocks => 32,
        }
    }

    fn by_query(self, visible: &Visibility) -> QueryWalk {
        visible.by_query(self.queries_together(), self.variant == Variant::Lanes)
    }

    fn launch_by_query<const N: usize>(
        self,
        entry: &'static str,
        walk: &QueryWalk,
        inputs: [&Tensor; 3],
        others: [&Tensor; N],
    ) {
        let mut bindings = Vec::from(inputs.map(Tensor::binding));
        bindings.push(walk.words.binding());
        bindings.extend(others.map(Tensor::binding));
        let (heads_of_group, block) = match self.variant {
            Variant::Lanes => (1, None),
            Variant::Blocks => (self.sharing(), Some(self.queries_together())),
        };
        let groups = walk.blocks * self.heads / heads_of_group;
        self.variant.kernel(entry).launch(
            inputs[0].gpu(),
            &self.constants(block),
            &bindings.iter().collect::<Vec<_>>(),
            &self.params(groups, 0),
            Groups::count(groups),
        );
    }

    /// `block`: how many queries or keys walk together, where the kernel can be told.
    fn constants(self, block: Option<usize>) -> Vec<(&'static str, u32)> {
        let head = [
            ("HEAD_SIZE", self.head_size as u32),
            ("SHARING", self.sharing() as u32),
        ];
        let block = block.map(|block| ("BLOCK", block as u32));
        head.into_iter().chain(block).collect()
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

    /// Of each row and head: the log sum and dy · y.
    fn row_sums(self, y: &Tensor, log_sums: &Tensor, dy: &Tensor) -> Tensor {
        let row_sums = Tensor::empty(y.gpu(), &[self.queries, self.heads, 2]);
        SUM_ROWS.launch(
            y.gpu(),
            &self.constants(None),
            &[
                &y.binding(),
                &log_sums.binding(),
                &dy.binding(),
                &row_sums.binding(),
            ],
            &self.params(0, 0),
            Groups::of(self.queries * self.heads, 64),
        );
        row_sums
    }

    fn key_gradients(self, walk: &KeyWalk, inputs: [&Tensor; 5]) -> [Tensor; 2] {
        let (gpu, cols) = (inputs[1].gpu(), inputs[1].cols());
        let block = self.keys_together();
        let cut = walk.items > walk.blocks;
        let sums = Pair::new(gpu, self.queries, cols);
        let partial = if cut {
            Pair::new(gpu, walk.items * block, cols)
        } else {
            sums.clone()
        };
        let groups = walk.items * self.kv_heads;
        let [q, k, v, dy, row_sums] = inputs.map(Tensor::binding);
        let told = (self.variant == Variant::Blocks).then_some(block);
        self.variant.kernel("keys_backward").launch(
            gpu,
            &self.constants(told),
            &[
                &q,
                &k,
                &v,
                &walk.words.binding(),
                &dy,
                &row_sums,
                &partial.binding(),
            ],
            &self.params(groups, partial.second_at()),
            Groups::count(groups),
        );
        if cut {
            SUM_ITEMS.launch(
                gpu,
                &self.constants(Some(block)),
                &[&partial.binding(), &walk.starts.binding(), &sums.binding()],
                &self.params(sums.second_at(), partial.second_at()),
                Groups::of(self.queries * cols / 4, 64),
            );
        }
        sums.tensors()
    }
}

/// Two tensors of one shape in one buffer: a kernel may bind only so many.
#[derive(Clone)]
struct Pair {
    storage: Arc<Storage>,
    shape: [usize; 2],
}

impl Pair {
    fn new(gpu: &Gpu, rows: usize, cols: usize) -> Pair {
        let shape = [rows, cols];
        Pair {
            storage: gpu.alloc(2 * Pair::bytes(shape)),
            shape,
        }
    }

    /// Of one of them, with what keeps the second aligned.
    fn bytes([rows, cols]: [usize; 2]) -> u64 {
        (4 * rows * cols).next_multiple_of(256) as u64
    }

    /// Where the second begins, in parts of 16 bytes.
    fn second_at(&self) -> usize {
        Pair::bytes(self.shape) as usize / 16
    }

    fn binding(&self) -> Binding {
        Binding::new(self.storage.clone(), 0, 2 * Pair::bytes(self.shape))
    }

    fn tensors(self) -> [Tensor; 2] {
        let second = Pair::bytes(self.shape);
        [0, second].map(|offset| Tensor::view(self.storage.clone(), offset, &self.shape))
    }
}

#[cfg(test)]
mod tests;
