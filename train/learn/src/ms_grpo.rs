//! Multi-step group-relative policy optimisation (MS-GRPO, arXiv 2508.10839).
//!
//! A training step plays a group of G episodes on each scene. Each episode j has the composite return C_j, the sum of its
//! rewards and shaping terms. Its advantage compares it with its group, and all tokens of all its turns share it:
//!
//! ```text
//! A_j = (C_j - mean C) / (std C + 1e-6)
//! ```
//!
//! The update uses G' < G episodes of each group, drawn without replacement with weights softmax(|A|)
//! (absolute-advantage-weighted sampling, AAW). For a token with log-prob l, log-prob l_old when it was sampled, and
//! log-prob l_ref under the reference:
//!
//! ```text
//! w    = exp(l - l_old)
//! loss = mean over tokens of  beta KL - min(w A, clip(w, 1 - clip_low, 1 + clip_high) A)
//! KL   = exp(-d) - 1 + d                                             with d = l - l_ref (k3)
//! ```
//!
//! In small ops, with one number per token (the fused kernel `Tensor::policy_loss` computes the same):
//!
//! ```
//! # use lapwing_tensor::{Gpu, GpuOptions, Tensor, rl::{Kl, LossToken}};
//! # let gpu = Gpu::open(GpuOptions::default())?;
//! # let tensor = |numbers: [f32; 3]| Tensor::from_slice(&gpu, &numbers, &[3]);
//! # let (clip_low, clip_high) = (0.2, 0.25);
//! # let l = tensor([-0.5, -1.0, -2.0]).tracked();
//! # let (l_old, l_ref) = (tensor([-1.0, -1.25, -1.0]), tensor([-0.75, -1.5, -2.0]));
//! # let (a, share) = (tensor([1.0, -1.5, 0.5]), tensor([0.5, 0.25, 0.25]));
//! # let (beta, one) = (tensor([0.1; 3]), tensor([1.0; 3]));
//! let w = l.sub(&l_old).exp();
//! let surrogate = w.mul(&a).min(&w.clamp(1.0 - clip_low, 1.0 + clip_high).mul(&a));
//! let d = l.sub(&l_ref);
//! let kl = d.neg().exp().sub(&one).add(&d);
//! let loss = beta.mul(&kl).sub(&surrogate).mul(&share).sum();
//! # let numbers = |t: &Tensor| t.to_vec().unwrap();
//! # let token = |i: usize| LossToken {
//! #     pair: i as u32,
//! #     advantage: numbers(&a)[i],
//! #     weight: numbers(&share)[i],
//! #     old: numbers(&l_old)[i],
//! #     reference: numbers(&l_ref)[i],
//! # };
//! # let fused = l.policy_loss(&[0, 1, 2].map(token), (clip_low, clip_high), 0.1, Kl::K3).loss;
//! # let near = |x: Vec<f32>, y: Vec<f32>| x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-6);
//! # assert!(near(loss.to_vec()?, fused.to_vec()?));
//! # let slope = |loss: Tensor| numbers(loss.backward().get(&l).unwrap());
//! # assert!(near(slope(loss), slope(fused)));
//! # Ok::<(), lapwing_tensor::GpuError>(())
//! ```
//!
//! Choices where the paper is silent, and departures from it:
//! 1. The standard deviation is that of a sample (n - 1), plus 1e-6.
//! 2. A group of equal returns is skipped entirely: the KL penalty alone makes no update. Only if the entropy is outside
//!    its band (`entropy.rs`), it is trained on, with the entropy's advantages alone.
//! 3. The reference is the initial policy: the model with the adapter that training started from, or with none. If beta is
//!    0, there is no reference.
//! 4. A step may play several scenes, with a group for each. Evaluation scenes are held out. With `train.retry` some of them
//!    are retried: earlier ones on which an episode did not succeed, until the episodes of a retry have equal returns.
//! 5. Equal prompts are computed once, and a single update uses what play computed. Results are as without either.
//! 6. In a game with several agents, each agent has its own group on a scene.
//!
//! With a [`critic`] the same step is turn-level PPO (Turn-PPO, arXiv 2512.17008): the critic values all
//! states before the advantages are computed, is trained after the policy, and is trained alone in the first
//! `critic.warmup` steps.

