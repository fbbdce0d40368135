//! The launches over chunks of the vocabulary that log-probs, sampling and gradients share.

use std::ops::Range;

use super::LmHead;
use crate::gpu::{Bind, Groups, Kernel, params};
use crate::ops::by_key::by_key;
use crate::ops::linear::write_weight_gradient;
use crate::ops::threads_together;
use crate::{Gpu, Indices, Tensor};

const SUMMARISE: Kernel = Kernel::new("log_prob", "summarise");
const FINISH: Kernel = Kernel::new("log_prob", "finish");
const BACKWARD: Kernel = Kernel::new("log_prob", "backward");

/// The division of a vocabulary. One workgroup sums a block of tokens of one row. A chunk has as many blocks as keep its
/// logits below `budget` bytes, but at least one.
#[derive(Clone, Copy)]
pub(crate) struct VocabularyCut {
    pub(crate) block: usize,
    pub(crate) budget: usize,
}

pub(in crate::ops) const CUT: VocabularyCut = VocabularyCut {
    block: 2048,
    budget: 16 << 20,
};

impl VocabularyCut {
    /// The number of rows that fit: a binding must hold a block of their logits, and the statistics of all their blocks.
    /// A multiple of 64, since a window of pairs starts there.
    pub(in crate::ops) fn most_rows(self, gpu: &Gpu, vocabulary: usize) -> usize {
        let logits = 4 * self.block.min(vocabulary);
        let statistics = 16 * vocabulary.div_ceil(self.block);
        let most = gpu.caps().max_binding as usize / logits.max(statistics).max(1);
        (most / 64 * 64).max(64)
    }
}

/// Hidden rows, the head, and the pairs (or draws) of each row.
pub(in crate::ops) struct Scoring {
    hidden: Tensor,
    head: LmHead,
    /// x A^T
    low: Option<Tensor>,
    /// the pairs of each row are `pairs[starts[row]..starts[row + 1]]`
    starts: Indices,
    pairs: Indices,
    inverse_temperature: f32,
    pub(in crate::ops) cut: VocabularyCut,
}

/// Selects the hidden rows that are used, and returns them with the row numbers among them. The head is the largest matrix
/// of a small model, and most rows of a packed tree belong to prompts.
#[track_caller]
pub(in crate::ops) fn used_rows(op: &str, hidden: &Tensor, rows: &Indices) -> (Tensor, Indices) {
    let Some(host) = rows.host() else {
        panic!("{op}: the row numbers are on the device only; make them with Indices::new")
    };
    assert!(!host.is_empty(), "{op}: there are no rows");
    let count = hidden.rows();
    rows.check_below(count, op, "row");
    let mut distinct = host.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() == count {
        return (hidden.clone(), rows.clone());
    }
    let place = |row| distinct.binary_search(row).expect("one of them") as u32;
    let places: Vec<u32> = host.iter().map(place).collect();
    let gpu = hidden.gpu();
    let used = hidden.gather_rows(&Indices::new(gpu, &distinct));
    (used, Indices::new(gpu, &places))
}

impl Scoring {
    /// `hidden` and `rows` are the result of [`used_rows`].
    #[track_caller]
    pub(in crate::ops) fn new(
        op: &str,
        hidden: &Tensor,
        head: &LmHead,
        rows: &Indices,
        temperature: f32,
        cut: VocabularyCut,
    ) -> Scoring {
        let (count, width) = (hidden.rows(), hidden.cols());
        let (vocabulary, wanted) = (head.weight.rows(), head.weight.cols());
        assert!(
            width == wanted,
            "{op}: the hidden rows are {:?}, the head is [{vocabulary}, {wanted}]",
            hidden.shape()
        );
        assert!(
            temperature > 0.0 && temperature.is_finite(),
            "{op}: the temperature is {temperature}, wanted a positive number"
        );
        let host = rows.host().expect("rows from used_rows");
        let gpu = hidden.gpu();
        let most = cut.most_rows(gpu, vocabulary);
        assert!(
            count <= most,
            "{op}: {count} rows of a vocabulary of {vocabulary}, a binding of the device holds {most}; pass fewer rows at once"
        );
        let (starts, pairs) = by_key(host.iter().copied(), count);
        let hidden = hidden.detach();
        let head = head.detached();
        Scoring {
            low: head.lora.as_ref().map(|lora| lora.down(&hidden)),
            starts: Indices::new(gpu, &starts),
            pairs: Indices::new(gpu, &pairs),
            inverse_temperature: temperature.recip(),
            cut: VocabularyCut {
                budget: cut.budget.min(gpu.caps().max_binding as usize),
                ..cut
            },
            hidden,
            head,
        }
    }

    fn rows(&self) -> usize {
        self.hidden.rows()
    }

    /// Blocks of the whole vocabulary.
    pub(in crate::ops) fn blocks(&self) -> usize {
        self.head.weight.rows().div_ceil(self.cut.block)
    }

