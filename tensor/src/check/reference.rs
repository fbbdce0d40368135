//! The f64 reference of each op, and its tolerance with the reason. The unit tests of the ops and the table of
//! [`super::op_checks`] compare with them.

use std::sync::Arc;

use super::compare::{Array, LEAST, Tolerance};
use crate::ops::rl::{Kl, LmHead, LogProbs, LossToken, VocabularyCut};
use crate::ops::{AdamW, Lora, Matrix, Muon, NamedValues, Parameters, WeightFormat};
use crate::{GpuError, Gradients, Indices, Tensor, Visibility};

/// A few roundings of 6e-8; exp of lavapipe has an error of about 1e-6. The bound is relative to the largest result, or to 0.1
/// if that is smaller.
pub(crate) const UNARY: Tolerance = Tolerance {
    value: 3e-6,
    gradient: 1e-5,
    least: 0.1,
};

pub(crate) fn huber(v: f64, delta: f64) -> f64 {
    match v.abs() {
        size if size <= delta => 0.5 * v * v,
        size => delta * (size - 0.5 * delta),
    }
}

/// Two or three roundings in the value; sums over up to 20 repeats of both signs in the gradient.
pub(crate) const BINARY: Tolerance = Tolerance {
    value: 1e-6,
    gradient: 1e-5,
    least: 0.1,
};

/// Applies f to two arrays, with broadcasting.
pub(crate) fn binary(f: fn(f64, f64) -> f64, a: &Array, b: &Array) -> Array {
    let shape = crate::ops::broadcast(&a.shape, &b.shape).unwrap();
    let pick = |array: &Array, mut flat: usize| {
        let mut index = 0;
        let mut step = 1;
        for (i, length) in shape.iter().enumerate().rev() {
            let at = flat % length;
            flat /= length;
            if let Some(axis) = (i + array.shape.len()).checked_sub(shape.len()) {
                index += if array.shape[axis] == 1 { 0 } else { at * step };
                step *= array.shape[axis];
            }
        }
        array.values[index]
    };
    let values = (0..shape.iter().product())
        .map(|i| f(pick(a, i), pick(b, i)))
        .collect();
    Array { shape, values }
}

/// Sums of up to 5,000 terms in runs of 64: about 64 roundings of 6e-8 on each level. The terms must be positive, since
/// terms of both signs cancel.
pub(crate) const REDUCE: Tolerance = Tolerance {
    value: 1e-5,
    gradient: 1e-5,
    least: LEAST,
};

/// Applies f to each row.
pub(crate) fn of_rows(a: &Array, f: impl Fn(&[f64]) -> f64) -> Array {
    let cols = *a.shape.last().unwrap();
    let mut shape = a.shape.clone();
    *shape.last_mut().unwrap() = 1;
    Array {
        shape,
        values: a.values.chunks(cols).map(f).collect(),
    }
}

/// The sum of each column.
pub(crate) fn columns(a: &Array) -> Array {
    let (m, n) = (a.shape[0], a.shape[1]);
    Array {
        shape: vec![n],
        values: (0..n).map(|j| (0..m).map(|i| a.at(i, j)).sum()).collect(),
    }
}

/// A copy is exact; a gradient is a sum of at most 40 numbers below 1 of both signs.
pub(crate) const ROWS: Tolerance = Tolerance {
    value: 0.0,
    gradient: 2e-6,
    least: 1.0,
};

/// A copy is exact; a gradient is a sum of at most 60 numbers below 1 of both signs.
pub(crate) const EMBEDDING: Tolerance = Tolerance {
    value: 0.0,
    gradient: 4e-6,
    least: 1.0,
};

pub(crate) fn gather(table: &Array, rows: &[u32]) -> Array {
    let cols = table.shape[1];
    let row = |row: &u32| &table.values[*row as usize * cols..][..cols];
    Array {
        shape: vec![rows.len(), cols],
        values: rows.iter().flat_map(row).copied().collect(),
    }
}

