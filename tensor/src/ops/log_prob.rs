//! Log-probs of chosen tokens, without holding the logits of a whole vocabulary:
//!
//! ```text
//! z        = (x W^T + scale (x A^T) B^T) / temperature
//! log p[t] = (z[t] - m) - log S                        m = max z,  S = sum of e^(z - m)
//! entropy  = log S - (sum of e^(z - m) (z - m)) / S
//! dz[v]    = (sum of g over the pairs that target v) - p[v] (sum of g over the pairs of the row)
//! ```
//!
//! and from dz the usual gradients of a linear layer. The vocabulary goes by in chunks; the backward pass computes
//! each chunk of logits again. This is the chunked head of Liger Kernel and others.
//!
//! The log-prob of a token has the same bits whatever else is asked, in whatever batch: sums go by blocks of the
//! vocabulary, and neither the rows nor the length of a chunk changes the order within them. What a rollout computed
//! is therefore exactly what the update computes as long as the parameters are the same.

use std::ops::Range;

use super::by_key::by_key;
use super::linear::{Lora, Matrix, write_weight_gradient};
use crate::gpu::{Groups, Kernel};
use crate::{Indices, Tensor};

const GROUP: usize = 64;
const SUMMARISE: Kernel = Kernel::new("log_prob", "summarise");
const FINISH: Kernel = Kernel::new("log_prob", "finish");
const BACKWARD: Kernel = Kernel::new("log_prob", "backward");

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    rows: u32,
    first: u32,
    length: u32,
    blocks: u32,
    inverse_temperature: f32,
    pick: u32,
}

/// The output layer of a language model: a row of `weight` (V, C) for each token of the vocabulary.
#[derive(Clone)]
pub struct Head {
    /// Frozen, or trained when a model is trained whole.
    pub weight: Matrix,
    /// What an adapter adds to it.
    pub lora: Option<Lora>,
}

/// What [`Tensor::log_probs`] gives for each pair of a row and a target.
pub struct LogProbs {
    /// Natural logarithms of probabilities; tracked if the hidden rows or the head are.
    pub log_probs: Tensor,
    /// The entropy of the row's whole distribution, in nats; not tracked.
    pub entropy: Tensor,
}

/// How a vocabulary is cut. One workgroup sums `block` tokens of one row; a chunk is as many whole blocks as keep its
/// logits below `budget` bytes, but at least one.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    pub(super) block: usize,
    pub(super) budget: usize,
}

pub(super) const CUT: Cut = Cut {
    block: 2048,
    budget: 16 << 20,
};

/// Hidden rows, the head over them, and which pairs (or draws) ask for which row.
pub(super) struct Scoring {
    hidden: Tensor,
    head: Head,
    /// x A^T
    low: Option<Tensor>,
    /// the pairs of each row are `pairs[starts[row]..starts[row + 1]]`
    starts: Indices,
    pairs: Indices,
    inverse_temperature: f32,
    pub(super) cut: Cut,
}

