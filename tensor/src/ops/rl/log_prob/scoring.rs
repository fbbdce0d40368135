//! The launches over chunks of the vocabulary that log-probs, sampling and gradients share.

use std::ops::Range;
use std::sync::Arc;

use super::LmHead;
use crate::gpu::{Bind, Groups, Kernel, params};
use crate::ops::by_key::by_key;
use crate::ops::linear::write_weight_gradient;
use crate::ops::threads_together;
use crate::{Gpu, Indices, Tensor};

const SUMMARISE: Kernel = Kernel::new("log_prob", "summarise");
const FINISH: Kernel = Kernel::new("log_prob", "finish");
const FORBID: Kernel = Kernel::new("log_prob", "forbid");
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
    /// for each row the number of its set, and the bits of the sets
    allowed: Option<[Indices; 2]>,
    inverse_temperature: f32,
    pub(in crate::ops) cut: VocabularyCut,
}

/// Returns whether all tokens are allowed for every pair.
fn is_free(allowed: &[Arc<[u32]>]) -> bool {
    allowed.iter().all(|set| set.is_empty())
}

/// Selects the hidden rows that are used, and returns them with the row numbers among them. The head is the largest matrix
/// of a small model, and most rows of a packed tree belong to prompts. A row with several sets of allowed tokens is
/// returned once for each.
#[track_caller]
pub(in crate::ops) fn used_rows(
    op: &str,
    hidden: &Tensor,
    rows: &Indices,
    allowed: &[Arc<[u32]>],
) -> (Tensor, Indices) {
    let Some(host) = rows.host() else {
        panic!("{op}: the row numbers are on the device only; make them with Indices::new")
    };
    assert!(!host.is_empty(), "{op}: there are no rows");
    let count = hidden.rows();
    rows.check_below(count, op, "row");
    assert!(
        allowed.is_empty() || allowed.len() == host.len(),
        "{op}: {} rows and {} sets of tokens",
        host.len(),
        allowed.len()
    );
    let key = |(i, row): (usize, &u32)| (*row, allowed.get(i).map_or(&[][..], |set| set));
    let keys: Vec<(u32, &[u32])> = host.iter().enumerate().map(key).collect();
    let mut distinct = keys.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() == count && is_free(allowed) {
        return (hidden.clone(), rows.clone());
    }
    let place = |key| distinct.binary_search(key).expect("one of them") as u32;
    let places: Vec<u32> = keys.iter().map(place).collect();
    let gpu = hidden.gpu();
    let distinct: Vec<u32> = distinct.iter().map(|(row, _)| *row).collect();
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
        allowed: &[Arc<[u32]>],
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
        let allowed = (!is_free(allowed)).then(|| {
            // All pairs of a row have the same set.
            let set = |row: usize| &*allowed[pairs[starts[row] as usize] as usize];
            bits(gpu, (0..count).map(set).collect(), vocabulary, cut.block)
        });
        let hidden = hidden.detach();
        let head = head.detached();
        Scoring {
            allowed,
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

    /// The logits of a chunk, (R, chunk), not yet divided by the temperature. That of a forbidden token is -1e30.
    pub(in crate::ops) fn logits(&self, chunk: &Range<usize>) -> Tensor {
        let low = self.head.lora.as_ref().zip(self.low.as_ref());
        let weight = &self.head.weight;
        let logits = weight.project(&self.hidden, chunk.clone(), low, None, None);
        if let Some([sets, bits]) = &self.allowed {
            let buffers: [&dyn Bind; 3] = [&logits, sets, bits];
            let params = self.params(chunk, false);
            FORBID.launch(&self.constants(), &buffers, &params, self.groups(chunk));
        }
        logits
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

/// Returns the number of each row's set among the distinct ones, and the bits of these, padded to whole blocks. An empty
/// set stands for all tokens.
#[track_caller]
fn bits(gpu: &Gpu, of_rows: Vec<&[u32]>, vocabulary: usize, block: usize) -> [Indices; 2] {
    let mut sets = of_rows.clone();
    sets.sort_unstable();
    sets.dedup();
    let words = vocabulary.div_ceil(block) * (block / 32);
    let mut bits = vec![0; sets.len() * words];
    for (set, bits) in sets.iter().zip(bits.chunks_exact_mut(words)) {
        if set.is_empty() {
            bits.fill(u32::MAX);
        }
        for &token in *set {
            let is_known = (token as usize) < vocabulary;
            assert!(is_known, "allowed token {token} of {vocabulary}");
            bits[token as usize / 32] |= 1 << (token % 32);
        }
    }
    let number = |set| sets.binary_search(set).expect("one of them") as u32;
    let numbers: Vec<u32> = of_rows.iter().map(number).collect();
    [Indices::new(gpu, &numbers), Indices::new(gpu, &bits)]
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