/// A few roundings of 6e-8; exp of lavapipe has an error of about 1e-6. The slope of silu is 0 near -1.28, where its terms
/// are not.
pub(crate) const SWIGLU: Tolerance = Tolerance {
    value: 3e-6,
    gradient: 5e-6,
    least: 0.1,
};

/// silu(gate) up
pub(crate) fn swiglu(gate: &Array, up: &Array) -> Array {
    let one = |(g, u): (&f64, &f64)| g / (1.0 + (-g).exp()) * u;
    Array {
        shape: gate.shape.clone(),
        values: gate.values.iter().zip(&up.values).map(one).collect(),
    }
}

/// Large enough to affect the result, and to keep the gradient of a row of one element away from zero.
pub(crate) const EPS: f32 = 0.1;

/// Sums of up to 300 squares: up to 300 roundings of 6e-8, √300 on average. The gradient of the weight sums up to 130
/// terms of both signs, which may cancel to a hundredth.
pub(crate) const RMS_NORM: Tolerance = Tolerance {
    value: 3e-6,
    gradient: 1e-4,
    least: 0.1,
};

/// As RMS_NORM, with one more rounding for the difference to the mean.
pub(crate) const LAYER_NORM: Tolerance = Tolerance {
    value: 6e-6,
    gradient: 1e-4,
    least: 0.1,
};

/// Layer norm if there is a bias, else RMS norm.
pub(crate) fn norm(x: &Array, weight: &Array, bias: Option<&Array>) -> Array {
    let cols = weight.values.len();
    let mut y = x.clone();
    for row in y.values.chunks_mut(cols) {
        let mean = match bias {
            Some(_) => row.iter().sum::<f64>() / cols as f64,
            None => 0.0,
        };
        let square = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / cols as f64;
        let scale = 1.0 / (square + f64::from(EPS)).sqrt();
        for (i, v) in row.iter_mut().enumerate() {
            let bias = bias.map_or(0.0, |bias| bias.values[i]);
            *v = (*v - mean) * scale * weight.values[i] + bias;
        }
    }
    y
}

/// Two products and a sum: a few roundings of 6e-8.
pub(crate) const ROPE: Tolerance = Tolerance {
    value: 1e-6,
    gradient: 1e-6,
    least: LEAST,
};

pub(crate) fn frequencies(half: usize) -> Vec<f32> {
    (0..half)
        .map(|i| 10_000f32.powf(-(i as f32) / half as f32))
        .collect()
}

pub(crate) fn rope(x: &Array, positions: &[u32], frequencies: &[f32], heads: usize) -> Array {
    let half = frequencies.len();
    let mut y = x.clone();
    for (token, position) in positions.iter().enumerate() {
        for head in 0..heads {
            let first = (token * heads + head) * 2 * half;
            for (i, f) in frequencies.iter().enumerate() {
                let (sine, cosine) = f64::from(*position as f32 * f).sin_cos();
                let (a, b) = (x.values[first + i], x.values[first + half + i]);
                y.values[first + i] = a * cosine - b * sine;
                y.values[first + half + i] = b * cosine + a * sine;
            }
        }
    }
    y
}

/// The error of a sum of k terms below 1 is about √k · 6e-8: 5e-7 for k = 68, also where the terms cancel. Ten times that
/// is still far below the error of a wrong term, about 1e-1.
pub(crate) const MATMUL: Tolerance = Tolerance {
    value: 5e-6,
    gradient: 5e-6,
    least: 1.0,
};

/// The product of two sums with the error of [`MATMUL`] each.
pub(crate) const GATED: Tolerance = Tolerance {
    value: 1e-5,
    gradient: 1e-5,
    least: 1.0,
};

pub(crate) fn transposed(a: &Array) -> Array {
    let (rows, cols) = (a.shape[0], a.shape[1]);
    Array {
        shape: vec![cols, rows],
        values: (0..rows * cols).map(|i| a.at(i % rows, i / rows)).collect(),
    }
}