impl Scoring {
    #[track_caller]
    pub(super) fn new(
        op: &str,
        hidden: &Tensor,
        head: &Head,
        rows: &Indices,
        temperature: f32,
        cut: Cut,
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
            "{op}: the temperature is {temperature}"
        );
        let Some(host) = rows.host() else {
            panic!("{op}: the row numbers must come from the host")
        };
        assert!(!host.is_empty(), "{op}: no row is asked for");
        if let Some(row) = host.iter().find(|row| **row as usize >= count) {
            panic!("{op}: row {row} is asked for, there are {count}");
        }
        let gpu = hidden.gpu();
        let bytes = 4 * (count * cut.block.min(vocabulary)) as u64;
        let most = gpu.caps().max_binding;
        assert!(
            bytes <= most,
            "{op}: one block of logits of {count} rows needs {bytes} bytes, the device binds {most}: ask for fewer rows at once"
        );
        let (starts, pairs) = by_key(host.iter().copied(), count);
        let hidden = hidden.detach();
        let head = head.detached();
        Scoring {
            low: head.lora.as_ref().map(|lora| lora.down(&hidden)),
            starts: Indices::new(gpu, &starts),
            pairs: Indices::new(gpu, &pairs),
            inverse_temperature: temperature.recip(),
            cut: Cut {
                budget: cut.budget.min(most as usize),
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
    pub(super) fn blocks(&self) -> usize {
        self.head.weight.rows().div_ceil(self.cut.block)
    }

    /// Which tokens go by together.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let vocabulary = self.head.weight.rows();
        let length = (self.cut.budget / (4 * self.rows() * self.cut.block)).max(1) * self.cut.block;
        (0..vocabulary)
            .step_by(length)
            .map(move |first| first..(first + length).min(vocabulary))
    }

    /// The logits of a chunk, (R, chunk), not yet divided by the temperature.
    pub(super) fn logits(&self, chunk: &Range<usize>) -> Tensor {
        let low = self.head.lora.as_ref().zip(self.low.as_ref());
        self.head.weight.project(&self.hidden, chunk.clone(), low)
    }

    /// Room for what [`Scoring::summarise`] finds.
    pub(super) fn statistics(&self) -> Tensor {
        Tensor::empty(self.hidden.gpu(), &[self.rows(), self.blocks(), 4])
    }

    /// Sums up the blocks of a chunk. Writes into `picked` the scaled logits of the targets within the chunk, if there
    /// are targets.
    pub(super) fn summarise(
        &self,
        chunk: &Range<usize>,
        logits: &Tensor,
        statistics: &Tensor,
        picked: &Tensor,
        targets: Option<&Indices>,
    ) {
        let bindings = [
            &logits.binding(),
            &self.starts.binding(),
            &self.pairs.binding(),
            &targets.unwrap_or(&self.pairs).binding(),
            &statistics.binding(),
            &picked.binding(),
        ];
        let params = Params {
            pick: u32::from(targets.is_some()),
            ..self.params(chunk)
        };
        SUMMARISE.launch(
            self.hidden.gpu(),
            &self.constants(),
            &bindings,
            &params,
            self.groups(chunk),
        );
    }

    /// Turns `picked` into log-probs, in place, once all chunks have gone by. Gives the entropy of each pair's row and
    /// the normaliser (R, 2) that the backward pass needs.
    pub(super) fn finish(&self, statistics: &Tensor, picked: &Tensor) -> (Tensor, Tensor) {
        let gpu = self.hidden.gpu();
        let entropy = Tensor::empty(gpu, &[self.pairs.len()]);
        let normaliser = Tensor::empty(gpu, &[self.rows(), 2]);
        let bindings = [
            &statistics.binding(),
            &self.starts.binding(),
            &self.pairs.binding(),
            &picked.binding(),
            &entropy.binding(),
            &normaliser.binding(),
        ];
        let groups = Groups::of(self.rows(), GROUP);
        FINISH.launch(
            gpu,
            &self.constants(),
            &bindings,
            &self.params(&(0..0)),
            groups,
        );
        (entropy, normaliser)
    }

    fn constants(&self) -> [(&'static str, u32); 1] {
        [("BLOCK", self.cut.block as u32)]
    }

    fn params(&self, chunk: &Range<usize>) -> Params {
        Params {
            rows: self.rows() as u32,
            first: chunk.start as u32,
            length: chunk.len() as u32,
            blocks: self.blocks() as u32,
            inverse_temperature: self.inverse_temperature,
            pick: 0,
        }
    }

    fn groups(&self, chunk: &Range<usize>) -> Groups {
        Groups::count(self.rows() * chunk.len().div_ceil(self.cut.block))
    }
}

/// Which gradients somebody wants.
#[derive(Clone, Copy)]
struct Wanted {
    hidden: bool,
    weight: bool,
    a: bool,
    b: bool,
}

/// The gradients as they grow, chunk by chunk.
struct HeadGradients {
    hidden: Option<Tensor>,
    weight: Option<Tensor>,
    /// of x A^T
    low: Option<Tensor>,
    b: Option<Tensor>,
}

impl Scoring {
    /// The gradients of hidden rows, weight, A and B, as far as wanted, from that of the log-probs.
    fn backward(
        &self,
        targets: &Indices,
        normaliser: &Tensor,
        dy: &Tensor,
        wanted: Wanted,
    ) -> [Option<Tensor>; 4] {
        let gpu = self.hidden.gpu();
        let (vocabulary, width) = (self.head.weight.rows(), self.head.weight.cols());
        let low = self.low.as_ref().filter(|_| wanted.hidden || wanted.a);
        let sums = HeadGradients {
            hidden: wanted
                .hidden
                .then(|| Tensor::zeros(gpu, self.hidden.shape())),
            weight: wanted
                .weight
                .then(|| Tensor::empty(gpu, &[vocabulary, width])),
            low: low.map(|low| Tensor::zeros(gpu, low.shape())),
            b: self
                .low
                .as_ref()
                .filter(|_| wanted.b)
                .map(|low| Tensor::empty(gpu, &[vocabulary, low.cols()])),
        };
        for chunk in self.chunks() {
            let logits = self.logits(&chunk);
            let bindings = [
                &logits.binding(),
                &self.starts.binding(),
                &self.pairs.binding(),
                &targets.binding(),
                &normaliser.binding(),
                &dy.binding(),
            ];
            BACKWARD.launch(
                gpu,
                &self.constants(),
                &bindings,
                &self.params(&chunk),
                self.groups(&chunk),
            );
            self.add_chunk(&sums, &logits, chunk);
        }
        let HeadGradients {
            hidden,
            weight,
            low,
            b,
        } = sums;
        let mut a = None;
        if let (Some(lora), Some(low)) = (&self.head.lora, &low) {
            if let Some(hidden) = &hidden {
                lora.add_input_gradient(hidden, low);
            }
            a = wanted.a.then(|| lora.a_gradient(low, &self.hidden));
        }
        [hidden, weight, a, b]
    }

    /// `dy` is the gradient of the chunk's logits.
    fn add_chunk(&self, sums: &HeadGradients, dy: &Tensor, chunk: Range<usize>) {
        if let Some(hidden) = &sums.hidden {
            self.head
                .weight
                .add_input_gradient(hidden, dy, chunk.clone());
        }
        if let Some(weight) = &sums.weight {
            write_weight_gradient(weight, dy, &self.hidden, chunk.clone());
        }
        let (Some(lora), Some(low)) = (&self.head.lora, &self.low) else {
            return;
        };
        if let Some(sum) = &sums.low {
            lora.add_low_gradient(sum, dy, chunk.clone());
        }
        if let Some(b) = &sums.b {
            lora.write_b_gradient(b, dy, low, chunk);
        }
    }
}

impl Head {
    /// The same, cut off from the tape.
    fn detached(&self) -> Head {
        let weight = match &self.weight {
            Matrix::Trained(weight) => Matrix::Trained(weight.detach()),
            frozen => frozen.clone(),
        };
        let lora = self.lora.as_ref().map(|lora| Lora {
            a: lora.a.detach(),
            b: lora.b.detach(),
            scale: lora.scale,
        });
        Head { weight, lora }
    }
}

impl Tensor {
    /// For each pair p the log-prob of token `targets[p]` after the hidden row `rows[p]` of these (R, C), under
    /// softmax(logits / temperature), and the entropy of that distribution.
    ///
    /// Never holds all logits. `rows` must come from the host; `targets` may be what [`Tensor::draw`] gave. Gradients go
    /// to the hidden rows, to the LoRA and to a trained weight.
    ///
    /// # Panics
    /// If the shapes do not fit, nothing is asked for, a row or token does not exist, or the temperature is not
    /// positive.
    #[track_caller]
    pub fn log_probs(
        &self,
        head: &Head,
        rows: &Indices,
        targets: &Indices,
        temperature: f32,
    ) -> LogProbs {
        self.log_probs_cut(head, rows, targets, temperature, CUT)
    }

    #[track_caller]
    fn log_probs_cut(
        &self,
        head: &Head,
        rows: &Indices,
        targets: &Indices,
        temperature: f32,
        cut: Cut,
    ) -> LogProbs {
        let (pairs, vocabulary) = (rows.len(), head.weight.rows());
        assert!(
            targets.len() == pairs,
            "log_probs: {pairs} rows and {} targets",
            targets.len()
        );
        if let Some(token) = targets
            .host()
            .and_then(|t| t.iter().find(|t| **t as usize >= vocabulary))
        {
            panic!("log_probs: token {token} is asked for, the vocabulary has {vocabulary}");
        }
        let scoring = Scoring::new("log_probs", self, head, rows, temperature, cut);
        let statistics = scoring.statistics();
        let log_probs = Tensor::empty(self.gpu(), &[pairs]);
        for chunk in scoring.chunks() {
            let logits = scoring.logits(&chunk);
            scoring.summarise(&chunk, &logits, &statistics, &log_probs, Some(targets));
        }
        let (entropy, normaliser) = scoring.finish(&statistics, &log_probs);

        // The inputs that can be tracked, in the order of the gradients.
        let lora = head.lora.as_ref();
        let inputs = [
            Some(self),
            head.weight.trained(),
            lora.map(|l| &l.a),
            lora.map(|l| &l.b),
        ];
        let [hidden, weight, a, b] = inputs.map(|input| input.is_some_and(Tensor::is_tracked));
        let wanted = Wanted {
            hidden,
            weight,
            a,
            b,
        };
        let present = inputs.map(|input| input.is_some());
        let inputs: Vec<&Tensor> = inputs.into_iter().flatten().collect();
        let targets = targets.clone();
        let log_probs = log_probs.recorded("log_probs", &inputs, move |dy| {
            let gradients = scoring.backward(&targets, &normaliser, dy, wanted);
            gradients
                .into_iter()
                .zip(present)
                .filter(|(_, present)| *present)
                .map(|(gradient, _)| gradient)
                .collect()
        });
        LogProbs { log_probs, entropy }
    }

    /// The logits (R, V) of these hidden rows (R, C), untracked: for small things. What is needed of large ones,
    /// [`Tensor::log_probs`] and [`Tensor::draw`] give without holding them.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn logits(&self, head: &Head) -> Tensor {
        let (wanted, found) = (head.weight.cols(), self.shape());
        assert!(
            self.cols() == wanted,
            "logits: the hidden rows are {found:?}, the head is [{}, {wanted}]",
            head.weight.rows()
        );
        let hidden = self.detach();
        let low = head.lora.as_ref().map(|lora| lora.down(&hidden));
        head.weight.project(
            &hidden,
            0..head.weight.rows(),
            head.lora.as_ref().zip(low.as_ref()),
        )
    }
}

#[cfg(test)]
mod tests;
