//! The memory plan: the device memory that a run needs, and whether the device has it, known before anything is loaded.

use std::fmt;

use lapwing_model::{ModelConfig as Model, ModelDirectory, ModelError, SPARE_ROWS, StoredAdapter};
use lapwing_tensor::{Caps, WeightFormat};

use crate::config::Config;
use lapwing_learn::config::{AdvantageEstimator, Weights};
use lapwing_learn::critic::Head;

/// Part of the device's memory that is left to the driver, the desktop and kernels.
const HEADROOM: u64 = 10;
/// The arena may always take this much; it keeps the results of earlier rounds.
const CACHE: u64 = 64 << 20;
/// ... and at most what this many rounds may need: states and replies repeat, so few games need more.
const ROUNDS: usize = 4;

/// The inputs of the plan, beside the model.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryDemand {
    /// Trained numbers, in an adapter or in the whole model; 0: nothing is trained.
    pub trained: u64,
    /// Whether these are the numbers of the whole model.
    pub whole: bool,
    /// Whether the model is held in its stored precision: for playing, under an adapter, or as the reference of a model
    /// whose weights are all trained.
    pub frozen: bool,
    /// Numbers in adapters that are not trained.
    pub used: u64,
    /// Numbers in a critic; 0: there is none.
    pub critic: u64,
    /// The maximum of numbers that a critic keeps about the states of a step.
    pub states: u64,
    /// Rank of the adapter.
    pub rank: usize,
    /// `train.tokens_per_batch`; 0 if nothing is trained.
    pub tokens_per_batch: usize,
    /// Tokens of the longest prompt and reply together.
    pub longest: usize,
    /// Tokens of these that can be reduced to one.
    pub reply: usize,
    /// Tokens that all prompts have in common at their beginning.
    pub shared: usize,
    /// Episodes played at once.
    pub episodes: usize,
    /// The advice if no smaller batch helps, but a shorter reply does.
    pub cure: &'static str,
}

/// The memory of a run, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPlan {
    /// The frozen weights; if the whole model is trained, those of the reference.
    pub weights: u64,
    /// The maximum of keys, values and hidden states of the episodes in progress.
    pub arena: u64,
    /// The activations of a batch, and the states that a critic learns from.
    pub activations: u64,
    /// The trained weights, including a critic's, with gradients and the optimiser's two moments.
    pub optimiser: u64,
    /// Whether the whole model is trained instead of an adapter.
    pub whole: bool,
    /// The device's memory; `None` if the device does not report it.
    pub memory: Option<u64>,
    /// The maximum number of tokens in the arena.
    pub arena_rows: usize,
    /// Whether an update computes blocks again instead of keeping what their gradients need.
    pub recomputes: bool,
}

/// The run does not fit: the reason, and the setting to change.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct MemoryError(String);

/// Returns the advice if a prompt and its reply may only have this many tokens.
pub(crate) fn shorter(prompt: usize, most: usize) -> String {
    match most.checked_sub(prompt) {
        None | Some(0) => "no reply fits beside such a prompt: make the game's board smaller (game.options), or use \
                           a model for longer texts"
            .to_owned(),
        Some(room) => format!("set policy.max_new_tokens={room} or less"),
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "needs up to {}", size(self.total()))?;
        if let Some(memory) = self.memory {
            write!(f, " of the device's {}", size(memory))?;
        }
        let [held, trained] = match self.whole {
            false => ["weights", "adapter and optimiser"],
            true => ["reference", "weights and optimiser"],
        };
        write!(f, ": {held} {}", size(self.weights))?;
        write!(f, ", keys and values {}", size(self.arena))?;
        write!(f, ", activations {}", size(self.activations))?;
        if self.recomputes {
            f.write_str(" (blocks are computed again in the update)")?;
        }
        match self.optimiser {
            0 => Ok(()),
            bytes => write!(f, ", {trained} {}", size(bytes)),
        }
    }
}

/// Formats a number of bytes in the largest fitting binary unit.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.2} {}", units[unit]),
    }
}