use lapwing_env::rng::Stream;
use lapwing_play::metrics::{GameMetrics, PlayMetrics};
use lapwing_play::players::model::Policy;
use lapwing_play::seeds;
use lapwing_play::{Episode, Progress};
use lapwing_tensor::Tensor;
use web_time::Instant;

use crate::batch::{
    Batch, EpisodeAdvantage, Group, SelectedEpisode, count, distinct_tokens, effective_episodes,
    ordered, pack,
};
use crate::config::StepOptions;
use crate::config::{AdvantageEstimator, AdvantageScale, CreditConfig, Sampling, TrainConfig};
use crate::credit::{Advantages, Return};
use crate::critic::States;
use crate::language::LanguageLearner;
use crate::metrics::{BatchMetrics, StepMetrics, UpdateMetrics};
use crate::ratio::Ratios;
use crate::{LearnError, credit, critic, entropy, measure};

/// Makes one training step. Returns its metrics and the groups that it played.
///
/// # Errors
/// If the game, the model or the device fails, or a value of the critic is not finite.
///
/// # Panics
/// If the learner only plays, or `credit.method` needs a critic that the learner does not have.
pub fn step(
    learner: &mut LanguageLearner,
    options: &StepOptions<'_>,
    step: usize,
    progress: &dyn Progress,
) -> Result<(StepMetrics, Vec<Group>), LearnError> {
    let train = options.train;

    // Play a group of episodes on every scene, all at once, with the current policy. A single update has the weights that
    // played, so it can use what they computed. Now and then it computes that itself, for the health check `ratio`.
    let Policy { model, arena, .. } = &mut learner.policy;
    let is_single = train.passes * train.minibatches * learner.ranks.size() == 1;
    if is_single && !step.is_multiple_of(50) {
        arena.keep_results(model, train.tokens_per_batch);
    }
    let started = Instant::now();
    let Rollout {
        mut groups,
        play,
        games,
        tokens_played,
        mut tokens_computed,
    } = rollout(learner, options, step, progress)?;
    let seconds_rollout = started.elapsed().as_secs_f64();

    // With a critic: value the state before each turn, and the one after the last.
    let started = Instant::now();
    let mut states = None;
    if let Some(critic) = &learner.critic {
        let (policy, limit) = (&learner.policy, train.tokens_per_batch);
        let computed = States::compute(&groups, &mut learner.worlds, policy, limit, progress)?;
        for (group, values) in groups.iter_mut().zip(critic::values(critic, &computed)?) {
            group.values = values;
        }
        tokens_computed += computed.tokens_computed;
        states = Some(computed);
    }
    let seconds_values = started.elapsed().as_secs_f64();

    let measured = match train.measure {
        true => measure::gradient_noise(learner, options, &groups, &|halves, train| {
            assign_advantages(halves, options, step);
            select(halves, train, step);
        })?,
        false => None,
    };

    // Compare each episode with its group, and draw the episodes to train on.
    let started = Instant::now();
    assign_advantages(&mut groups, options, step);
    if train.retry > 0.0 {
        learner.remember_unsolved(&groups);
    }
    let warmup = learner.critic.is_some() && step < options.critic.warmup;
    if !warmup {
        select(&mut groups, train, step);
    }

    // Train the policy on them, and the critic on all turns.
    let (learned, updates_dropped) = update(learner, options, step, &groups, progress)?;
    learner.policy.arena.keep_nothing();
    let trained = learner.critic.as_mut().zip(states.as_ref());
    let critic = trained.map(|(critic, states)| critic::train(critic, &groups, states, options));

    let skipped = groups.iter().filter(|g| g.selected.is_empty()).count();
    let entropy_weight = groups.first().map(|group| group.entropy_weight);
    let entropy_weight = entropy_weight.filter(|weight| *weight != 0.0 && learned.is_some());
    let metrics = StepMetrics {
        step: step + 1,
        play,
        games,
        tokens_played: Some(tokens_played),
        tokens_computed: Some(tokens_computed + learned.map_or(0, |l| l.tokens_computed)),
        seconds_rollout,
        seconds_update: seconds_values + started.elapsed().as_secs_f64(),
        groups_skipped: Some(if warmup { 0 } else { skipped }),
        updates_dropped,
        entropy_weight,
        effective_episodes: effective_episodes(&groups),
        measured,
        learned,
        critic,
        ..StepMetrics::default()
    };
    Ok((metrics, groups))
}