    /// The ranges of tokens of the chunks.
    pub(in crate::ops) fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let vocabulary = self.head.weight.rows();
        let length = (self.cut.budget / (4 * self.rows() * self.cut.block)).max(1) * self.cut.block;
        (0..vocabulary)
            .step_by(length)
            .map(move |first| first..(first + length).min(vocabulary))
    }

    /// The logits of a chunk, (R, chunk), not yet divided by the temperature.
    pub(in crate::ops) fn logits(&self, chunk: &Range<usize>) -> Tensor {
        let low = self.head.lora.as_ref().zip(self.low.as_ref());
        let weight = &self.head.weight;
        weight.project(&self.hidden, chunk.clone(), low, None, None)
    }

    /// Memory for the results of [`Scoring::summarise`].
    pub(in crate::ops) fn statistics(&self) -> Tensor {
        Tensor::empty(self.hidden.gpu(), &[self.rows(), self.blocks(), 4])
    }

    /// Computes the statistics of the blocks of a chunk. If there are targets, writes the scaled logits of those within the
    /// chunk into `picked`.
    pub(in crate::ops) fn summarise(
        &self,
        chunk: &Range<usize>,
        logits: &Tensor,
        statistics: &Tensor,
        picked: &Tensor,
        targets: Option<&Indices>,
    ) {
        let params = self.params(chunk, targets.is_some());
        let targets = targets.unwrap_or(&self.pairs);
        let (starts, pairs) = (&self.starts, &self.pairs);
        let buffers: [&dyn Bind; 6] = [logits, starts, pairs, targets, statistics, picked];
        SUMMARISE.launch(&self.constants(), &buffers, &params, self.groups(chunk));
    }

    /// After all chunks, turns `picked` into log-probs in place, and writes the entropy of each pair. Returns the normaliser
    /// (R, 2) for the backward pass.
    pub(in crate::ops) fn finish(
        &self,
        statistics: &Tensor,
        picked: &Tensor,
        entropy: &Tensor,
    ) -> Tensor {
        let gpu = self.hidden.gpu();
        let normaliser = Tensor::empty(gpu, &[self.rows(), 2]);
        let (starts, pairs) = (&self.starts, &self.pairs);
        let buffers: [&dyn Bind; 6] = [statistics, starts, pairs, picked, entropy, &normaliser];
        let groups = Groups::of(self.rows(), threads_together(gpu));
        let params = self.params(&(0..0), false);
        FINISH.launch(&self.constants(), &buffers, &params, groups);
        normaliser
    }

    /// The constants of both shaders.
    pub(in crate::ops) fn constants(&self) -> [(&'static str, u32); 2] {
        [
            ("GROUP", threads_together(self.hidden.gpu()) as u32),
            ("BLOCK", self.cut.block as u32),
        ]
    }

    fn params(&self, chunk: &Range<usize>, pick: bool) -> impl bytemuck::Pod + use<> {
        params! {
            rows: u32 = self.rows(),
            first: u32 = chunk.start,
            length: u32 = chunk.len(),
            blocks: u32 = self.blocks(),
            inverse_temperature: f32 = self.inverse_temperature,
            pick: u32 = pick,
        }
    }

    fn groups(&self, chunk: &Range<usize>) -> Groups {
        Groups::count(self.rows() * chunk.len().div_ceil(self.cut.block))
    }
}

impl Scoring {
    /// Returns the gradients of hidden rows, weight, A and B, as far as wanted, from that of the log-probs.
    pub(super) fn backward(
        &self,
        targets: &Indices,
        normaliser: &Tensor,
        upstream: &Tensor,
        [to_hidden, to_weight, to_a, to_b]: [bool; 4],
    ) -> [Option<Tensor>; 4] {
        let gpu = self.hidden.gpu();
        let (head, hidden) = (&self.head, &self.hidden);
        let (vocabulary, width) = (head.weight.rows(), head.weight.cols());
        let adapter = head.lora.as_ref().zip(self.low.as_ref());
        let weight = to_weight.then(|| Tensor::empty(gpu, &[vocabulary, width]));
        let b = adapter
            .filter(|_| to_b)
            .map(|(_, low)| Tensor::empty(gpu, &[vocabulary, low.cols()]));
        let (mut x, mut low_sum) = (None, None);
        for chunk in self.chunks() {
            let dy = self.logits(&chunk);
            self.differentiate(&chunk, &dy, targets, normaliser, upstream);
            if let Some(weight) = &weight {
                write_weight_gradient(weight, &dy, hidden, chunk.clone());
            }
            if let (Some(b), Some((_, low))) = (&b, adapter) {
                write_weight_gradient(b, &dy, low, chunk.clone());
            }
            if let Some((lora, _)) = adapter.filter(|_| to_hidden || to_a) {
                low_sum = Some(lora.low_gradient(&dy, chunk.clone(), low_sum.as_ref()));
            }
            if to_hidden {
                // The term of the adapter is added with the last chunk, when its sum is complete.
                let last = chunk.end == vocabulary;
                let low = head.lora.as_ref().zip(low_sum.as_ref()).filter(|_| last);
                x = Some(head.weight.input_gradient(&dy, chunk, x.as_ref(), low));
            }
        }
        let a = head.lora.as_ref().zip(low_sum).filter(|_| to_a);
        let a = a.map(|(lora, low)| lora.a_gradient(&low, hidden));
        [x, weight, a, b]
    }

    /// Replaces the logits of a chunk by their gradient.
    fn differentiate(
        &self,
        chunk: &Range<usize>,
        logits: &Tensor,
        targets: &Indices,
        normaliser: &Tensor,
        upstream: &Tensor,
    ) {
        let (starts, pairs) = (&self.starts, &self.pairs);
        let buffers: [&dyn Bind; 6] = [logits, starts, pairs, targets, normaliser, upstream];
        let params = self.params(chunk, false);
        BACKWARD.launch(&self.constants(), &buffers, &params, self.groups(chunk));
    }
}