impl MemoryPlan {
    /// Plans the memory of a device.
    ///
    /// # Errors
    /// If it does not suffice; the error names the setting to change.
    pub fn new(
        caps: &Caps,
        checkpoint: &ModelDirectory,
        demand: &MemoryDemand,
    ) -> Result<MemoryPlan, MemoryError> {
        let rounded = [None, Some(WeightFormat::Q8), Some(WeightFormat::Q4)];
        let weights = rounded.map(|format| checkpoint.device_bytes(format));
        let device = (caps.memory, caps.max_binding);
        plan(device, checkpoint.config(), weights, demand)
    }

    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.weights + self.arena + self.activations + self.optimiser
    }

    /// Returns whether the run needs more than half of the memory that it may take, or more work to save memory.
    pub fn is_tight(&self) -> bool {
        self.recomputes || self.total() > self.allowed() / 2
    }

    fn allowed(&self) -> u64 {
        self.memory
            .map_or(u64::MAX, |memory| memory - memory / HEADROOM)
    }
}

/// `weights`: the bytes of the frozen weights as they are, and rounded to 8 and 4 bits.
fn plan(
    (memory, max_binding): (Option<u64>, u64),
    model: &Model,
    [weights, rounded @ ..]: [u64; 3],
    demand: &MemoryDemand,
) -> Result<MemoryPlan, MemoryError> {
    let most = model.most_tokens(max_binding, demand.rank);
    let (tokens, reply) = (demand.tokens_per_batch, demand.reply);
    let seen = size(max_binding);
    if tokens > 0 && demand.longest > most {
        let prompt = demand.longest - reply;
        return Err(MemoryError(format!(
            "a prompt may have {prompt} tokens and its reply {reply} (policy.max_new_tokens), and this device's kernels see \
             {most} tokens of this model at once: {}",
            shorter(prompt, most)
        )));
    }
    if tokens > most {
        return Err(MemoryError(format!(
            "train.tokens_per_batch = {tokens} is too large for this device: its kernels see {seen} of a buffer, \
             which is {most} tokens of this model; set train.tokens_per_batch={most} or less"
        )));
    }
    let matrix = |(_, shape): &(String, Vec<usize>)| 4 * shape.iter().product::<usize>() as u64;
    let bytes = model.tensors().iter().map(matrix).max().unwrap_or(0);
    if demand.whole && bytes > max_binding {
        return Err(MemoryError(format!(
            "train.weights = \"all\": the largest matrix of this model has {} in 32 bits, and this device's kernels \
             see {seen} of a buffer; set train.weights=\"lora\", or use a smaller model",
            size(bytes)
        )));
    }
    let row = model.arena_row_bytes();
    // One round of all episodes, or a small amount.
    let episode = demand.longest + SPARE_ROWS;
    let round = (episode - demand.shared)
        .saturating_mul(demand.episodes)
        .saturating_add(demand.shared);
    let possible = model.most_arena_rows(max_binding);
    // A single text repeats nothing.
    let cheap = if demand.episodes > 1 { CACHE / row } else { 0 };
    let wanted = round.max(cheap as usize).min(possible);
    // Values, gradients as computed and as gathered, two moments.
    let optimiser = 4 * (5 * (demand.trained + demand.critic) + demand.used);
    let at_once = most.min(4096).min(round);
    let prefill = model.forward_bytes(at_once, demand.episodes);
    let with = |recomputes: bool, tokens: usize, rows: usize| {
        let update = match tokens {
            0 => 0,
            // A turn that is longer than a batch is processed as a whole.
            tokens => {
                let (tokens, rank) = (tokens.max(demand.longest), demand.rank);
                let update = model.update_bytes(tokens, rank, recomputes);
                // Without recomputation the rollout may have kept what the update needs.
                let known = (!recomputes).then(|| model.known_update_bytes(tokens, rank));
                update.max(known.unwrap_or_default())
            }
        };
        MemoryPlan {
            weights: if demand.frozen { weights } else { 0 },
            arena: rows as u64 * row,
            activations: update.max(prefill) + 4 * demand.states,
            optimiser,
            whole: demand.whole,
            memory,
            arena_rows: rows,
            recomputes,
        }
    };
    let fits = |plan: &MemoryPlan| plan.total() <= plan.allowed();
    // A moderate amount if the device does not report its memory.
    let roomy = |plan: &MemoryPlan| plan.memory.is_some() || plan.activations < 1 << 30;
    let plain = with(false, tokens, wanted);
    let sparing = with(true, tokens, wanted);
    for plan in [plain, sparing] {
        if fits(&plan) && (plan.recomputes || roomy(&plan)) {
            // The arena saves computation in the next round: it gets half of the rest.
            let left = plan.memory.map_or(0, |_| plan.allowed() - plan.total());
            let more = (left / 2 / row) as usize;
            let rows = plan.arena_rows.saturating_add(more).min(possible);
            let rows = rows.min(round.saturating_mul(ROUNDS)).max(plan.arena_rows);
            return Ok(with(plan.recomputes, tokens, rows));
        }
    }
    // Fewer episodes at a time, down to one.
    let least = with(true, tokens, episode);
    if fits(&least) {
        let left = least.allowed() - (least.total() - least.arena);
        let rows = ((left / row) as usize).min(wanted);
        return Ok(with(true, tokens, rows));
    }
    let smaller = (1..=tokens / 64).rev().map(|n| 64 * n);
    let fitting = smaller
        .filter(|&tokens| tokens >= demand.longest)
        .find(|&tokens| fits(&with(true, tokens, episode)));
    // With the smallest batch, which the next error then names.
    let smallest = with(true, tokens.min(demand.longest), episode);
    let suffices = |bytes: u64| smallest.total() - smallest.weights + bytes <= least.allowed();
    let mut rounded = ["q8", "q4"].into_iter().zip(rounded);
    let smaller = match rounded.find(|(_, bytes)| !demand.whole && suffices(*bytes)) {
        Some((format, _)) => {
            &format!("round the weights with --quantise {format}, or use a smaller model")
        }
        None => "use a smaller model",
    };
    // An adapter has few numbers of its own.
    let beneath_an_adapter = least.total() - least.weights - least.optimiser + weights;
    let cure = match fitting {
        Some(tokens) => &format!("set train.tokens_per_batch={tokens} or less"),
        None if demand.whole && beneath_an_adapter < least.allowed() => {
            "set train.weights=\"lora\", or use a smaller model"
        }
        None if weights > least.allowed() / 2 => smaller,
        None if fits(&with(true, tokens, episode - reply + 1)) => demand.cure,
        None => smaller,
    };
    let allowed = size(least.allowed());
    Err(MemoryError(format!(
        "{least}; it may take {allowed}; {cure}"
    )))
}