/// The episodes that a step played.
pub(crate) struct Rollout {
    pub(crate) groups: Vec<Group>,
    pub(crate) play: PlayMetrics,
    /// by game, if several games are played
    pub(crate) games: Vec<GameMetrics>,
    /// positions that separate sequences would have computed
    pub(crate) tokens_played: u64,
    /// positions that one process computes; several compute some of them twice
    pub(crate) tokens_computed: u64,
}

/// Plays `group_size` games on each of `groups` scenes.
pub(crate) fn rollout(
    learner: &mut LanguageLearner,
    options: &StepOptions<'_>,
    step: usize,
    progress: &dyn Progress,
) -> Result<Rollout, LearnError> {
    let games = learner.seats(options.train, step)?;
    let temperature = learner.temperature;
    let mut played = Vec::with_capacity(games.len());
    for (world, seats) in &games {
        let agents = learner.worlds[*world].scenario.agents();
        progress.phase("rollout", seats.len() * agents, "episodes");
        played.push(learner.play(options.policy, *world, seats, temperature, progress)?);
    }

    let mut parts = Vec::with_capacity(games.len());
    let mut by_game = Vec::new();
    for ((world, _), episodes) in games.iter().zip(&played) {
        let world = &learner.worlds[*world];
        let actions = world.scenario.actions();
        parts.push((actions, &episodes[..]));
        if learner.worlds.len() > 1 {
            let play = PlayMetrics::of(actions, episodes);
            by_game.push(GameMetrics::of(&world.name, &play));
        }
    }
    let play = PlayMetrics::of_all(&parts);
    let replies = played.iter().flatten().flat_map(Episode::sampled);
    let tokens_played = replies
        .map(|it| (it.prompt.len() + it.ids.len()) as u64)
        .sum();
    let tokens_computed = played
        .iter()
        .map(|episodes| distinct_tokens(episodes))
        .sum();

    // Episodes come seat by seat, and agent by agent within a seat.
    let (size, mut groups) = (options.train.group_size, Vec::new());
    for ((world, seats), episodes) in games.iter().zip(played) {
        let agents = learner.worlds[*world].scenario.agents();
        let first = groups.len();
        groups.resize(first + seats.len() / size * agents, Group::default());
        for (number, episode) in episodes.into_iter().enumerate() {
            let (seat, agent) = (number / agents, number % agents);
            let group = &mut groups[first + seat / size * agents + agent];
            (group.world, group.scene, group.agent) = (*world, seats[seat].scene, agent);
            group.episodes.push(episode);
        }
    }
    Ok(Rollout {
        groups,
        play,
        games: by_game,
        tokens_played,
        tokens_computed,
    })
}

/// Computes the advantages of all episodes, and the weight of the entropy in them.
pub(crate) fn assign_advantages(groups: &mut [Group], options: &StepOptions<'_>, step: usize) {
    let advantages = advantages(options.credit, groups);
    let episodes = groups.iter().flat_map(|group| &group.episodes);
    let entropy_weight = entropy::weight(options.train, step, episodes);
    for (group, advantages) in groups.iter_mut().zip(advantages) {
        group.advantages = advantages.into_iter().map(EpisodeAdvantage::new).collect();
        group.entropy_weight = entropy_weight;
    }
}

