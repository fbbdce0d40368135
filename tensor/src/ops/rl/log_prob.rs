//! Log-probs of given tokens, without holding the logits of a whole vocabulary:
//!
//! ```text
//! z        = (x W^T + scale (x A^T) B^T) / temperature
//! log p[t] = (z[t] - m) - log S                        m = max z,  S = sum of e^(z - m)
//! entropy  = log S - (sum of e^(z - m) (z - m)) / S
//! dz[v]    = (sum of g over the pairs that target v) - p[v] (sum of g over the pairs of the row)
//! ```
//!
//! and from dz the usual gradients of a linear layer. The ops process the vocabulary in chunks, and the backward pass computes
//! the logits of each chunk again, as the chunked head of Liger Kernel does. Pairs with allowed tokens have a head of these
//! rows alone.
//!
//! The log-prob of a token is bit-identical in any batch: sums go by blocks of the vocabulary, and their order depends
//! neither on the rows nor on the length of a chunk. So a rollout and an update with the same parameters agree exactly.

mod scoring;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ops::{Lora, Matrix};
use crate::{Indices, Tensor};
pub(crate) use scoring::VocabularyCut;
pub(super) use scoring::{CUT, Scoring, used_rows};

/// The output layer of a language model.
#[derive(Clone, Debug)]
pub struct LmHead {
    /// (V, C): a row for each token of the vocabulary.
    pub weight: Matrix,
    /// The LoRA adapter of the layer.
    pub lora: Option<Lora>,
}

/// The result of [`Tensor::log_probs`] for each pair of a row and a target.
#[derive(Debug)]
pub struct LogProbs {
    /// Log-probs; tracked if the hidden rows or the head are.
    pub log_probs: Tensor,
    /// The entropy of the distribution, in nats; not tracked.
    pub entropy: Tensor,
}

impl LogProbs {
    /// Those of `count` pairs from those of parts, given with the numbers of their pairs.
    fn together(parts: Vec<(Vec<u32>, LogProbs)>, count: usize) -> LogProbs {
        let gpu = parts[0].1.entropy.gpu();
        let whole = [(); 2].map(|()| Tensor::empty(gpu, &[count, 1]));
        let (mut tracked, mut places) = (Vec::new(), Vec::new());
        for (pairs, part) in parts {
            let at = Indices::new(part.entropy.gpu(), &pairs);
            for (whole, part) in whole.iter().zip([&part.log_probs, &part.entropy]) {
                whole.write_rows(&at, &part.detach().reshape(&[pairs.len(), 1]));
            }
            tracked.push(part.log_probs);
            places.push(at);
        }
        let [log_probs, entropy] = whole.map(|whole| whole.reshape(&[count]));
        let log_probs = log_probs.recorded_parts("log_probs", &tracked, move |dy| {
            let dy = dy.reshape(&[count, 1]);
            let part = |at: &Indices| dy.gather_rows(at).reshape(&[at.len()]);
            places.iter().map(part).collect()
        });
        LogProbs { log_probs, entropy }
    }
}

/// The rows, targets and allowed tokens of pairs.
type PairQuery<'a> = (&'a Indices, &'a Indices, &'a [Arc<[u32]>]);

