//! Replies that join and leave a batch are equal to replies sampled alone.

use lapwing_model::{
    BatchRequest, FinishReason, GenerationRequest, KvArena, ReplyBatch, SPARE_ROWS, SampledToken,
    SamplingOptions, TokenScore,
};

use crate::support::*;

/// Requests with different sampling options, some with scores.
fn wanted(count: usize) -> Vec<BatchRequest> {
    let kinds = [(0.0, 0, 1.0), (0.7, 0, 1.0), (1.0, 5, 1.0), (1.3, 0, 0.8)];
    let sequences = related_sequences(7, count, 384);
    let joining = |(i, prompt): (usize, Vec<u32>)| {
        let (temperature, top_k, top_p) = kinds[i % kinds.len()];
        BatchRequest {
            request: GenerationRequest {
                prompt,
                key: i as u64,
            },
            sampling: SamplingOptions {
                temperature,
                top_k,
                top_p,
                max_new_tokens: 5 + 7 * (i % 4),
                stop: if i % 3 == 0 {
                    vec![]
                } else {
                    (0..40).collect()
                },
                allowed: None,
            },
            scores: [None, Some(0), Some(3)][i % 3],
        }
    };
    sequences.into_iter().enumerate().map(joining).collect()
}

/// Samples each alone, in its own arena.
fn alone(name: &str, wanted: &[BatchRequest]) -> Vec<Vec<SampledToken>> {
    let (model, adapter, _) = load_adapted(name);
    let reply = |joining: &BatchRequest| {
        let mut arena = KvArena::new(&model, 64, 4096);
        let mut batch = ReplyBatch::new(&model, Some(&adapter));
        batch.join(&mut arena, vec![joining.clone()]).unwrap();
        let mut drawn = Vec::new();
        while !batch.is_empty() {
            drawn.extend(batch.step(&mut arena).unwrap());
        }
        drawn
    };
    wanted.iter().map(reply).collect()
}

/// Samples all replies in one batch, which two replies join before every other token if there is room. Also returns the
/// number of computed tokens.
fn in_batch(name: &str, wanted: &[BatchRequest], rows: usize) -> (Vec<Vec<SampledToken>>, u64) {
    let (model, adapter, _) = load_adapted(name);
    let mut arena = KvArena::new(&model, 64, rows);
    let mut batch = ReplyBatch::new(&model, Some(&adapter));
    let mut drawn = vec![Vec::new(); wanted.len()];
    let mut begun = 0;
    for round in 0.. {
        while begun < wanted.len() && begun < round + 2 {
            if !batch.has_room(&arena, &wanted[begun..=begun]) {
                break;
            }
            let first = batch.join(&mut arena, vec![wanted[begun].clone()]).unwrap();
            assert_eq!(first, begun as u64);
            begun += 1;
        }
        if batch.is_empty() && begun == wanted.len() {
            return (drawn, arena.computed());
        }
        for one in batch.step(&mut arena).unwrap() {
            drawn[one.reply as usize].push(one);
        }
    }
    unreachable!()
}

fn without_number(drawn: Vec<Vec<SampledToken>>) -> Vec<Vec<SampledToken>> {
    let plain = |drawn: Vec<SampledToken>| {
        drawn
            .into_iter()
            .map(|d| SampledToken { reply: 0, ..d })
            .collect()
    };
    drawn.into_iter().map(plain).collect()
}