/// Returns the advantage of each turn.
#[track_caller]
pub(crate) fn advantages(how: &CreditConfig, groups: &[Group]) -> Advantages {
    let compare = |sets: &[Vec<Return>]| standardised(how, sets);
    match how.method {
        AdvantageEstimator::Planning => return credit::planning(how, groups, &compare),
        AdvantageEstimator::Critic => return credit::with_critic(how, groups),
        AdvantageEstimator::Episode | AdvantageEstimator::Gigpo => {}
    }
    // Every turn has the advantage of its episode.
    let returns: Vec<Vec<Return>> = groups.iter().map(returns).collect();
    let mut advantages = Vec::with_capacity(groups.len());
    for (group, of_episodes) in groups.iter().zip(compare(&returns)) {
        let episodes = group.episodes.iter().zip(of_episodes);
        let of_turns = episodes.map(|(episode, a)| vec![a; episode.turns.len()]);
        advantages.push(of_turns.collect());
    }
    if how.method == AdvantageEstimator::Gigpo {
        credit::add_states(&mut advantages, how, groups, &compare);
    }
    advantages
}

/// The composite return of each episode: the sum of its rewards and shaping terms.
fn returns(group: &Group) -> Vec<Return> {
    let of = |episode: &Episode| {
        // Adding n numbers one after the other errs by at most n u times the sum of their absolute values, u = 2^-53
        // (Higham 2002, section 4.2), the rounding of each number itself included.
        let sizes: f64 = episode.turns.iter().map(credit::magnitude).sum();
        Return {
            value: episode.composite_return(),
            error: episode.turns.len() as f64 * (f64::EPSILON / 2.0) * sizes,
        }
    };
    group.episodes.iter().map(of).collect()
}

/// Standardises each set of returns: the deviation of each from the mean of its set, divided by the standard deviation
/// (or by the divisor of `credit.normalise`).
fn standardised(how: &CreditConfig, sets: &[Vec<Return>]) -> Vec<Vec<f64>> {
    let sets: Vec<Vec<f64>> = sets.iter().map(|set| deviations(set)).collect();
    let of_step = standard_deviation(&sets.concat());
    let standardise = |deviations: Vec<f64>| {
        let divisor = match how.normalise {
            AdvantageScale::Std => standard_deviation(&deviations) + 1e-6,
            AdvantageScale::Mean => 1.0,
            AdvantageScale::Batch => of_step + 1e-6,
        };
        deviations.iter().map(|d| d / divisor).collect()
    };
    sets.into_iter().map(standardise).collect()
}

/// The deviation of each return from their mean; exact zeros if they are equal within rounding.
///
/// Two apples in 20 rounds of Snake give 1.8 or 1.7999999999999998, depending on when they were eaten. That difference
/// means nothing and must not be divided by its own size. Returns are equal if one number lies within the rounding error
/// of all of them.
fn deviations(returns: &[Return]) -> Vec<f64> {
    let lows = returns.iter().map(|c| c.value - c.error);
    let highs = returns.iter().map(|c| c.value + c.error);
    if lows.fold(f64::MIN, f64::max) <= highs.fold(f64::MAX, f64::min) {
        return vec![0.0; returns.len()];
    }
    let mean = returns.iter().map(|c| c.value).sum::<f64>() / returns.len() as f64;
    returns.iter().map(|c| c.value - mean).collect()
}

/// The standard deviation of a sample (n - 1), given the deviations from its mean; 0 for one.
fn standard_deviation(deviations: &[f64]) -> f64 {
    let squares: f64 = deviations.iter().map(|d| d.powi(2)).sum();
    (squares / (deviations.len().max(2) as f64 - 1.0)).sqrt()
}

/// Selects the episodes of each group to train on. A group whose advantages are all 0 has none, unless the entropy is outside
/// its band.
pub(crate) fn select(groups: &mut [Group], train: &TrainConfig, step: usize) {
    for (number, group) in groups.iter_mut().enumerate() {
        let weights = group.advantages.iter().map(EpisodeAdvantage::weight);
        let weights: Vec<f64> = weights.collect();
        group.selected.clear();
        if group.has_advantages() || group.entropy_weight != 0.0 {
            let seed = seeds::derive(train.seed, "choose", &[step, number]);
            let mut random = Stream::new(seed, "choose");
            group.selected = sample(train, &weights, &returns(group), &mut random);
        }
    }
}

