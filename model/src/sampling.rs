//! Samples one token after each of many rows, each with its own options.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapwing_tensor::random::Random;
use lapwing_tensor::{Indices, Tensor, rl::Draw, rl::LmHead};

use crate::{AllowedReplies, ModelError};

/// How to sample a reply.
#[derive(Clone, Debug)]
pub struct SamplingOptions {
    /// Logits are divided by it; 0 selects the likeliest token.
    pub temperature: f32,
    /// Sample from this many of the likeliest tokens; 0: from all.
    pub top_k: usize,
    /// Sample from the fewest likeliest tokens whose probabilities reach this sum; 1: from all. Applied after `top_k`, as in
    /// transformers.
    pub top_p: f32,
    /// Maximum length of the reply in tokens.
    pub max_new_tokens: usize,
    /// Ids that end the reply.
    pub stop: Vec<u32>,
    /// If set, only these replies can be sampled. Log-probs and entropies are those of the restricted distribution. Not
    /// together with `top_k` or `top_p`.
    pub allowed: Option<Arc<AllowedReplies>>,
}

impl Default for SamplingOptions {
    /// Temperature 1, all tokens, at most 256 of them.
    fn default() -> SamplingOptions {
        SamplingOptions {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            max_new_tokens: 256,
            stop: Vec::new(),
            allowed: None,
        }
    }
}

/// Samples a token after each row of `hidden`, given with its random key and options, among the allowed ones; an empty set
/// allows all. It runs on the device, except for rows with top-k or top-p. A kernel takes at most `at_once` rows.
pub(crate) fn draw(
    hidden: &Tensor,
    head: &LmHead,
    asked: &[(u32, u64, &SamplingOptions)],
    allowed: &[Arc<[u32]>],
    at_once: usize,
) -> Result<Vec<Draw>, ModelError> {
    // A launch has one temperature and one set of allowed tokens.
    let mut whole: BTreeMap<(u32, &[u32]), Vec<usize>> = BTreeMap::new();
    let mut cut = Vec::new();
    for (i, (_, _, sampling)) in asked.iter().enumerate() {
        let temperature = sampling.temperature;
        match temperature > 0.0 && (sampling.top_k > 0 || sampling.top_p < 1.0) {
            true => cut.push(i),
            false => {
                let key = (temperature.to_bits(), &*allowed[i]);
                whole.entry(key).or_default().push(i);
            }
        }
    }
    // All launches come before the first wait.
    let mut launched = Vec::new();
    for ((temperature, set), members) in &whole {
        let only = (!set.is_empty()).then(|| head.only(&Indices::new(hidden.gpu(), set)));
        let head = only.as_ref().unwrap_or(head);
        for members in members.chunks(at_once) {
            let rows: Vec<u32> = members.iter().map(|&i| asked[i].0).collect();
            let words = |key: u64| [key as u32, (key >> 32) as u32];
            let keys: Vec<[u32; 2]> = members.iter().map(|&i| words(asked[i].1)).collect();
            let rows = Indices::new(hidden.gpu(), &rows);
            let temperature = f32::from_bits(*temperature);
            let draws = hidden.draw(head, &rows, &keys, temperature);
            launched.push((members, *set, draws));
        }
    }
    let mut drawn = vec![None; asked.len()];
    for (members, set, draws) in launched {
        for (&i, draw) in members.iter().zip(draws.read()?) {
            let token = set.get(draw.token as usize).copied();
            drawn[i] = Some(Draw {
                token: token.unwrap_or(draw.token),
                ..draw
            });
        }
    }
    let rows: Vec<u32> = cut.iter().map(|&i| asked[i].0).collect();
    each_row(hidden, head, &rows, |at, logits| {
        let (_, key, sampling) = asked[cut[at]];
        drawn[cut[at]] = Some(among(logits, key, sampling));
    })?;
    let drawn = drawn.into_iter();
    Ok(drawn
        .map(|draw| draw.expect("each is in one group"))
        .collect())
}

/// Logits that are copied to the host at once.
const MAX_LOGITS: usize = 4 << 20;

/// Calls `show` with the index and the logits of each row.
pub(crate) fn each_row(
    hidden: &Tensor,
    head: &LmHead,
    rows: &[u32],
    mut show: impl FnMut(usize, &[f32]),
) -> Result<(), ModelError> {
    let vocab = head.weight.rows();
    let mut at = 0;
    for rows in rows.chunks((MAX_LOGITS / vocab).max(1)) {
        let rows = Indices::new(hidden.gpu(), rows);
        for logits in hidden
            .gather_rows(&rows)
            .logits(head)
            .to_vec()?
            .chunks_exact(vocab)
        {
            show(at, logits);
            at += 1;
        }
    }
    Ok(())
}