/// (M, K) times (K, N).
pub(crate) fn matmul(a: &Array, b: &Array) -> Array {
    let (m, k, n) = (a.shape[0], a.shape[1], b.shape[1]);
    let mut values = vec![0.0; m * n];
    for (i, row) in values.chunks_exact_mut(n).enumerate() {
        for l in 0..k {
            let left = a.at(i, l);
            for (y, right) in row.iter_mut().zip(&b.values[l * n..]) {
                *y += left * right;
            }
        }
    }
    Array {
        shape: vec![m, n],
        values,
    }
}

pub(crate) const LORA_SCALE: f32 = 0.75;

/// residual + x Wᵀ + bias + scale (x Aᵀ) Bᵀ, for the inputs x, bias, residual, A, B.
pub(crate) fn linear(x: &[Array], w: &Array) -> Array {
    let [x, bias, residual, a, b] = x else {
        panic!("five inputs")
    };
    let low = matmul(x, &transposed(a));
    let low = matmul(&low, &transposed(b));
    let product = matmul(x, &transposed(w));
    let mut y = product.plus(&low, LORA_SCALE.into()).plus(residual, 1.0);
    for (i, v) in y.values.iter_mut().enumerate() {
        *v += bias.values[i % bias.values.len()];
    }
    y
}

pub(crate) fn linear_inputs(m: usize, n: usize, k: usize, r: usize, seed: u64) -> Vec<Array> {
    let shapes: [&[usize]; 5] = [&[m, k], &[n], &[m, n], &[r, k], &[n, r]];
    let random = |(i, shape): (u64, &&[usize])| Array::random(shape, seed ^ i, -1.0..1.0);
    (1..).zip(shapes.iter()).map(random).collect()
}

/// Runs the op of [`linear`] on x, bias, residual, A, B.
pub(crate) fn linear_op(t: &[Tensor], w: &Matrix) -> Tensor {
    let lora = Lora {
        a: t[3].clone(),
        b: t[4].clone(),
        scale: LORA_SCALE,
    };
    t[0].linear(w, Some(&t[1]), Some(&lora), Some(&t[2]))
}

/// Sums of up to 100 products and of up to 256 channels, and exponentials with an error of 1e-6: some tens of roundings
/// of 6e-8. A gradient sums differences p (dy·v - dy·y), which cancel; in a small tree all of them may, down to a hundredth
/// of the terms.
pub(crate) const ATTENTION: Tolerance = Tolerance {
    value: 5e-6,
    gradient: 1e-4,
    least: 0.01,
};

/// (heads, key heads, channels)
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionHeads(pub(crate) usize, pub(crate) usize, pub(crate) usize);

/// A random forest of `count` tokens. A small one is a single tree: if each token saw only itself, the gradients would
/// be zero.
pub(crate) fn forest(count: usize, seed: u64) -> Vec<u32> {
    fn grow(until: &mut [u32], from: usize, to: usize, draw: &mut impl FnMut(usize) -> usize) {
        let mut first = from;
        while first < to {
            let size = 1 + draw(to - first);
            let own = 1 + draw(size);
            until[first..first + own].fill((first + size) as u32);
            grow(until, first + own, first + size, draw);
            first += size;
        }
    }
    let numbers = Array::random(&[4 * count], seed, 0.0..1.0).values;
    let mut numbers = numbers.into_iter().cycle();
    let mut draw = |below: usize| (numbers.next().unwrap() * below as f64) as usize;
    let mut until = vec![0; count];
    if count < 8 {
        until[0] = count as u32;
        grow(&mut until, 1, count, &mut draw);
    } else {
        grow(&mut until, 0, count, &mut draw);
    }
    until
}

/// Queries, keys and values.
pub(crate) fn attention_inputs(
    rows: usize,
    AttentionHeads(heads, kv_heads, size): AttentionHeads,
    seed: u64,
) -> [Array; 3] {
    [(0, heads), (1, kv_heads), (2, kv_heads)]
        .map(|(i, h)| Array::random(&[rows, h * size], seed ^ i, -1.5..1.5))
}

pub(crate) fn visible(until: &[u32], query: usize) -> impl Iterator<Item = usize> {
    (0..=query).filter(move |key| query < until[*key] as usize)
}