#[test]
fn replies_are_equal_in_a_batch_and_after_an_overflow() {
    for name in ["qwen2", "llama"] {
        let wanted = wanted(10);
        let expected = without_number(alone(name, &wanted));
        let (together, computed) = in_batch(name, &wanted, 4096);
        assert_eq!(without_number(together), expected, "{name}");
        for (joining, drawn) in wanted.iter().zip(&expected) {
            let last = drawn.last().unwrap();
            let stopped = joining.sampling.stop.contains(&last.token);
            let end = if stopped {
                FinishReason::StopToken
            } else {
                FinishReason::MaxTokens
            };
            assert_eq!(last.finish, Some(end));
            assert!(drawn[..drawn.len() - 1].iter().all(|d| d.finish.is_none()));
            assert!(
                drawn
                    .iter()
                    .all(|d| d.score.is_some() == joining.scores.is_some())
            );
        }
        // Room for the longest two: finished replies are removed, and those in progress are computed again.
        let own =
            |j: &BatchRequest| j.request.prompt.len() + j.sampling.max_new_tokens + SPARE_ROWS;
        let longest = wanted.iter().map(own).max().unwrap();
        let (tight, more) = in_batch(name, &wanted, 2 * longest);
        assert_eq!(without_number(tight), expected, "{name}");
        assert!(
            more > computed,
            "{more} for {computed}: the arena did not overflow"
        );
    }
}

#[test]
fn scores_while_sampling_equal_scores_of_the_sequence() {
    let (model, adapter, _) = load_adapted("qwen3");
    let mut arena = KvArena::new(&model, 64, 4096);
    let mut batch = ReplyBatch::new(&model, Some(&adapter));
    let mut joining = wanted(4).remove(3);
    joining.sampling.stop.clear();
    joining.scores = Some(3);
    let mut ids = joining.request.prompt.clone();
    let before = ids.len();
    batch.join(&mut arena, vec![joining]).unwrap();
    let mut told: Vec<TokenScore> = Vec::new();
    while !batch.is_empty() {
        let drawn = batch.step(&mut arena).unwrap().remove(0);
        ids.push(drawn.token);
        told.extend(drawn.score);
    }
    arena.clear();
    let scored = batch.score(&mut arena, &ids, 3).unwrap();
    assert_eq!(scored.len(), ids.len() - 1);
    assert_eq!(scored[before - 1..], told);
    for (told, id) in scored.iter().zip(&ids[1..]) {
        assert_eq!(told.likeliest.len(), 3);
        assert!(told.likeliest.is_sorted_by(|a, b| a.1 >= b.1), "{told:?}");
        let same = told.likeliest.iter().find(|(other, _)| other == id);
        assert!(same.is_none_or(|(_, log_prob)| *log_prob == told.log_prob));
        assert!(
            same.is_some() || told.log_prob <= told.likeliest[2].1,
            "{told:?}"
        );
    }
}

#[test]
fn a_leaving_reply_makes_room() {
    let wanted = wanted(2);
    let expected = alone("qwen2", &wanted);
    let (model, adapter, _) = load_adapted("qwen2");
    let rows: usize = wanted
        .iter()
        .map(|j| j.request.prompt.len() + j.sampling.max_new_tokens + SPARE_ROWS)
        .sum();
    let mut arena = KvArena::new(&model, 8, rows);
    let mut batch = ReplyBatch::new(&model, Some(&adapter));
    batch.join(&mut arena, wanted.clone()).unwrap();
    assert!(!batch.has_room(&arena, &wanted[..1]));
    let mut drawn = batch.step(&mut arena).unwrap();
    batch.leave(0);
    assert_eq!(batch.len(), 1);
    assert!(batch.has_room(&arena, &wanted[..1]));
    drawn.remove(0);
    while !batch.is_empty() {
        drawn.extend(batch.step(&mut arena).unwrap());
    }
    assert_eq!(without_number(vec![drawn])[0], expected[1]);
}

#[test]
fn a_reply_that_cannot_fit_empties_the_batch() {
    let wanted = wanted(2);
    let (model, adapter, _) = load_adapted("qwen2");
    let longest = wanted[0].request.prompt.len();
    let mut arena = KvArena::new(&model, 8, longest - 1);
    let mut batch = ReplyBatch::new(&model, Some(&adapter));
    let mut short = wanted[1].clone();
    short.request.prompt.truncate(1);
    batch.join(&mut arena, vec![short]).unwrap();
    assert_eq!(batch.len(), 1);
    let error = batch.join(&mut arena, vec![wanted[0].clone()]).unwrap_err();
    assert!(
        error.to_string().contains("the KV arena is full"),
        "{error}"
    );
    assert!(batch.is_empty());
}
