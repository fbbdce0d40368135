//! The measured phases of a run: decoding, the forward pass of prompts, updates, a training step.

use lapwing_learn::ms_grpo;
use lapwing_model::{
    Adapter, GenerationRequest, KvArena, LoraConfig, Model, SamplingOptions, TokenTree, Tokens,
    generate,
};
use lapwing_tensor::Indices;

use lapwing_train::Error;
use lapwing_train::config::Config;
use lapwing_train::state::{RunPurpose, State};

use super::cases::{ADAMW, Case, PROMPT, SEQUENCES, SHARED, numbers_of};

/// Prompts that go through the model together.
pub(super) const PROMPTS: usize = 4;
/// Replies of an update, and the tokens of each.
pub(super) const REPLIES: usize = 20;
pub(super) const REPLY: usize = 16;
/// Tokens of each sequence in a run of decoding, whose row has one.
const STEPS: usize = 32;

/// The phases of a model with a LoRA adapter on all layers; their names lack the model. A phase counts the products of its
/// matrices.
pub(super) fn phases(model: &Model) -> [Case; 5] {
    let prefill = |name, prompts| turn(name, model, [prompts, PROMPT, 1], 0, false);
    let decode = |name, sequences| Case {
        units: STEPS,
        ..turn(name, model, [sequences, PROMPT, STEPS], SHARED, true)
    };
    [
        decode("decode/1 sequence", 1),
        decode("decode/25 sequences", SEQUENCES),
        prefill("prefill/1 prompt", 1),
        prefill("prefill/4 prompts", PROMPTS),
        update("update/20 replies", model, [REPLIES, PROMPT, REPLY]),
    ]
}

/// The cost of a turn and of its update, by the size of the group, the length of the prompt and that of the replies.
pub(super) fn growth(model: &Model) -> Vec<Case> {
    type Shape = fn(usize) -> [usize; 3];
    const AXES: [(&str, [usize; 4], Shape); 3] = [
        ("group", [2, 8, 32, 128], |replies| [replies, 128, 4]),
        ("prompt", [32, 128, 512, 1024], |prompt| [8, prompt, 4]),
        ("reply", [1, 4, 16, 64], |reply| [8, 128, reply]),
    ];
    let mut cases = Vec::new();
    for (axis, sizes, shape) in AXES {
        let name = |what, size| format!("growth/{what} by {axis} {size}");
        cases.extend(sizes.map(|n| turn(name("turn", n), model, shape(n), shape(n)[1], false)));
        cases.extend(sizes.map(|n| update(name("update", n), model, shape(n))));
    }
    cases
}

/// Token ids of a sequence, of which the first `shared` are those of any other.
fn ids(model: &Model, sequence: usize, shared: usize, length: usize) -> Vec<u32> {
    let own = |i: usize| if i < shared { 0 } else { sequence + 1 };
    let id = |i: usize| (i * i * 7 + i + 31 * own(i)) % model.config().vocab;
    (0..length).map(|i| id(i) as u32).collect()
}

/// Replies to prompts that begin alike, and the forward pass of these prompts, unless they are kept from an earlier run.
fn turn(
    name: impl Into<String>,
    model: &Model,
    [replies, prompt, reply]: [usize; 3],
    shared: usize,
    keeps: bool,
) -> Case {
    let [matrices, low_rank, head] = numbers_of(model.config());
    let blocks = matrices + low_rank;
    let prompts = shared + replies * (prompt - shared);
    let tokens = usize::from(!keeps) * prompts + replies * (reply - 1);
    let operations = 2 * (tokens * blocks + replies * reply * head);
    let work = [operations, 2 * reply * (blocks + head)];
    let (model, cost) = (model.clone(), (format!("{replies}x{prompt}+{reply}"), work));
    Case::new(name, cost, move |_| {
        let (adapter, _) = Adapter::new(&model, LoraConfig::default(), 1)?;
        let mut arena = KvArena::new(&model, 4096, 1 << 16);
        let sequence = |i| ids(&model, i, shared, prompt);
        let prompts: Vec<Vec<u32>> = (0..replies).map(sequence).collect();
        // Almost uniform and with new keys, so that no two replies share their first tokens, which would be computed once.
        let sampling = SamplingOptions {
            temperature: 1000.0,
            max_new_tokens: reply,
            ..SamplingOptions::default()
        };
        let mut key = 0;
        Ok(move || {
            if !keeps {
                arena.clear();
            }
            let request = |prompt: Vec<u32>| {
                key += 1;
                GenerationRequest { prompt, key }
            };
            let requests: Vec<_> = prompts.iter().cloned().map(request).collect();
            let (adapter, watch) = (Some(&adapter), &mut |_, _: &[u32]| true);
            generate(&model, adapter, &mut arena, &requests, &sampling, watch)?;
            Ok(())
        })
    })
}

/// An update on replies to one prompt: log-probs, gradients and an optimiser step.
fn update(name: impl Into<String>, model: &Model, shape: [usize; 3]) -> Case {
    let [replies, prompt, reply] = shape;
    let [matrices, low_rank, head] = numbers_of(model.config());
    let (tokens, scored) = (prompt + replies * (reply - 1), replies * reply);
    // Forward, and the gradient of each input; of the adapter also its own gradient. The head's logits are computed twice.
    let operations = tokens * (4 * matrices + 6 * low_rank) + 6 * scored * head;
    let bytes = 4 * matrices + 36 * low_rank + 6 * head;
    let cost = (format!("{replies}x{prompt}+{reply}"), [operations, bytes]);
    let model = model.clone();
    Case::new(name, cost, move |gpu| {
        let (adapter, mut parameters) = Adapter::new(&model, LoraConfig::default(), 1)?;
        let mut tree = TokenTree::default();
        let sequence = |i| ids(&model, i, prompt, prompt + reply - 1);
        let leaves: Vec<_> = (0..replies).map(|i| tree.insert(&sequence(i))).collect();
        let packed = tree.pack();
        let paths = leaves.into_iter().map(|leaf| packed.path(leaf));
        let scored = paths.map(|mut path| path.split_off(prompt - 1));
        let rows = scored.collect::<Vec<_>>().concat();
        let targets: Vec<u32> = rows.iter().map(|row| row % 50).collect();
        let tokens = Tokens::new(gpu, &packed);
        let [rows, targets] = [rows, targets].map(|ids| Indices::new(gpu, &ids));
        Ok(move || {
            let hidden = model.forward(&tokens, Some(&adapter));
            let scored = hidden.log_probs(&model.head(Some(&adapter)), &rows, &targets, &[], 1.0);
            parameters.accumulate(&scored.log_probs.mean().backward());
            drop(parameters.step(ADAMW));
            Ok(())
        })
    })
}

/// The second training step of the default preset, again and again, with the weights of the first.
pub(super) fn step() -> Case {
    let cost = ("100 episodes".to_owned(), [0, 0]);
    Case::new("step/frozen-lake", cost, |gpu| {
        let config = Config::load("frozen-lake", &[])?;
        let mut state = State::new(gpu, None, config, RunPurpose::Train, &())?;
        let fresh = state.snapshot()?;
        Ok(move || {
            state.restore(&fresh);
            let settings = state.config.language();
            ms_grpo::step(&mut state.learner, &settings, 1, &()).map_err(Error::Learn)?;
            Ok(())
        })
    })
}