pub(crate) fn attention(
    a: &[Array],
    until: &[u32],
    AttentionHeads(heads, kv_heads, size): AttentionHeads,
) -> Array {
    let mut y = Array {
        shape: a[0].shape.clone(),
        values: vec![0.0; a[0].values.len()],
    };
    for query in 0..until.len() {
        for head in 0..heads {
            let (own, shared) = (head * size, head / (heads / kv_heads) * size);
            let score = |key: usize| -> f64 {
                let products =
                    (0..size).map(|c| a[0].at(query, own + c) * a[1].at(key, shared + c));
                products.sum::<f64>() / (size as f64).sqrt()
            };
            let scores: Vec<_> = visible(until, query).map(|key| (key, score(key))).collect();
            let total: f64 = scores.iter().map(|(_, score)| score.exp()).sum();
            for (key, score) in scores {
                for c in 0..size {
                    y.values[(query * heads * size) + own + c] +=
                        score.exp() / total * a[2].at(key, shared + c);
                }
            }
        }
    }
    y
}

pub(crate) fn attend(t: &[Tensor], visible: &Visibility, heads: AttentionHeads) -> Tensor {
    t[0].attention(&t[1], &t[2], visible, heads.0, heads.1)
}

/// Logits are sums of at most 40 products below 1 (relative error 1e-6); exp and log of WGSL have a relative error of
/// 5e-7 at numbers below 10. Gradients sum up to 300 tokens of both signs. A log-prob near 0 and its gradient are
/// differences of logits of about 1, so their error is relative to these.
pub(crate) const LOG_PROB: Tolerance = Tolerance {
    value: 5e-6,
    gradient: 2e-5,
    least: 0.1,
};

/// The arguments of `log_probs` besides the arrays.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenQuery {
    pub(crate) rows: Vec<u32>,
    pub(crate) targets: Vec<u32>,
    /// None, or the allowed tokens of each pair.
    pub(crate) allowed: Vec<Arc<[u32]>>,
    pub(crate) temperature: f32,
    pub(crate) scale: f32,
}

impl TokenQuery {
    pub(crate) fn random(
        pairs: usize,
        rows: usize,
        vocabulary: usize,
        temperature: f32,
        seed: u64,
    ) -> TokenQuery {
        let draw = |below: usize, which: u64| -> Vec<u32> {
            let unit = Array::random(&[pairs], seed ^ which, 0.0..1.0).values;
            unit.iter()
                .map(|u| ((u * below as f64) as u32).min(below as u32 - 1))
                .collect()
        };
        TokenQuery {
            rows: draw(rows, 11),
            targets: draw(vocabulary, 12),
            temperature,
            scale: 0.7,
            ..TokenQuery::default()
        }
    }

    /// Restricts each pair to one of three sets of tokens, or to none, and its target.
    pub(crate) fn restricted(mut self, vocabulary: usize, seed: u64) -> TokenQuery {
        let allowed = |(i, target): (usize, &u32)| -> Arc<[u32]> {
            let kind = i % 4;
            let unit = Array::random(&[vocabulary], seed ^ kind as u64, 0.0..1.0).values;
            let share = [1.0, 0.5, 0.02, 0.0][kind];
            let tokens = (0..vocabulary as u32).zip(unit);
            let tokens = tokens.filter(|(token, unit)| *unit < share || token == target);
            match kind {
                0 => Arc::default(),
                _ => tokens.map(|(token, _)| token).collect(),
            }
        };
        self.allowed = self.targets.iter().enumerate().map(allowed).collect();
        self
    }

    pub(crate) fn log_probs(&self, hidden: &Tensor, head: &LmHead, cut: VocabularyCut) -> LogProbs {
        let (rows, targets) = (
            Indices::new(hidden.gpu(), &self.rows),
            Indices::new(hidden.gpu(), &self.targets),
        );
        let pairs = (&rows, &targets, &self.allowed[..]);
        hidden.log_probs_cut(head, pairs, self.temperature, cut)
    }