/// Samples among the likeliest tokens of a row.
fn among(logits: &[f32], key: u64, sampling: &SamplingOptions) -> Draw {
    let scaled: Vec<f64> = logits
        .iter()
        .map(|&z| f64::from(z) / f64::from(sampling.temperature))
        .collect();
    let highest = scaled.iter().copied().fold(f64::MIN, f64::max);
    let total: f64 = scaled.iter().map(|z| (z - highest).exp()).sum();
    let log_prob = |id: usize| scaled[id] - highest - total.ln();

    let mut likeliest: Vec<usize> = (0..scaled.len()).collect();
    // Of equals, the lower id comes first.
    likeliest.sort_by(|&a, &b| scaled[b].total_cmp(&scaled[a]).then(a.cmp(&b)));
    if sampling.top_k > 0 {
        likeliest.truncate(sampling.top_k);
    }
    let kept: f64 = likeliest.iter().map(|&id| log_prob(id).exp()).sum();
    let (mut sum, mut count) = (0.0, 0);
    for &id in &likeliest {
        sum += log_prob(id).exp();
        count += 1;
        if sum >= f64::from(sampling.top_p) * kept {
            break;
        }
    }
    likeliest.truncate(count);

    let mut left = Random::new(key).uniform() * sum;
    let chosen = likeliest.iter().find(|&&id| {
        left -= log_prob(id).exp();
        left < 0.0
    });
    let id = *chosen.unwrap_or(&likeliest[count - 1]);
    let entropy: f64 = (0..scaled.len())
        .map(|id| -log_prob(id).exp() * log_prob(id))
        .filter(|h| h.is_finite())
        .sum();
    Draw {
        token: id as u32,
        log_prob: log_prob(id) as f32,
        entropy: entropy as f32,
    }
}

#[cfg(test)]
mod tests {
    use lapwing_tensor::random::mix;

    use super::*;

    fn drawn(sampling: &SamplingOptions) -> Vec<u32> {
        let logits = [0.0f32, 3.0, 2.0, 3.0, -1.0];
        let mut ids: Vec<u32> = (0..2000)
            .map(|key| among(&logits, mix(key), sampling).token)
            .collect();
        ids.sort_unstable();
        ids
    }

    fn distinct(mut ids: Vec<u32>) -> Vec<u32> {
        ids.dedup();
        ids
    }

    #[test]
    fn only_the_likeliest_tokens_are_sampled() {
        let sampling = |top_k, top_p, temperature| SamplingOptions {
            top_k,
            top_p,
            temperature,
            ..SamplingOptions::default()
        };
        assert_eq!(distinct(drawn(&sampling(0, 1.0, 1.0))), [0, 1, 2, 3, 4]);
        assert_eq!(distinct(drawn(&sampling(3, 1.0, 1.0))), [1, 2, 3]);
        assert_eq!(distinct(drawn(&sampling(1, 1.0, 1.0))), [1]);
        // Chances 0.41, 0.41, 0.15, 0.02, 0.01: two reach 0.8, three 0.9.
        assert_eq!(distinct(drawn(&sampling(0, 0.8, 1.0))), [1, 3]);
        assert_eq!(distinct(drawn(&sampling(0, 0.9, 1.0))), [1, 2, 3]);
        // Of the three, renormalised to 0.42, 0.42, 0.16.
        assert_eq!(distinct(drawn(&sampling(3, 0.83, 1.0))), [1, 3]);
        // Hotter, the first two are less likely, and the third is needed.
        assert_eq!(distinct(drawn(&sampling(0, 0.8, 2.0))), [1, 2, 3]);
    }

    #[test]
    fn tokens_are_sampled_with_their_probabilities() {
        let three = SamplingOptions {
            top_k: 3,
            ..SamplingOptions::default()
        };
        let twos = drawn(&three).iter().filter(|&&id| id == 2).count();
        // 0.155 of 2000; four standard deviations are 65.
        assert!((245..375).contains(&twos), "{twos}");
    }

    #[test]
    fn log_prob_and_entropy_are_of_the_whole_distribution() {
        let flat = among(
            &[1.0; 8],
            3,
            &SamplingOptions {
                top_k: 2,
                ..SamplingOptions::default()
            },
        );
        assert!((flat.log_prob + 8f32.ln()).abs() < 1e-6);
        assert!((flat.entropy - 8f32.ln()).abs() < 1e-6);
    }
}