impl LmHead {
    /// The head of these tokens alone: its token i is `tokens[i]`. Its gradient goes to this one.
    ///
    /// # Panics
    /// If a token is not in the vocabulary.
    #[track_caller]
    pub fn only(&self, tokens: &Indices) -> LmHead {
        let lora = self.lora.as_ref().map(|lora| Lora {
            b: lora.b.gather_rows(tokens),
            ..lora.clone()
        });
        LmHead {
            weight: Matrix::Trained(Tensor::embedding(&self.weight, tokens)),
            lora,
        }
    }

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
    /// Never holds all logits, and of restricted pairs computes the allowed ones only. `rows` must be known on the host, and
    /// `targets` with sets, too; without, they may be the result of [`Tensor::draw`].
    /// Gradients for the hidden rows, the LoRA and a trained weight.
    ///
    /// The mean of the negated log-probs is the cross-entropy of a classifier:
    ///
    /// ```
    /// # use lapwing_tensor::{Gpu, GpuOptions, Indices, Matrix, Tensor, rl::LmHead};
    /// # let gpu = Gpu::open(GpuOptions::default())?;
    /// // Two rows of three features, and four classes.
    /// let hidden = Tensor::from_slice(&gpu, &[1.0, 0.0, 2.0, 0.5, 1.0, 0.0], &[2, 3]);
    /// let weight = Matrix::Trained(Tensor::zeros(&gpu, &[4, 3]).tracked());
    /// let (rows, classes) = (Indices::new(&gpu, &[0, 1]), Indices::new(&gpu, &[3, 1]));
    /// let head = LmHead { weight, lora: None };
    /// let loss = hidden.log_probs(&head, &rows, &classes, &[], 1.0).log_probs.mean().neg();
    /// assert!((loss.to_vec()?[0] - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), lapwing_tensor::GpuError>(())
    /// ```
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
        if allowed.iter().any(|set| !set.is_empty()) {
            return self.log_probs_by_set(head, (rows, targets, allowed), temperature, cut);
        }
        let (hidden, rows) = used_rows("log_probs", self, rows);
        let most = cut.most_rows(self.gpu(), vocabulary);
        if hidden.rows() > most {
            let starts = (0..pairs).step_by(most);
            let parts = starts.map(|first| {
                let range = first..pairs.min(first + most);
                let query = (
                    &rows.window(range.clone()),
                    &targets.window(range.clone()),
                    &[][..],
                );
                let part = hidden.log_probs_cut(head, query, temperature, cut);
                (range.map(|pair| pair as u32).collect(), part)
            });
            return LogProbs::together(parts.collect(), pairs);
        }
        let scoring = Scoring::new("log_probs", &hidden, head, &rows, temperature, cut);
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

    /// The same for the pairs of each set of allowed tokens by itself, so that the bits of a pair depend on no other set.
    #[track_caller]
    fn log_probs_by_set(
        &self,
        head: &LmHead,
        (rows, targets, allowed): PairQuery<'_>,
        temperature: f32,
        cut: VocabularyCut,
    ) -> LogProbs {
        assert!(
            allowed.len() == rows.len(),
            "log_probs: {} rows and {} sets of tokens",
            rows.len(),
            allowed.len()
        );
        let on_host = |what: &str, numbers: &Indices| match numbers.host() {
            Some(host) => host.to_vec(),
            None => {
                panic!("log_probs: the {what} are on the device only; make them with Indices::new")
            }
        };
        let (rows, targets) = (
            on_host("row numbers", rows),
            on_host("restricted targets", targets),
        );
        let mut by_set: BTreeMap<&[u32], Vec<u32>> = BTreeMap::new();
        for (pair, set) in (0..).zip(allowed) {
            by_set.entry(set).or_default().push(pair);
        }
        let parts = by_set.into_iter().map(|(set, pairs)| {
            let of_pairs =
                |numbers: &[u32]| pairs.iter().map(|pair| numbers[*pair as usize]).collect();
            let (rows, mut targets): (Vec<u32>, Vec<u32>) = (of_pairs(&rows), of_pairs(&targets));
            let head = match set.is_empty() {
                true => head.clone(),
                false => head.only(&Indices::new(self.gpu(), set)),
            };
            for target in targets.iter_mut().filter(|_| !set.is_empty()) {
                let place = set.iter().position(|token| token == target);
                let place = place.unwrap_or_else(|| panic!("log_probs: token {target} of {set:?}"));
                *target = place as u32;
            }
            let [rows, targets] = [rows, targets].map(|numbers| Indices::new(self.gpu(), &numbers));
            let part = self.log_probs_cut(&head, (&rows, &targets, &[]), temperature, cut);
            (pairs, part)
        });
        LogProbs::together(parts.collect(), rows.len())
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