    pub(crate) fn head(&self, weight: Matrix, lora: Option<(&Tensor, &Tensor)>) -> LmHead {
        LmHead {
            weight,
            lora: lora.map(|(a, b)| Lora {
                a: a.clone(),
                b: b.clone(),
                scale: self.scale,
            }),
        }
    }
}

/// Log-probs and entropies from the whole matrix of logits. `inputs` are the hidden rows, the weight, and optionally the
/// A and B of a LoRA.
pub(crate) fn log_prob(inputs: &[Array], question: &TokenQuery) -> [Array; 2] {
    let (hidden, weight) = (&inputs[0], &inputs[1]);
    let logit = |row: usize, token: usize| -> f64 {
        let product = |w: &Array, i: usize| -> f64 {
            let terms = (0..hidden.shape[1]).map(|k| hidden.at(row, k) * w.at(i, k));
            terms.sum()
        };
        let mut sum = product(weight, token);
        if let [_, _, a, b] = inputs {
            for r in 0..a.shape[0] {
                let low = product(a, r);
                sum += f64::from(question.scale) * low * b.at(token, r);
            }
        }
        sum / f64::from(question.temperature)
    };
    let mut results = [Vec::new(), Vec::new()];
    for (i, (row, target)) in question.rows.iter().zip(&question.targets).enumerate() {
        let set = question.allowed.get(i).filter(|set| !set.is_empty());
        let is_allowed = |token: usize| set.is_none_or(|set| set.contains(&(token as u32)));
        let z = |token| match is_allowed(token) {
            true => logit(*row as usize, token),
            false => f64::MIN,
        };
        let z: Vec<f64> = (0..weight.shape[0]).map(z).collect();
        let largest = z.iter().copied().fold(f64::MIN, f64::max);
        let log_sum = largest + z.iter().map(|z| (z - largest).exp()).sum::<f64>().ln();
        results[0].push(z[*target as usize] - log_sum);
        let z = z.iter().filter(|z| **z > f64::MIN);
        let surprise = z.map(|z| (z - log_sum).exp() * (z - log_sum));
        results[1].push(-surprise.sum::<f64>());
    }
    results.map(|values| Array {
        shape: vec![values.len()],
        values,
    })
}

/// Hidden rows (R, C), weight (V, C), A (r, C) and B (V, r).
pub(crate) fn log_prob_inputs(
    rows: usize,
    vocabulary: usize,
    width: usize,
    rank: usize,
    seed: u64,
) -> [Array; 4] {
    let one =
        |shape: [usize; 2], which: u64| Array::random(&shape, seed ^ (which << 32), -1.0..1.0);
    [
        one([rows, width], 1),
        one([vocabulary, width], 2),
        one([rank, width], 3),
        one([vocabulary, rank], 4),
    ]
}

/// Blocks of 64 tokens, `chunk` blocks in a chunk.
pub(crate) fn cut(rows: usize, chunk: usize) -> VocabularyCut {
    VocabularyCut {
        block: 64,
        budget: 4 * rows * 64 * chunk,
    }
}

/// Each token has a few roundings and one exp with an error of (3 + 2 |x|) · 6e-8 for |x| below 2: about 1e-6. Their sum
/// adds √200 · 6e-8. All this is relative to the magnitudes of the terms: where they cancel, more is allowed.
pub(crate) const POLICY_LOSS: f64 = 3e-6;

#[derive(Clone, Copy)]
pub(crate) struct LossSettings {
    pub(crate) clip: (f32, f32),
    pub(crate) beta: f32,
    pub(crate) kl: Kl,
}