/// Selects `train.learn` episodes of a group by their advantages and returns. Returns their indices.
fn sample(
    train: &TrainConfig,
    advantages: &[f64],
    returns: &[Return],
    random: &mut Stream,
) -> Vec<usize> {
    let count = train.learn.min(advantages.len());
    match train.sampling {
        // The logarithms of softmax(|A|), up to a common term.
        Sampling::Aaw => draw(advantages.iter().map(|a| a.abs()), count, random),
        Sampling::Uniform => draw(advantages.iter().map(|_| 0.0), count, random),
        Sampling::All => (0..advantages.len()).collect(),
        Sampling::Top => largest(advantages, count),
        Sampling::Variance => extremes(returns, count),
    }
}

/// Draws `count` episodes without replacement, each draw in proportion to the weights of those that are left. Returns them
/// in the order of their indices.
///
/// Successive draws are an exponential race: give each episode the time -ln(u) / weight and take the earliest
/// (Efraimidis and Spirakis 2006). The code compares the logarithm of the time, ln(-ln(u)) - ln(weight): f64 could not hold
/// the weights themselves of advantages that are far apart.
fn draw(log_weights: impl Iterator<Item = f64>, count: usize, random: &mut Stream) -> Vec<usize> {
    let mut race: Vec<(f64, usize)> = log_weights
        .enumerate()
        // 1 - u lies in (0, 1]: the outer logarithm may be that of 0, which is the earliest possible time.
        .map(|(i, weight)| ((-(1.0 - random.unit()).ln()).ln() - weight, i))
        .collect();
    race.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut drawn: Vec<_> = race.iter().take(count).map(|(_, i)| *i).collect();
    drawn.sort_unstable();
    drawn
}

/// Returns the `count` episodes with the largest absolute advantages.
fn largest(advantages: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..advantages.len()).collect();
    order.sort_by(|a, b| advantages[*b].abs().total_cmp(&advantages[*a].abs()));
    order.truncate(count);
    order
}

/// Returns the `count` episodes whose returns have the largest variance. They are the k highest and `count - k` lowest for some k
/// (PODS, arXiv 2504.13818), so all k are tried.
fn extremes(returns: &[Return], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..returns.len()).collect();
    order.sort_by(|a, b| returns[*b].value.total_cmp(&returns[*a].value));
    let subset = |k: usize| [&order[..k], &order[order.len() - (count - k)..]].concat();
    let squares = |k: usize| {
        let values = subset(k).into_iter().map(|i| returns[i].value);
        let mean = values.clone().sum::<f64>() / count as f64;
        values.map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    let best = (0..=count).max_by(|a, b| squares(*a).total_cmp(&squares(*b)));
    let mut chosen = subset(best.unwrap_or(0));
    chosen.sort_unstable();
    chosen
}

/// Makes `train.passes` passes over the selected episodes, with one optimiser update per minibatch. Returns the mean of the
/// updates (`None` if nothing was selected), and how many were dropped because their loss or gradient was not finite.
pub(crate) fn update(
    learner: &mut LanguageLearner,
    options: &StepOptions<'_>,
    step: usize,
    groups: &[Group],
    progress: &dyn Progress,
) -> Result<(Option<UpdateMetrics>, usize), LearnError> {
    let train = options.train;
    let lr = train.lr_at(step);
    let (mut updates, mut dropped) = (Vec::new(), 0);
    for pass in 0..train.passes {
        let all = ordered(groups, train, [step, pass]);
        for minibatch in parts(&all, train.minibatches) {
            let learned = update_once(learner, train, minibatch, lr, progress)?;
            match learned.is_finite() {
                true => updates.push(learned),
                false => dropped += 1,
            }
        }
    }
    Ok((UpdateMetrics::mean_of(&updates), dropped))
}

/// Splits a list into `count` parts, or into as many as it has entries. Their lengths differ by one at most.
fn parts<T>(all: &[T], count: usize) -> impl Iterator<Item = &[T]> {
    let count = count.min(all.len());
    (0..count).map(move |i| &all[i * all.len() / count..(i + 1) * all.len() / count])
}

