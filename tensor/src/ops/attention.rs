//! Scaled dot-product attention with grouped heads, over the keys that a [`Visibility`] lists. The backward
//! pass is that of Dao et al. 2022. The softmax is theirs on processors; on GPUs a first pass finds the highest scores.
//!
//! p_ij = softmax over the visible j of (q_i · k_j / √D), y_i = Σ_j p_ij v_j
//! With s_ij = p_ij (dy_i · v_j - dy_i · y_i): dq_i = Σ_j s_ij k_j / √D, dk_j = Σ_i s_ij q_i / √D, dv_j = Σ_i p_ij dy_i.
//! Only y and one number per row are kept. The backward pass computes p again, once by query and once by key, so no two
//! threads add to one number.

mod launch;
mod visibility;

use crate::Tensor;
use launch::Sizes;
pub(crate) use launch::{fits_lanes, rows_of_a_thread, tile_constants};
pub use visibility::Visibility;

/// Channels of the largest head that the kernels support.
const MAX_HEAD_SIZE: usize = 256;

impl Tensor {
    /// self (Tq, heads · D), keys and values (S, kv_heads · D) -> (Tq, heads · D). The query head h uses the key head
    /// h / (heads / kv_heads). Scores are scaled by 1/√D. Gradients for all three if the visibility is a tree.
    ///
    /// # Panics
    /// If the shapes do not fit, D is not a multiple of 4 up to 256, the visibility has another number of queries or more
    /// keys, or an input is tracked and the visibility is not a tree.
    #[track_caller]
    pub fn attention(
        &self,
        keys: &Tensor,
        values: &Tensor,
        visible: &Visibility,
        heads: usize,
        kv_heads: usize,
    ) -> Tensor {
        let y = self.empty_like();
        let log_sums = Tensor::empty(self.gpu(), &[self.rows(), heads]);
        self.write_attention(keys, values, visible, heads, kv_heads, [&y, &log_sums]);
        self.known_attention(keys, values, visible, heads, kv_heads, [y, log_sums])
    }

    /// Writes the values of [`Tensor::attention`] into the first tensor, and into the second (Tq, heads) the numbers with which
    /// [`Tensor::known_attention`] computes the gradients: the logarithm of each query head's sum of exponentials.
    ///
    /// # Panics
    /// As [`Tensor::attention`], or if a tensor has another shape.
    #[track_caller]
    pub fn write_attention(
        &self,
        keys: &Tensor,
        values: &Tensor,
        visible: &Visibility,
        heads: usize,
        kv_heads: usize,
        [y, log_sums]: [&Tensor; 2],
    ) {
        let sizes = check_sizes(self, keys, values, visible, heads, kv_heads);
        check_results(self, heads, [y, log_sums]);
        let inputs = [self, keys, values].map(Tensor::detach);
        if sizes.queries > 0 {
            let outputs = [y, log_sums];
            sizes.launch_by_query("forward", visible, inputs.each_ref(), outputs);
        }
    }

    /// Returns the first of these tensors, with the gradients of [`Tensor::attention`], if an earlier pass with equal inputs
    /// [wrote](Tensor::write_attention) them.
    ///
    /// # Panics
    /// As [`Tensor::attention`], or if a tensor has another shape.
    #[track_caller]
    pub fn known_attention(
        &self,
        keys: &Tensor,
        values: &Tensor,
        visible: &Visibility,
        heads: usize,
        kv_heads: usize,
        [y, log_sums]: [Tensor; 2],
    ) -> Tensor {
        let sizes = check_sizes(self, keys, values, visible, heads, kv_heads);
        check_results(self, heads, [&y, &log_sums]);
        let inputs = [self, keys, values];
        let [q, k, v] = inputs.map(Tensor::detach);
        let (kept_y, visible) = (y.clone(), visible.clone());
        y.recorded("attention", inputs, move |dy, [to_q, to_k, to_v]| {
            let row_sums = sizes.row_sums(&kept_y, &log_sums, dy);
            let dq = to_q.then(|| {
                let dq = q.empty_like();
                let others = [dy, &row_sums, &dq];
                sizes.launch_by_query("queries_backward", &visible, [&q, &k, &v], others);
                dq
            });
            let [dk, dv] = if to_k || to_v {
                let inputs = [&q, &k, &v, dy, &row_sums];
                sizes.key_gradients(&visible, inputs).map(Some)
            } else {
                [None, None]
            };
            [dq, dk.filter(|_| to_k), dv.filter(|_| to_v)]
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
        "attention: an input is tracked, and Visibility::ranges has no gradient; use Visibility::tree, or detach the inputs"
    );
    Sizes::new(q.gpu(), q.rows(), heads, kv_heads, head_size)
}

#[track_caller]
fn check_results(q: &Tensor, heads: usize, [y, log_sums]: [&Tensor; 2]) {
    assert!(
        y.shape() == q.shape() && log_sums.shape() == [q.rows(), heads],
        "attention: results {:?} and {:?} of queries {:?} with {heads} heads",
        y.shape(),
        log_sums.shape(),
        q.shape()
    );
}

#[cfg(test)]
mod tests;
