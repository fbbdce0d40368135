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

const FORWARD: Kernel = Kernel::new("attention", "forward");
const SUM_ROWS: Kernel = Kernel::new("attention", "sum_rows");
const QUERIES_BACKWARD: Kernel = Kernel::new("attention", "queries_backward");
const KEYS_BACKWARD: Kernel = Kernel::new("attention", "keys_backward");
const SUM_ITEMS: Kernel = Kernel::new("attention", "sum_items");

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
            let walk = visible.by_query(sizes.block(gpu));
            launch_by_query(&FORWARD, sizes, &walk, [&q, &k, &v], [&y, &log_sums]);
        }
        let (kept_y, visible) = (y.clone(), visible.clone());
        y.recorded("attention", &inputs, move |dy| {
            let row_sums = sizes.row_sums(&kept_y, &log_sums, dy);
            let dq = wanted[0].then(|| {
                let dq = Tensor::empty(q.gpu(), q.shape());
                let walk = visible.by_query(sizes.block(q.gpu()));
                let others = [dy, &row_sums, &dq];
                launch_by_query(&QUERIES_BACKWARD, sizes, &walk, [&q, &k, &v], others);
                dq
            });
            let [dk, dv] = if wanted[1] || wanted[2] {
                let walk = visible.by_key(sizes.keys_block(q.gpu()));
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
        queries: q.rows(),
        heads,
        kv_heads,
        head_size,
    }
}

fn launch_by_query<const N: usize>(
    kernel: &Kernel,
    sizes: Sizes,
    walk: &QueryWalk,
    inputs: [&Tensor; 3],
    others: [&Tensor; N],
) {
    let gpu = inputs[0].gpu();
    let mut bindings = Vec::from(inputs.map(Tensor::binding));
    bindings.push(walk.words.binding());
    bindings.extend(others.map(Tensor::binding));
    let groups = walk.blocks * sizes.kv_heads;
    kernel.launch(
        gpu,
        &sizes.constants(sizes.block(gpu)),
        &bindings.iter().collect::<Vec<_>>(),
        &sizes.params(groups, 0),
        Groups::count(groups),
    );
}

impl Sizes {
    fn sharing(self) -> usize {
        self.heads / self.kv_heads
    }

    /// Queries that walk together; must not depend on their number. A processor has vectors of eight lanes. On a GPU
    /// the heads that share a key head fill up a subgroup of 32 first: they always see the same keys.
    fn block(self, gpu: &Gpu) -> usize {
        if gpu.is_software() {
            8
        } else {
            (32 / self.sharing()).clamp(1, 16)
        }
    }

    /// Keys that walk together.
    fn keys_block(self, gpu: &Gpu) -> usize {
        if gpu.is_software() { 8 } else { 32 }
    }

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

    /// Of each row and head: the log sum and dy · y.
    fn row_sums(self, y: &Tensor, log_sums: &Tensor, dy: &Tensor) -> Tensor {
        let row_sums = Tensor::empty(y.gpu(), &[self.queries, self.heads, 2]);
        SUM_ROWS.launch(
            y.gpu(),
            &self.constants(self.block(y.gpu())),
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
        let block = self.keys_block(gpu);
        let cut = walk.items > walk.blocks;
        let sums = Pair::new(gpu, self.queries, cols);
        let partial = if cut {
            Pair::new(gpu, walk.items * block, cols)
        } else {
            sums.clone()
        };
        let groups = walk.items * self.kv_heads;
        let [q, k, v, dy, row_sums] = inputs.map(Tensor::binding);
        KEYS_BACKWARD.launch(
            gpu,
            &self.constants(block),
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
                &self.constants(block),
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
