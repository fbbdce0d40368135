//! The critic of turn-level PPO: a small network, trained beside the policy, that estimates what follows a state.
//!
//! A state is the prompt of a turn. Its features h are the policy's hidden state (C) at the last token of the prompt, after
//! the last norm, from which the policy samples the first token of its reply. One hidden layer makes a value of them:
//!
//! ```text
//! x    = (h - center) / scale
//! V(h) = w2 silu(W1 x + b1) + b2               W1 (H, C) random, the others zero: at first V = 0
//! ```
//!
//! The model arranges h to predict the next token, not the end of the game, so a linear head is too weak. The prompts of a
//! game all end alike, and so do most of their hidden states: on Frozen Lake and the built-in model their differences are a
//! 16th of their length, and without the first line a critic learns next to nothing. center (C) is the mean of the states of
//! the first step, scale the root mean square of the differences. Both stay fixed, so that values are comparable from step to
//! step.
//!
//! No gradient flows back into the model. h does not depend on the critic: it is computed once per step, and the critic
//! makes several passes over it.
//!
//! Over T turns of rewards r_t, with generalised advantage estimation (arXiv 1506.02438) from V_old, not normalised:
//!
//! ```text
//! R_t  = A_t + V_old(s_t)                                                 the target
//! loss = mean over turns of 1/2 max((V - R)^2, (V_old + clamp(V - V_old, -clip, clip) - R)^2)
//! ```
//!
//! The state after the last turn has the value 0 if the game is over. If the step limit ended the episode, it is rendered as
//! the prompt of one more turn, and has a value like any other.
//!
//! The critic is trained on all turns of all episodes of a step, whichever the policy is trained on: it estimates the mean of
//! the returns, and the selected episodes are extreme.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapwing_model::{Adapter, TokenTree, Tokens};
use lapwing_play::players::model::Policy;
use lapwing_play::world::World;
use lapwing_play::{AgentView, Episode, Progress};
use lapwing_tensor::random::Random;
use lapwing_tensor::{AdamW, Gpu, GpuError, Indices, Matrix, NamedValues, Parameters, Tensor};

use crate::LearnError;
use crate::batch::Group;
use crate::config::StepOptions;
use crate::credit::temporal_differences;
use crate::metrics::CriticMetrics;

/// Names of W1, b1, w2, b2, center and scale in checkpoints.
pub const NAMES: [&str; 6] = [
    "critic.hidden.weight",
    "critic.hidden.bias",
    "critic.value.weight",
    "critic.value.bias",
    "critic.center",
    "critic.scale",
];

/// The network of the critic and its optimiser.
pub struct Head {
    /// W1, b1, w2, b2, center and scale. No gradient reaches center and scale, so the optimiser leaves them alone.
    pub parameters: Parameters,
}

impl Head {
    /// Makes a network of this hidden width for features of this width. At first every value is 0.
    pub fn new(gpu: &Gpu, width: usize, hidden: usize, seed: u64) -> Head {
        let mut random = Random::new(seed);
        // The initialisation of linear layers in PyTorch.
        let bound = 1.0 / (width as f64).sqrt();
        let mut drawn = || ((2.0 * random.uniform() - 1.0) * bound) as f32;
        let tensors: Vec<NamedValues> = NAMES
            .iter()
            .zip(shapes(width, hidden))
            .map(|(name, shape)| {
                let count = shape.iter().product();
                let values = match *name {
                    "critic.hidden.weight" => (0..count).map(|_| drawn()).collect(),
                    "critic.scale" => vec![1.0],
                    _ => vec![0.0; count],
                };
                ((*name).to_owned(), shape, values)
            })
            .collect();
        Head {
            parameters: Parameters::new(gpu, &tensors),
        }
    }

    /// Returns how many numbers such a network has.
    pub fn numbers(width: usize, hidden: usize) -> u64 {
        let count = |shape: Vec<usize>| shape.iter().product::<usize>() as u64;
        shapes(width, hidden).map(count).iter().sum()
    }