/// Makes one optimiser update.
fn update_once(
    learner: &mut LanguageLearner,
    train: &TrainConfig,
    minibatch: &[SelectedEpisode<'_>],
    lr: f64,
    progress: &dyn Progress,
) -> Result<UpdateMetrics, LearnError> {
    let over = count(minibatch.iter().map(|c| c.episode), train.aggregation);
    let mut batches = pack(minibatch, train.aggregation, over, train.tokens_per_batch);
    let temperature = learner.temperature as f32;
    let ratios = Ratios::new(train, &learner.policy, &batches, temperature)?;
    let all_tokens: usize = batches.iter().map(|batch| batch.tokens.len()).sum();
    let mut learned = UpdateMetrics {
        lr,
        ..UpdateMetrics::default()
    };
    progress.phase("update", batches.len(), "batches");
    // A round has a batch for each rank, the first for this one.
    let mut done = 0;
    for round in batches.chunks_mut(learner.ranks.size()) {
        let (own, others) = round.split_first_mut().expect("a round has a batch");
        learner.request_gradients(others, &ratios);
        let own = accumulate(learner, train, &ratios, own)?;
        for batch in std::iter::once(own).chain(learner.add_gradients()) {
            learned.add(&batch, batch.tokens as f64 / all_tokens as f64);
            done += 1;
        }
        progress.done(done);
    }
    let parameters = learner.parameters.as_mut().expect("a learner that trains");
    if !learned.loss.is_finite() {
        parameters.discard();
        return Ok(learned);
    }
    // If the norm is not finite, the optimiser changes nothing either.
    let norm = train.update(parameters, lr);
    learned.grad_norm = f64::from(norm.to_vec()?[0]);
    learner.share_weights()?;
    Ok(learned)
}

/// Computes the loss of a batch, and adds its gradient to those accumulated since the last update.
pub(crate) fn accumulate(
    learner: &mut LanguageLearner,
    train: &TrainConfig,
    ratios: &Ratios,
    batch: &mut Batch,
) -> Result<BatchMetrics, LearnError> {
    let (policy, temperature) = (&learner.policy, learner.temperature as f32);
    let packed = batch.on(policy.model.gpu());
    let log_probs = |model, adapter| packed.log_probs(model, adapter, temperature);
    let mut metrics = BatchMetrics {
        tokens: batch.tokens.len(),
        tokens_computed: batch.tree.len() as u64 * (1 + u64::from(policy.reference.is_some())),
        ..BatchMetrics::default()
    };
    // l of every sampled token, and l_ref: recorded together, so that the device is idle once only.
    // Without a reference l stands for it, and the KL is 0.
    let reference = policy.reference.as_ref();
    let reference = reference.map(|of| log_probs(&of.model, of.adapter.as_ref()));
    let adapter = policy.adapter.as_ref();
    let log_probs = match policy.arena.kept(&batch.tree) {
        Some(kept) => packed.known_log_probs(&policy.model, adapter, &kept, temperature),
        None => log_probs(&policy.model, adapter),
    };
    let read = Tensor::to_vecs(&[&log_probs, reference.as_ref().unwrap_or(&log_probs)])?;
    for token in &mut batch.tokens {
        token.reference = read[1][token.pair as usize];
    }
    metrics.ratio_error = batch.ratio_error(&read[0]);
    let clipped = ratios.apply(batch, &read[0]);
    let of = log_probs.policy_loss(&batch.tokens, ratios.clip(), train.beta as f32, train.kl);
    let parameters = learner.parameters.as_mut().expect("a learner that trains");
    parameters.accumulate(&of.loss.backward());

    let read = Tensor::to_vecs(&[&of.loss, &of.kl, &of.clip_fraction])?;
    let [loss, kl, fraction] = [0, 1, 2].map(|i| f64::from(read[i][0]));
    (metrics.loss, metrics.clip_fraction) = (loss + clipped.loss, fraction + clipped.fraction);
    metrics.kl = reference.map(|_| kl);
    learner.tokens_computed += metrics.tokens_computed;
    Ok(metrics)
}

#[cfg(test)]
mod ppo_tests;
#[cfg(test)]
mod tests;