/// Returns the inputs of the plan for a run. Episodes have at most this many `turns`; `starts` are the prompts of the
/// evaluation's first turns.
///
/// # Errors
/// If the adapter's targets match no layer of the model.
pub(crate) fn demand(
    config: &Config,
    trains: bool,
    checkpoint: &ModelDirectory,
    stored: Option<&StoredAdapter>,
    agents: usize,
    turns: usize,
    starts: &[Vec<u32>],
) -> Result<MemoryDemand, ModelError> {
    let fresh = || config.lora.parameters(checkpoint.config());
    let numbers = stored.map_or(0, StoredAdapter::parameters);
    let whole = trains && config.train.weights == Weights::All;
    let reference = trains && config.train.beta > 0.0;
    let (trained, used) = match (trains, stored) {
        (false, _) => (0, numbers),
        (true, _) if whole => (checkpoint.config().numbers(), 0),
        (true, Some(_)) if reference => (numbers, numbers),
        (true, Some(_)) => (numbers, 0),
        // After a warm-up the reference has an adapter, too.
        (true, None) if reference && config.warmup.updates > 0 => (fresh()?, fresh()?),
        (true, None) => (fresh()?, 0),
    };
    let games = config.train.groups.saturating_mul(config.train.group_size);
    let alike = |other: &Vec<u32>| {
        starts[0]
            .iter()
            .zip(other)
            .take_while(|(a, b)| a == b)
            .count()
    };
    let shared = starts.iter().map(alike).min().unwrap_or(0);
    let prompt = starts.iter().map(Vec::len).max().unwrap_or(0);
    let (mut critic, mut states) = (0, 0);
    if trains && config.credit.method == AdvantageEstimator::Critic {
        let (width, hidden) = (checkpoint.config().width, config.critic.hidden);
        critic = Head::numbers(width, hidden);
        // The features of each state, and the head's activations in both directions.
        let episodes = games.saturating_mul(agents);
        states = episodes.saturating_mul(turns + 1) as u64 * (width + 4 * hidden) as u64;
    }
    let games = config.eval.episodes.max(if trains { games } else { 0 });
    // Later observations may be longer than the first, and repeated turns include their replies.
    let own = prompt - shared;
    let turns = config.policy.history;
    let later = own / 2 + turns.saturating_mul(own + own / 2 + config.policy.max_new_tokens);
    Ok(MemoryDemand {
        trained,
        whole,
        frozen: !whole || reference,
        used,
        critic,
        states,
        rank: match whole {
            true => 0,
            false => stored.map_or(config.lora.rank, StoredAdapter::rank),
        },
        tokens_per_batch: if trains {
            config.train.tokens_per_batch
        } else {
            0
        },
        longest: prompt + later + config.policy.max_new_tokens,
        reply: config.policy.max_new_tokens,
        shared,
        episodes: games.saturating_mul(agents),
        cure: "set policy.max_new_tokens lower",
    })
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use lapwing_model::ModelShape;

    use super::*;

    /// Qwen2.5-3B.
    fn large() -> (Model, [u64; 3]) {
        let model = Model::qwen2(ModelShape {
            vocab: 151_936,
            width: 2048,
            layers: 36,
            heads: 16,
            kv_heads: 2,
            mlp_width: 11_008,
        });
        let numbers = model.numbers();
        (model, [2 * numbers, numbers / 8 * 9, numbers / 8 * 5])
    }

    fn device(gib: u64, max_binding: u64) -> (Option<u64>, u64) {
        (Some(gib << 30), max_binding)
    }

    fn demand(tokens_per_batch: usize) -> MemoryDemand {
        MemoryDemand {
            trained: 30_000_000,
            whole: false,
            frozen: true,
            used: 0,
            critic: 0,
            states: 0,
            rank: 16,
            tokens_per_batch,
            longest: 500,
            reply: 100,
            shared: 300,
            episodes: 100,
            cure: "use a smaller model",
        }
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn an_update_of_a_3b_model_stays_below_16_gib() {
        let (model, weights) = large();
        // 25 episodes x 10 turns of 400 + 100 tokens, in batches of the default size.
        let tokens = lapwing_learn::config::TrainConfig::default().tokens_per_batch;
        let plan = plan(device(16, 2 * GIB), &model, weights, &demand(tokens)).unwrap();
        assert!(plan.recomputes);
        println!("{plan:?}");
        assert!(
            plan.arena > 100 * 200 * model.arena_row_bytes(),
            "all episodes at once"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_setting_that_does() {
        let (model, weights) = large();
        let small = device(9, 2 * GIB);
        let error = plan(small, &model, weights, &demand(8192))
            .unwrap_err()
            .to_string();
        let found = error.rsplit_once("train.tokens_per_batch=").unwrap().1;
        let tokens: usize = found.split(' ').next().unwrap().parse().unwrap();
        assert!(plan(small, &model, weights, &demand(tokens)).is_ok());
        assert!(plan(small, &model, weights, &demand(tokens + 64)).is_err());
        let tiny = device(6, 2 * GIB);
        let error = plan(tiny, &model, weights, &demand(8192))
            .unwrap_err()
            .to_string();
        let cure = "; round the weights with --quantise q8, or use a smaller model";
        assert!(error.ends_with(cure), "{error}");
        let rounded = [weights[1]; 3];
        assert!(plan(tiny, &model, rounded, &demand(512)).is_ok());
        let error = plan(tiny, &model, [weights[0]; 3], &demand(8192)).unwrap_err();
        assert!(error.0.ends_with("; use a smaller model"), "{error}");
    }

    #[test]
    fn what_a_kernel_cannot_see_is_refused_with_a_setting_that_it_can() {
        let (model, weights) = large();
        let narrow = device(64, 128 << 20);
        let error = plan(narrow, &model, weights, &demand(8192))
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("set train.tokens_per_batch=3048 or less"),
            "{error}"
        );
        assert!(plan(narrow, &model, weights, &demand(3048)).is_ok());
    }

    /// 24 bytes per number in all: values, gradients twice and two moments; two more for the reference.
    #[test]
    fn all_weights_take_what_they_take_or_are_refused() {
        let model = Model::qwen2(ModelShape {
            vocab: 151_936,
            width: 896,
            layers: 24,
            heads: 14,
            kv_heads: 2,
            mlp_width: 4864,
        });
        let numbers = model.numbers();
        let whole = |frozen: bool| MemoryDemand {
            trained: numbers,
            whole: true,
            frozen,
            rank: 0,
            ..demand(8192)
        };
        let roomy = device(24, 2 * GIB);
        let held = plan(roomy, &model, [2 * numbers; 3], &whole(true)).unwrap();
        assert_eq!((held.weights, held.optimiser), (2 * numbers, 20 * numbers));
        let without = plan(roomy, &model, [2 * numbers; 3], &whole(false)).unwrap();
        assert_eq!((without.weights, without.optimiser), (0, 20 * numbers));

        let error = |device, demand| {
            let refused = plan(device, &model, [2 * numbers; 3], &demand);
            refused.unwrap_err().to_string()
        };
        // The suggested fix works: an adapter fits.
        let small = device(8, 2 * GIB);
        assert_snapshot!(error(small, whole(true)), @r#"needs up to 12.05 GiB of the device's 8.00 GiB: reference 942.29 MiB, keys and values 13.83 MiB, activations 1.91 GiB (blocks are computed again in the update), weights and optimiser 9.20 GiB; it may take 7.20 GiB; set train.weights="lora", or use a smaller model"#);
        assert!(plan(small, &model, [2 * numbers; 3], &demand(8192)).is_ok());
        assert_snapshot!(error(device(64, 128 << 20), MemoryDemand { tokens_per_batch: 4096, ..whole(true) }), @r#"train.weights = "all": the largest matrix of this model has 519.31 MiB in 32 bits, and this device's kernels see 128.00 MiB of a buffer; set train.weights="lora", or use a smaller model"#);
    }

    #[test]
    fn a_small_model_keeps_its_blocks_and_a_device_that_says_nothing_gets_little() {
        let model = Model::qwen2(ModelShape {
            vocab: 640,
            width: 64,
            layers: 4,
            heads: 4,
            kv_heads: 4,
            mlp_width: 256,
        });
        let roomy = device(8, 128 << 20);
        assert!(
            !plan(roomy, &model, [1 << 20; 3], &demand(8192))
                .unwrap()
                .recomputes
        );
        let (model, weights) = large();
        let silent = (None, 2 * GIB);
        assert!(
            plan(silent, &model, weights, &demand(8192))
                .unwrap()
                .recomputes
        );
    }

    #[test]
    fn a_plan_reads_so() {
        let mut small = MemoryPlan {
            weights: 485_171,
            arena: 81_684_070,
            activations: 187 << 20,
            optimiser: 1_782_579,
            whole: false,
            memory: Some(24 << 30),
            arena_rows: 4096,
            recomputes: false,
        };
        assert_snapshot!(small, @"needs up to 267.06 MiB of the device's 24.00 GiB: weights 473.80 KiB, keys and values 77.90 MiB, activations 187.00 MiB, adapter and optimiser 1.70 MiB");
        small.memory = None;
        small.optimiser = 0;
        small.recomputes = true;
        assert_snapshot!(small, @"needs up to 265.36 MiB: weights 473.80 KiB, keys and values 77.90 MiB, activations 187.00 MiB (blocks are computed again in the update)");
    }
}