    /// Returns the values (N, 1) of features (N, C), tracked.
    pub(crate) fn values(&self, hidden: &Tensor) -> Tensor {
        let [w1, b1, w2, b2, center, scale] = NAMES.map(|name| self.parameters.get(name));
        let (w1, w2) = (Matrix::Trained(w1), Matrix::Trained(w2));
        let x = hidden.sub(&center.detach()).div(&scale.detach());
        let hidden = x.linear(&w1, Some(&b1), None, None).silu(); // (N, H)
        hidden.linear(&w2, Some(&b2), None, None)
    }

    /// Sets center and scale from these features (N, C).
    fn normalise_inputs(&self, hidden: &Tensor) -> Result<(), GpuError> {
        let (count, width) = (hidden.rows(), hidden.cols());
        let hidden = hidden.to_vec()?;
        let mut center = vec![0.0; width];
        for row in hidden.chunks(width) {
            let each = center.iter_mut().zip(row);
            each.for_each(|(mean, h)| *mean += f64::from(*h) / count as f64);
        }
        let squared = |(h, mean): (&f32, &f64)| (f64::from(*h) - mean).powi(2);
        let of_row = |row: &[f32]| row.iter().zip(&center).map(squared).sum::<f64>();
        let squares: f64 = hidden.chunks(width).map(of_row).sum();
        let scale = (squares / (count * width) as f64).sqrt();
        let write = |name, values: &[f32]| self.parameters.get(name).detach().write(values);
        let center: Vec<f32> = center.iter().map(|mean| *mean as f32).collect();
        write("critic.center", &center);
        // A single state leaves nothing to scale.
        write(
            "critic.scale",
            &[if scale > 1e-6 { scale as f32 } else { 1.0 }],
        );
        Ok(())
    }
}

fn shapes(width: usize, hidden: usize) -> [Vec<usize>; 6] {
    let layers = [vec![hidden, width], vec![hidden], vec![1, hidden], vec![1]];
    let [w1, b1, w2, b2] = layers;
    [w1, b1, w2, b2, vec![width], vec![1]]
}

/// The states of all turns of a step, as hidden states of the policy.
pub(crate) struct States {
    /// features of the distinct states (N, C)
    hidden: Tensor,
    /// by group, episode and turn, and after the last turn: the row of the state; `None` after the end of a game
    rows: Vec<Vec<Vec<Option<u32>>>>,
    /// Positions computed by the model.
    pub(crate) tokens_computed: u64,
}

impl States {
    /// Computes the states of these groups with the current policy. Equal prompts are computed once, and so are equal
    /// prefixes within the `limit` of tokens that go through the model at once.
    /// Panics if a turn was not sampled from a model.
    pub(crate) fn compute(
        groups: &[Group],
        worlds: &mut [World],
        policy: &Policy,
        limit: usize,
        progress: &dyn Progress,
    ) -> Result<States, LearnError> {
        // Ordered by their ids: prompts with equal prefixes are neighbours.
        let mut indices: BTreeMap<Arc<[u32]>, u32> = BTreeMap::new();
        let mut prompts = Vec::with_capacity(groups.len());
        for group in groups {
            let of = |episode| prompts_of(episode, &mut worlds[group.world]);
            let episodes: Vec<_> = group.episodes.iter().map(of).collect::<Result<_, _>>()?;
            for prompt in episodes.iter().flatten().flatten() {
                indices.insert(prompt.clone(), 0);
            }
            prompts.push(episodes);
        }
        for (row, index) in indices.values_mut().enumerate() {
            *index = row as u32;
        }
        let row = |prompt: &Option<Arc<[u32]>>| prompt.as_ref().map(|prompt| indices[prompt]);
        let rows = |episode: &Vec<_>| episode.iter().map(row).collect();
        let rows = prompts.iter().map(|group| group.iter().map(rows).collect());

        let model = policy.model.without_gradients();
        let adapter = policy.adapter.as_ref().map(Adapter::without_gradients);
        let mut states = States {
            hidden: Tensor::zeros(model.gpu(), &[indices.len(), model.config().width]),
            rows: rows.collect(),
            tokens_computed: 0,
        };
        let prompts: Vec<&Arc<[u32]>> = indices.keys().collect();
        progress.phase("values", prompts.len(), "states");
        let mut done = 0;
        while done < prompts.len() {
            let (mut tree, mut leaves) = (TokenTree::default(), Vec::new());
            for prompt in &prompts[done..] {
                if !leaves.is_empty() && tree.len() + prompt.len() > limit {
                    break;
                }
                leaves.push(tree.insert(prompt));
            }
            let tree = tree.pack();
            let last: Vec<u32> = leaves.iter().map(|leaf| tree.last(*leaf)).collect();
            let these: Vec<u32> = (done..done + last.len()).map(|row| row as u32).collect();
            let hidden = model.forward(&Tokens::new(model.gpu(), &tree), adapter.as_ref());
            let hidden = hidden.gather_rows(&Indices::new(model.gpu(), &last));
            let these = Indices::new(model.gpu(), &these);
            states.hidden.write_rows(&these, &hidden);
            states.tokens_computed += tree.len() as u64;
            done += last.len();
            progress.done(done);
        }
        Ok(states)
    }
}

