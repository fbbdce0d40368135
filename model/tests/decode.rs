//! Decoding over the KV arena against the full forward pass.

use std::collections::HashSet;

use lapwing_model::{
    Adapter, GeneratedReply, GenerationRequest, KvArena, LoraConfig, Model, ModelConfig,
    ModelShape, SPARE_ROWS, SamplingOptions, Targets, TokenTree, Tokens, initial_weights,
};
use lapwing_tensor::{Indices, Parameters, Tensor, check};

use crate::support::*;

fn requests(count: usize) -> Vec<GenerationRequest> {
    let sequences = related_sequences(5, count, 384);
    sequences
        .into_iter()
        .enumerate()
        .map(|(i, prompt)| GenerationRequest {
            prompt,
            key: i as u64,
        })
        .collect()
}

const SAMPLING: SamplingOptions = SamplingOptions {
    temperature: 0.7,
    top_k: 0,
    top_p: 1.0,
    max_new_tokens: 20,
    stop: vec![],
    allowed: None,
};

/// More than these tests need.
const ROWS: usize = 4096;

/// The arena starts too small on purpose, so that it grows twice.
fn replies(
    name: &str,
    requests: &[GenerationRequest],
    sampling: &SamplingOptions,
) -> Vec<GeneratedReply> {
    let (model, adapter, _) = load_adapted(name);
    let mut arena = KvArena::new(&model, 40, ROWS);
    replies_of(&model, Some(&adapter), &mut arena, requests, sampling).unwrap()
}

#[test]
fn sampled_log_probs_equal_those_of_the_packed_forward_pass_to_the_bit() {
    for name in CHECKPOINTS {
        let requests = requests(6);
        let replies = replies(name, &requests, &SAMPLING);
        let sequences: Vec<Vec<u32>> = requests
            .iter()
            .zip(&replies)
            .map(|(q, r)| [&q.prompt[..], &r.ids].concat())
            .collect();
        let (packed, paths) = pack(&sequences);
        let (model, adapter, _) = load_adapted(name);
        let gpu = model.gpu();
        let (mut rows, mut targets, mut sampled) = (vec![], vec![], Vec::<f32>::new());
        for ((request, reply), path) in requests.iter().zip(&replies).zip(&paths) {
            rows.extend(&path[request.prompt.len() - 1..]);
            targets.extend(&reply.ids);
            sampled.extend(&reply.log_probs);
        }
        let hidden = model.forward(&Tokens::new(gpu, &packed), Some(&adapter));
        let (rows, targets) = (Indices::new(gpu, &rows), Indices::new(gpu, &targets));
        let scored = hidden.log_probs(
            &model.head(Some(&adapter)),
            &rows,
            &targets,
            &[],
            SAMPLING.temperature,
        );
        assert_eq!(scored.log_probs.to_vec().unwrap(), sampled, "{name}");
    }
}

/// Compares log-probs and gradients of a packed tree, from a forward pass and from what sampling kept.
fn assert_known(model: &Model, adapter: Option<&Adapter>, parameters: &Parameters) {
    let requests = requests(6);
    let mut arena = KvArena::new(model, 40, ROWS);
    let sample =
        |arena: &mut KvArena| replies_of(model, adapter, arena, &requests, &SAMPLING).unwrap();
    let plain = sample(&mut arena);
    arena.keep_results(model, ROWS);
    let replies = sample(&mut arena);
    assert_eq!(replies, plain);
    let replies = requests.iter().zip(&replies);
    let sequence = |(q, r): (&GenerationRequest, &GeneratedReply)| [&q.prompt[..], &r.ids].concat();
    let (packed, _) = pack(&replies.map(sequence).collect::<Vec<_>>());
    let gpu = model.gpu();
    let tokens = Tokens::new(gpu, &packed);
    let every: Vec<u32> = (0..packed.len() as u32).collect();
    let (rows, targets) = (Indices::new(gpu, &every), Indices::new(gpu, &packed.ids));
    let log_probs_and_gradient = |hidden: Tensor| {
        let head = model.head(adapter);
        let scored = hidden.log_probs(&head, &rows, &targets, &[], 1.0);
        let gradients = scored.log_probs.sum().backward();
        let gradient = |name| gradients.get(&parameters.get(name)).unwrap().to_vec();
        let gradient: Result<Vec<_>, _> = parameters.names().map(gradient).collect();
        (scored.log_probs.to_vec().unwrap(), gradient.unwrap())
    };
    let wanted = log_probs_and_gradient(model.forward(&tokens, adapter));
    let kept = arena.kept(&packed).unwrap();
    let known = log_probs_and_gradient(model.forward_known(&tokens, adapter, &kept));
    assert!(known == wanted);
}

