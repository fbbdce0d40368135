//! Log-probs of given tokens, without holding the logits of a whole vocabulary:
//!
//! ```text
//! z        = (x W^T + scale (x A^T) B^T) / temperature
//! log p[t] = (z[t] - m) - log S                        m = max z,  S = sum of e^(z - m)
//! entropy  = log S - (sum of e^(z - m) (z - m)) / S
//! dz[v]    = (sum of g over the pairs that target v) - p[v] (sum of g over the pairs of the row)
//! ```
//!
//! and from dz the usual gradients of a linear layer. If a pair has allowed tokens, the z of all others is so low that e^z
//! is 0. The ops process the vocabulary in chunks, and the backward pass
//! computes the logits of each chunk again, as the chunked head of Liger Kernel does.
//!
//! The log-prob of a token is bit-identical in any batch: sums go by blocks of the vocabulary, and their order depends
//! neither on the rows nor on the length of a chunk. So a rollout and an update with the same parameters agree exactly.

mod scoring;

use std::sync::Arc;

use crate::ops::{Lora, Matrix};
use crate::{Indices, Tensor};
pub(crate) use scoring::VocabularyCut;
pub(super) use scoring::{CUT, Scoring, used_rows};

/// The output layer of a language model.
#[derive(Clone)]
pub struct LmHead {
    /// (V, C): a row for each token of the vocabulary.
    pub weight: Matrix,
    /// The LoRA adapter of the layer.
    pub lora: Option<Lora>,
}

/// The result of [`Tensor::log_probs`] for each pair of a row and a target.
pub struct LogProbs {
    /// Log-probs; tracked if the hidden rows or the head are.
    pub log_probs: Tensor,
    /// The entropy of the distribution, in nats; not tracked.
    pub entropy: Tensor,
}

/// The rows, targets and allowed tokens of pairs.
type PairQuery<'a> = (&'a Indices, &'a Indices, &'a [Arc<[u32]>]);

impl LmHead {
    /// The same without gradients.
    fn detached(&self) -> LmHead {
        LmHead {
            weight: self.weight.detach(),
            lora: self.lora.as_ref().map(Lora::detach),
        }
    }
}

impl Tensor {
    /// For each pair p returns the log-prob of the token `targets[p]` under softmax(logits / temperature) of the hidden row
    /// `rows[p]` of self (R, C), and the entropy of that distribution.
    ///
    /// `allowed` has for each pair the tokens that the distribution is restricted to, the target among them: all others
    /// have the probability 0. An empty set allows all tokens; without sets, all pairs do.
    ///
    /// Never holds all logits. `rows` must be known on the host; `targets` may be the result of [`Tensor::draw`].
    /// Gradients for the hidden rows, the LoRA and a trained weight.
    ///
    /// # Panics
    /// If the shapes do not fit, there are no pairs, a row or token does not exist, or the temperature is not positive.
    #[track_caller]
    pub fn log_probs(
        &self,
        head: &LmHead,
        rows: &Indices,
        targets: &Indices,
        allowed: &[Arc<[u32]>],
        temperature: f32,
    ) -> LogProbs {
        self.log_probs_cut(head, (rows, targets, allowed), temperature, CUT)
    }

    #[track_caller]
    pub(crate) fn log_probs_cut(
        &self,
        head: &LmHead,
        (rows, targets, allowed): PairQuery<'_>,
        temperature: f32,
        cut: VocabularyCut,
    ) -> LogProbs {
        let (pairs, vocabulary) = (rows.len(), head.weight.rows());
        assert!(
            targets.len() == pairs,
            "log_probs: {pairs} rows and {} targets",
            targets.len()
        );
        targets.check_below(vocabulary, "log_probs", "token");
        let (hidden, rows) = used_rows("log_probs", self, rows, allowed);
        let most = cut.most_rows(self.gpu(), vocabulary);
        if hidden.rows() > most {
            let pairs = (&rows, targets, allowed);
            return hidden.log_probs_in_parts(head, pairs, temperature, cut, most);
        }
        let scoring = Scoring::new("log_probs", &hidden, head, &rows, allowed, temperature, cut);
        let statistics = scoring.statistics();
        let log_probs = Tensor::empty(self.gpu(), &[pairs]);
        for chunk in scoring.chunks() {
            let logits = scoring.logits(&chunk);
            scoring.summarise(&chunk, &logits, &statistics, &log_probs, Some(targets));
        }
        let entropy = Tensor::empty(self.gpu(), &[pairs]);
        let normaliser = scoring.finish(&statistics, &log_probs, &entropy);

        let lora = head.lora.as_ref();
        let (a, b) = (lora.map(|l| &l.a), lora.map(|l| &l.b));
        let inputs = [Some(&hidden), head.weight.trained(), a, b];
        let targets = targets.clone();
        let log_probs = log_probs.recorded("log_probs", inputs, move |dy, wanted| {
            scoring.backward(&targets, &normaliser, dy, wanted)
        });
        LogProbs { log_probs, entropy }
    }

    /// The same by parts of `most` pairs, if there are too many rows for one binding.
    #[track_caller]
    fn log_probs_in_parts(
        &self,
        head: &LmHead,
        (rows, targets, allowed): PairQuery<'_>,
        temperature: f32,
        cut: VocabularyCut,
        most: usize,
    ) -> LogProbs {
        let (gpu, pairs) = (self.gpu(), rows.len());
        let whole = [(); 2].map(|()| Tensor::empty(gpu, &[pairs, 1]));
        let ranges: Vec<_> = (0..pairs)
            .step_by(most)
            .map(|first| first..pairs.min(first + most))
            .collect();
        let mut parts = Vec::new();
        for range in &ranges {
            let (rows, targets) = (rows.window(range.clone()), targets.window(range.clone()));
            let pairs = (
                &rows,
                &targets,
                allowed.get(range.clone()).unwrap_or_default(),
            );
            let part = self.log_probs_cut(head, pairs, temperature, cut);
            let places: Vec<u32> = (range.start as u32..range.end as u32).collect();
            let places = Indices::new(gpu, &places);
            for (whole, part) in whole.iter().zip([&part.log_probs, &part.entropy]) {
                whole.write_rows(&places, &part.detach().reshape(&[range.len(), 1]));
            }
            parts.push(part.log_probs);
        }
        let [log_probs, entropy] = whole.map(|whole| whole.reshape(&[pairs]));
        let log_probs = log_probs.recorded_parts("log_probs", &parts, move |dy| {
            ranges.into_iter().map(|range| dy.window(range)).collect()
        });
        LogProbs { log_probs, entropy }
    }

    /// Returns the logits (R, V) of these hidden rows (R, C), untracked. [`Tensor::log_probs`] and [`Tensor::draw`] do not
    /// hold all logits.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn logits(&self, head: &LmHead) -> Tensor {
        let (wanted, found) = (head.weight.cols(), self.shape());
        assert!(
            self.cols() == wanted,
            "logits: the hidden rows are {found:?}, the head is [{}, {wanted}]",
            head.weight.rows()
        );
        let hidden = self.detach();
        let lora = head.lora.as_ref();
        let low = lora.map(|lora| lora.down(&hidden));
        let (rows, low) = (0..head.weight.rows(), lora.zip(low.as_ref()));
        head.weight.project(&hidden, rows, low, None, None)
    }
}

#[cfg(test)]
mod tests;