/// Returns the prompt of each turn, and the prompt after the last turn if the step limit ended the episode.
fn prompts_of(episode: &Episode, world: &mut World) -> Result<Vec<Option<Arc<[u32]>>>, LearnError> {
    let sampled = episode.turns.iter().map(|turn| turn.sampled.as_ref());
    let asked = sampled.map(|reply| reply.expect("a turn of a model").prompt.clone());
    let mut prompts: Vec<_> = asked.map(Some).collect();
    let after = AgentView::turn(episode, episode.turns.len());
    prompts.push(match episode.is_truncated() {
        true => Some(world.prompts.ids(&after)?),
        false => None,
    });
    Ok(prompts)
}

/// Returns the values of each state of each episode and of the state after its last turn (T + 1), by group and episode.
pub(crate) fn values(critic: &Head, states: &States) -> Result<Vec<Vec<Vec<f64>>>, LearnError> {
    if critic.parameters.steps() == 0 {
        critic.normalise_inputs(&states.hidden)?;
    }
    let values = critic.values(&states.hidden).to_vec()?;
    if !values.iter().all(|value| value.is_finite()) {
        return Err(LearnError::Critic);
    }
    let value = |row: &Option<u32>| row.map_or(0.0, |row| f64::from(values[row as usize]));
    let of = |episode: &Vec<_>| episode.iter().map(value).collect();
    let of_group = |group: &Vec<_>| group.iter().map(of).collect();
    Ok(states.rows.iter().map(of_group).collect())
}

/// Trains the critic on all turns of these groups. Returns its metrics from before the first pass.
pub(crate) fn train(
    critic: &mut Head,
    groups: &[Group],
    states: &States,
    options: &StepOptions<'_>,
) -> CriticMetrics {
    let (mut rows, mut old, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for (group, states) in groups.iter().zip(&states.rows) {
        for ((episode, values), states) in group.episodes.iter().zip(&group.values).zip(states) {
            let advantages = temporal_differences(options.credit, episode, values);
            rows.extend(states.iter().flatten().take(advantages.len()));
            old.extend(&values[..advantages.len()]);
            targets.extend(advantages.iter().zip(values).map(|(a, value)| a + value));
        }
    }
    let gpu = states.hidden.gpu();
    let column = |numbers: &[f64]| {
        let numbers: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
        Tensor::from_slice(gpu, &numbers, &[numbers.len(), 1])
    };
    let metrics = CriticMetrics::of(&old, &targets);
    let (rows, old, targets) = (Indices::new(gpu, &rows), column(&old), column(&targets));
    for _ in 0..options.critic.passes {
        let values = critic.values(&states.hidden).gather_rows(&rows);
        let loss = value_loss(&values, &old, &targets, options.critic.clip as f32);
        critic.parameters.accumulate(&loss.backward());
        critic.parameters.step(AdamW {
            weight_decay: 0.0,
            ..options.train.adamw(options.critic.lr)
        });
    }
    metrics
}

/// The loss in the module's documentation, of values, old values and targets (N, 1).
fn value_loss(values: &Tensor, old: &Tensor, targets: &Tensor, clip: f32) -> Tensor {
    let near = values.sub(old).clamp(-clip, clip).add(old);
    let miss = |values: &Tensor| values.sub(targets).square();
    miss(values).max(&miss(&near)).mean().mul_scalar(0.5)
}

#[cfg(test)]
mod tests;