/// Loss, mean KL and clip fraction.
pub(crate) fn policy_loss(
    log_probs: &Array,
    tokens: &[LossToken],
    settings: LossSettings,
) -> [f64; 3] {
    let mut result = [0.0; 3];
    for token in tokens {
        let l = log_probs.values[token.pair as usize];
        let ratio = (l - f64::from(token.old)).exp();
        let (below, above) = settings.clip;
        let clipped = ratio.clamp(1.0 - f64::from(below), 1.0 + f64::from(above));
        let advantage = f64::from(token.advantage);
        let (free, bounded) = (ratio * advantage, clipped * advantage);
        let d = l - f64::from(token.reference);
        let kl = match settings.kl {
            Kl::K2 => d * d / 2.0,
            Kl::K3 => (-d).exp() - 1.0 + d,
        };
        result[0] += f64::from(token.weight) * (f64::from(settings.beta) * kl - free.min(bounded));
        result[1] += kl / tokens.len() as f64;
        result[2] += f64::from(u8::from(bounded < free)) / tokens.len() as f64;
    }
    result
}

/// Loss tokens near the log-probs. No ratio is so near to a clip bound that a finite difference would cross it.
pub(crate) fn loss_tokens(
    log_probs: &Array,
    count: usize,
    seed: u64,
    clip: (f32, f32),
) -> Vec<LossToken> {
    let draw = |which: u64| Array::random(&[count], seed ^ (which << 32), -1.0..1.0).values;
    let (pair, advantage, weight, old, reference) = (draw(1), draw(2), draw(3), draw(4), draw(5));
    (0..count)
        .map(|i| {
            let pairs = log_probs.values.len();
            let pair = ((pair[i] + 1.0) / 2.0 * pairs as f64).min(pairs as f64 - 1.0) as u32;
            let l = log_probs.values[pair as usize];
            let mut old = l + 0.5 * old[i];
            for bound in [1.0 - clip.0, 1.0 + clip.1] {
                if ((l - old).exp() - f64::from(bound)).abs() < 1e-3 {
                    old += 0.01;
                }
            }
            LossToken {
                pair,
                advantage: 2.0 * advantage[i] as f32,
                weight: (1.5 + weight[i]) as f32 / count as f32,
                old: old as f32,
                reference: (l + 0.7 * reference[i]) as f32,
            }
        })
        .collect()
}

/// Philox4x32-10 on the host.
pub(crate) fn philox(mut x: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let wide = |a: u32, b: u32| u64::from(a) * u64::from(b);
        let (first, second) = (wide(0xd251_1f53, x[0]), wide(0xcd9e_8d57, x[2]));
        x = [
            (second >> 32) as u32 ^ x[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ x[3] ^ key[1],
            first as u32,
        ];
        key = [
            key[0].wrapping_add(0x9e37_79b9),
            key[1].wrapping_add(0xbb67_ae85),
        ];
    }
    x
}

/// The noise of one token.
pub(crate) fn gumbel(key: [u32; 2], token: usize) -> f64 {
    let word = philox([token as u32 / 4, 0, 0, 0], key)[token % 4];
    -(-(-(f64::from(word) + 0.5) / 4_294_967_296.0).ln_1p()).ln()
}

/// A matrix as a weight of this format holds it.
pub(crate) fn held(matrix: &Array, format: WeightFormat) -> Array {
    let values = format.rounded(&matrix.to_f32(), matrix.shape[1]);
    Array {
        shape: matrix.shape.clone(),
        values: values.into_iter().map(f64::from).collect(),
    }
}

/// Settings to check AdamW with.
pub(crate) const ADAMW: AdamW = AdamW {
    lr: 0.03,
    beta1: 0.9,
    beta2: 0.99,
    eps: 1e-8,
    weight_decay: 0.05,
    max_norm: 2.0,
};

/// Values for parameters, with the names `tensor 0`, `tensor 1` and so on.
pub(crate) fn named(arrays: &[Array]) -> Vec<NamedValues> {
    let one = |(i, a): (usize, &Array)| (format!("tensor {i}"), a.shape.clone(), a.to_f32());
    arrays.iter().enumerate().map(one).collect()
}

/// The gradients of a loss with these slopes.
pub(crate) fn gradients(parameters: &Parameters, slopes: &[Array]) -> Gradients {
    let term = |(name, slope): (&str, &Array)| {
        let leaf = parameters.get(name);
        leaf.mul(&slope.tensor(leaf.gpu())).sum()
    };
    let terms = parameters.names().zip(slopes).map(term);
    let loss = terms.reduce(|sum, term| sum.add(&term));
    loss.expect("a tensor").backward()
}