#[test]
fn kept_results_give_the_log_probs_and_gradients_of_a_forward_pass_to_the_bit() {
    for name in CHECKPOINTS {
        let (model, adapter, parameters) = load_adapted(name);
        assert_known(&model, Some(&adapter), &parameters);
    }
    let config = ModelConfig::qwen2(ModelShape {
        vocab: 384,
        width: 64,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        mlp_width: 96,
    });
    let gpu = check::gpu();
    let all = Parameters::new(&gpu, &initial_weights(&config, 1));
    let model = Model::over(&gpu, config, &all);
    assert_known(&model, None, &all);
    // Blocks without an adapter, before the first with one and after it.
    for pattern in [r".*\.1\..*", r".*\.0\.mlp.*|lm_head", "lm_head"] {
        let targets = Targets::Pattern(pattern.into());
        let lora = LoraConfig {
            targets,
            ..LoraConfig::default()
        };
        let frozen = model.without_gradients();
        let (adapter, parameters) = Adapter::new(&frozen, lora, 2).unwrap();
        assert_known(&frozen, Some(&adapter), &parameters);
    }
}

#[test]
fn results_are_kept_of_all_tokens_or_of_none() {
    let model = load("llama");
    let kept = |arena: &KvArena, ids: &[u32]| {
        let mut tree = TokenTree::default();
        tree.insert(ids);
        arena.kept(&tree.pack()).is_some()
    };
    let mut arena = KvArena::new(&model, 40, ROWS);
    arena.prefill(&model, None, &[&[1, 2, 3]]).unwrap();
    assert!(!kept(&arena, &[1, 2, 3]), "nobody asked for them");
    arena.keep_results(&model, 100);
    arena.prefill(&model, None, &[&[1, 2, 3], &[1, 4]]).unwrap();
    assert!(kept(&arena, &[1, 2, 3]) && kept(&arena, &[1, 4]));
    assert!(!kept(&arena, &[1, 5]), "this was not computed");
    arena.keep_nothing();
    arena.prefill(&model, None, &[&[1, 2, 3]]).unwrap();
    assert!(!kept(&arena, &[1, 2, 3]), "nobody asks for them any more");
    // More than 100 tokens, and what their alignment takes.
    arena.keep_results(&model, 100);
    let long: Vec<u32> = (0..300).map(|i| i % 100).collect();
    arena.prefill(&model, None, &[&[1, 2, 3]]).unwrap();
    arena.prefill(&model, None, &[&long]).unwrap();
    assert!(!kept(&arena, &[1, 2, 3]) && !kept(&arena, &long));
    arena.keep_results(&model, 100);
    arena.prefill(&model, None, &[&[1, 2, 3]]).unwrap();
    assert!(!kept(&arena, &[1, 2, 3]), "there were too many before");
    // A model that recomputes has no memory for them.
    let sparing = model.clone().with_recomputation(true);
    let mut arena = KvArena::new(&model, 40, ROWS);
    arena.keep_results(&sparing, 100);
    arena.prefill(&sparing, None, &[&[1, 2, 3]]).unwrap();
    assert!(!kept(&arena, &[1, 2, 3]));
}

#[test]
fn replies_do_not_depend_on_the_batch() {
    let requests = requests(5);
    let together = replies("qwen2", &requests, &SAMPLING);
    for (request, reply) in requests.iter().zip(&together) {
        assert_eq!(
            &replies("qwen2", std::slice::from_ref(request), &SAMPLING)[0],
            reply
        );
    }
}

#[test]
fn equal_prompts_with_equal_keys_reply_alike_and_with_other_keys_differ() {
    let request = &requests(1)[0];
    let other = GenerationRequest {
        key: 99,
        ..request.clone()
    };
    let replies = replies(
        "llama",
        &[request.clone(), request.clone(), other],
        &SAMPLING,
    );
    assert_eq!(replies[0], replies[1]);
    assert_ne!(replies[0].ids, replies[2].ids);
}

#[test]
fn a_stop_id_ends_one_reply_only() {
    let requests = requests(4);
    let free = replies("qwen3", &requests, &SAMPLING);
    let stop = free[0].ids[7];
    let stopped = replies(
        "qwen3",
        &requests,
        &SamplingOptions {
            stop: vec![stop],
            ..SAMPLING
        },
    );
    for (free, stopped) in free.iter().zip(&stopped) {
        let end = free.ids.iter().position(|&id| id == stop);
        let wanted = end.map_or(free.ids.len(), |end| end + 1);
        assert_eq!(stopped.ids, free.ids[..wanted]);
        assert_eq!(stopped.log_probs, free.log_probs[..wanted]);
        assert_eq!(stopped.stopped, end.is_some());
        assert_eq!(stopped.entropies.len(), wanted);
    }
    assert!(stopped[0].stopped);
}

#[test]
fn every_distinct_prefix_is_computed_once() {
    let model = load("qwen2");
    let requests = requests(6);
    let mut arena = KvArena::new(&model, 512, ROWS);
    let mut wanted = HashSet::new();
    // The last round computes nothing: the arena has all its prompts and replies.
    for keys in [0, 100, 100] {
        let keyed: Vec<GenerationRequest> = requests
            .iter()
            .map(|r| GenerationRequest {
                key: r.key + keys,
                ..r.clone()
            })
            .collect();
        let replies = replies_of(&model, None, &mut arena, &keyed, &SAMPLING).unwrap();
        for (request, reply) in keyed.iter().zip(&replies) {
            let run = [&request.prompt[..], &reply.ids[..reply.ids.len() - 1]].concat();
            wanted.extend((1..=run.len()).map(|n| run[..n].to_vec()));
        }
        assert_eq!(arena.computed(), wanted.len() as u64);
    }
}

#[test]
fn a_cleared_arena_computes_anew_and_the_same() {
    let model = load("qwen2");
    let requests = requests(3);
    let mut arena = KvArena::new(&model, 512, ROWS);
    let first = replies_of(&model, None, &mut arena, &requests, &SAMPLING).unwrap();
    let computed = arena.computed();
    arena.clear();
    let second = replies_of(&model, None, &mut arena, &requests, &SAMPLING).unwrap();
    assert_eq!(first, second);
    assert_eq!(arena.computed(), 2 * computed);
}

#[test]
fn an_empty_list_of_requests_is_no_error() {
    let model = load("qwen2");
    let mut arena = KvArena::new(&model, 8, ROWS);
    let none = replies_of(&model, None, &mut arena, &[], &SAMPLING).unwrap();
    assert!(none.is_empty());
    let silent = SamplingOptions {
        max_new_tokens: 0,
        ..SAMPLING
    };
    let replies = replies_of(&model, None, &mut arena, &requests(2), &silent).unwrap();
    assert!(
        replies
            .iter()
            .all(|reply| reply.ids.is_empty() && !reply.stopped)
    );
}

#[test]
fn an_arena_that_holds_one_reply_at_a_time_gives_the_same_replies() {
    let requests = requests(5);
    let wanted = replies("llama", &requests, &SAMPLING);
    let (model, adapter, _) = load_adapted("llama");
    let longest = requests.iter().map(|r| r.prompt.len()).max().unwrap();
    let mut arena = KvArena::new(&model, 40, longest + 20 + SPARE_ROWS);
    let got = replies_of(&model, Some(&adapter), &mut arena, &requests, &SAMPLING).unwrap();
    assert_eq!(got, wanted);
    assert!(arena.rows() <= arena.most_rows());
    let mut arena = KvArena::new(&model, 8, longest);
    let error = replies_of(&model, None, &mut arena, &requests, &SAMPLING).unwrap_err();
    assert!(
        error.to_string().contains("the KV arena is full"),
        "{error}"
    );
}