/// The values of all parameters, one after the other.
pub(crate) fn all_values(parameters: &Parameters) -> Result<Vec<f32>, GpuError> {
    let tensors = parameters.values()?.into_iter();
    Ok(tensors.flat_map(|(_, _, values)| values).collect())
}

pub(crate) fn flat(arrays: &[Array]) -> Vec<f64> {
    arrays.iter().flat_map(|a| a.values.clone()).collect()
}

/// AdamW as in PyTorch.
pub(crate) struct AdamWReference {
    pub(crate) values: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
    steps: i32,
}

impl AdamWReference {
    pub(crate) fn new(values: Vec<f64>) -> AdamWReference {
        let zeros = vec![0.0; values.len()];
        AdamWReference {
            values,
            first: zeros.clone(),
            second: zeros,
            steps: 0,
        }
    }

    /// Returns the norm before clipping.
    pub(crate) fn step(&mut self, gradient: &[f64], settings: AdamW) -> f64 {
        self.steps += 1;
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        let factor = (settings.max_norm / (norm + 1e-6)).min(1.0);
        for (i, g) in gradient.iter().enumerate() {
            let g = g * factor;
            self.first[i] += (1.0 - settings.beta1) * (g - self.first[i]);
            self.second[i] = settings.beta2 * self.second[i] + (1.0 - settings.beta2) * g * g;
            let mean = self.first[i] / (1.0 - settings.beta1.powi(self.steps));
            let square = self.second[i] / (1.0 - settings.beta2.powi(self.steps));
            self.values[i] *= 1.0 - settings.lr * settings.weight_decay;
            self.values[i] -= settings.lr * mean / (square.sqrt() + settings.eps);
        }
        norm
    }
}

/// The next values of a matrix and its momentum after a Muon update with a clipped gradient: five Newton-Schulz steps on the
/// matrix itself.
pub(crate) fn muon_step(
    values: &Array,
    momentum: &mut Array,
    gradient: &Array,
    settings: Muon,
    decay: f64,
) -> Array {
    let &[rows, columns] = &values.shape[..] else {
        panic!("a matrix");
    };
    let mean = |before: &Array| -> Array {
        let pairs = before.values.iter().zip(&gradient.values);
        Array {
            shape: before.shape.clone(),
            values: pairs
                .map(|(m, g)| settings.momentum * m + (1.0 - settings.momentum) * g)
                .collect(),
        }
    };
    *momentum = mean(momentum);
    let mut x = mean(momentum).values;
    let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt() + 1e-7;
    x.iter_mut().for_each(|v| *v /= norm);
    // left (rows x inner) times right (inner x columns)
    let product = |left: &[f64], right: &[f64], [rows, inner, columns]: [usize; 3]| -> Vec<f64> {
        let element = |at: usize| -> f64 {
            let (row, column) = (at / columns, at % columns);
            let term = |k| left[row * inner + k] * right[k * columns + column];
            (0..inner).map(term).sum()
        };
        (0..rows * columns).map(element).collect()
    };
    for _ in 0..5 {
        let transposed: Vec<f64> = (0..columns * rows)
            .map(|at| x[at % rows * columns + at / rows])
            .collect();
        let gram = product(&x, &transposed, [rows, columns, rows]);
        let once = product(&gram, &x, [rows, rows, columns]);
        let twice = product(&gram, &once, [rows, rows, columns]);
        for (i, v) in x.iter_mut().enumerate() {
            *v = 3.4445 * *v - 4.7750 * once[i] + 2.0315 * twice[i];
        }
    }
    let rate = settings.lr * (rows as f64 / columns as f64).max(1.0).sqrt();
    let next = values.values.iter().zip(&x);
    Array {
        shape: values.shape.clone(),
        values: next.map(|(v, x)| decay * v - rate * x).collect(),
    }
}
