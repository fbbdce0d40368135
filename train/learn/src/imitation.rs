//! Imitation (supervised fine-tuning on kept episodes): a start for reinforcement learning, or a way to distil the play of a
//! large model into a small one.
//!
//! The loss is the cross-entropy over all tokens of the replies, including the token that ends a reply:
//!
//! ```text
//! L = -1/N sum log p(token | prompt, the reply's tokens before it)
//! ```
//!
//! This is a policy gradient with an advantage of 1 for every token. Replies become episodes again, in the chat template and
//! tokens of the trained model, and use the same packed token trees as [`ms_grpo`](crate::ms_grpo).
//!
//! Only replies that contain a readable action are used, and no episodes of evaluations. A tenth of the scenes is held out
//! to measure generalisation. Small games draw the same scene from many seeds, so scenes are compared by what their players
//! observe first.

use std::collections::{BTreeMap, BTreeSet};

use lapwing_env::rng::Stream;
use lapwing_model::{Adapter, Message, Model};
use lapwing_play::prompt::Prompts;
use lapwing_play::sample::{EpisodePurpose, KeptEpisode, KeptTurn};
use lapwing_play::seeds;
use lapwing_play::{Episode, Sampled, Turn};
use lapwing_tensor::Tensor;

use crate::LearnError;
use crate::batch::{Batch, pack_all};
use crate::config::TrainConfig;
use crate::language::LanguageLearner;

/// Episodes of one update.
const EPISODES: usize = 8;
/// One scene in this many is held out.
const HELD_OUT: usize = 10;

/// Settings of an imitation.
#[derive(Debug, Clone, PartialEq)]
pub struct Imitation {
    /// Leaves out episodes with lower returns.
    pub min_return: Option<f64>,
    /// Leaves out episodes without success.
    pub only_success: bool,
    /// Optimiser updates. `None`: as many as the epochs need.
    pub steps: Option<usize>,
    /// Passes over the episodes.
    pub epochs: usize,
    /// Peak learning rate. It rises linearly over the first twentieth of the updates and falls along a cosine to a
    /// twentieth.
    pub lr: f64,
    /// Seed of the order of the episodes.
    pub seed: u64,
}

/// Episodes to imitate, in the tokens of the trained model.
#[derive(Debug, Default)]
pub struct Demonstrations {
    /// Episodes to train on.
    pub train: Vec<Episode>,
    /// Episodes on held-out scenes.
    pub held_out: Vec<Episode>,
    /// Number of episodes that were left out because they belong to evaluations.
    pub evaluations: usize,
    /// Number of episodes that were left out by the settings, or because none of their replies is readable.
    pub filtered: usize,
    /// Number of unreadable replies in the other episodes.
    pub unreadable: usize,
}

/// Progress of an imitation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImitationUpdate {
    /// Updates made.
    pub step: usize,
    /// Updates in total.
    pub steps: usize,
    /// Loss before the update, in nats per token.
    pub loss: f64,
}

/// Loss on held-out scenes in nats per token. `None` if there are too few scenes to hold one out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldOutLoss {
    /// Before the first update.
    pub before: Option<f64>,
    /// After the last update.
    pub after: Option<f64>,
}

impl Imitation {
    /// Converts kept episodes for the model of these prompts. `limit` is its largest number of positions.
    ///
    /// # Errors
    /// If no episode is left, or a prompt is too long or in the chat template of another model.
    pub fn demonstrations(
        &self,
        samples: &[KeptEpisode],
        prompts: &Prompts,
        limit: usize,
    ) -> Result<Demonstrations, LearnError> {
        let encoder = ReplyEncoder::new(prompts, limit)?;
        let scenes = starts(samples);
        let held_out = held_out(samples.iter().filter(|s| self.takes(s)), &scenes);
        let mut data = Demonstrations::default();
        for sample in samples {
            let read: Vec<&KeptTurn> = sample
                .turns
                .iter()
                .filter(|turn| turn.action.is_some())
                .collect();
            if sample.purpose != EpisodePurpose::Training {
                data.evaluations += 1;
            } else if !self.takes(sample) || read.is_empty() {
                data.filtered += 1;
            } else {
                data.unreadable += sample.turns.len() - read.len();
                let turns = read.into_iter().map(|turn| encoder.turn(turn));
                let episode = Episode {
                    turns: turns.collect::<Result<_, _>>()?,
                    ..Episode::default()
                };
                match held_out.contains(scenes[&*sample.scene]) {
                    true => data.held_out.push(episode),
                    false => data.train.push(episode),
                }
            }
        }
        if data.train.is_empty() {
            let (all, evaluations, filtered) = (samples.len(), data.evaluations, data.filtered);
            return Err(LearnError::Imitation(format!(
                "no episode is left of {all}: {evaluations} are of evaluations, whose scenes are held out (wanted episodes of \
                 `lapwing play --keep`, or of a run with --all-episodes), and {filtered} have too low a return, no success or \
                 no readable reply"
            )));
        }
        Ok(data)
    }

    /// Returns the number of optimiser updates.
    pub fn updates(&self, data: &Demonstrations) -> usize {
        let epoch = data.train.len().div_ceil(EPISODES);
        self.steps.unwrap_or(self.epochs * epoch)
    }

    fn takes(&self, sample: &KeptEpisode) -> bool {
        sample.purpose == EpisodePurpose::Training
            && (sample.success || !self.only_success)
            && self
                .min_return
                .is_none_or(|least| sample.game_return >= least)
    }
}

/// Returns the start of the scene of each seed: the first observation, of several agents the least.
fn starts(samples: &[KeptEpisode]) -> BTreeMap<&str, &str> {
    let mut starts: BTreeMap<&str, &str> = BTreeMap::new();
    for sample in samples {
        let start = sample.turns.first().map_or("", |turn| &turn.observation);
        let least = starts.entry(&sample.scene).or_insert(start);
        *least = start.min(*least);
    }
    starts
}

/// Returns the starts of the held-out scenes. They depend on the set of scenes only.
fn held_out<'a>(
    samples: impl Iterator<Item = &'a KeptEpisode>,
    starts: &BTreeMap<&str, &'a str>,
) -> BTreeSet<&'a str> {
    let scenes: BTreeSet<&str> = samples.map(|sample| starts[&*sample.scene]).collect();
    let mut scenes: Vec<&str> = scenes.into_iter().collect();
    let count = match scenes.len() {
        0 | 1 => 0,
        count => count.div_ceil(HELD_OUT),
    };
    scenes.sort_by_key(|scene| seeds::derive(0, &format!("held out {scene}"), &[]));
    scenes.into_iter().take(count).collect()
}

/// Converts kept turns to the tokens of the trained model.
struct ReplyEncoder<'a> {
    prompts: &'a Prompts,
    /// beginning and end of every prompt in this chat template
    around: (String, String),
    /// token that ends a reply
    end: u32,
    limit: usize,
}

impl ReplyEncoder<'_> {
    fn new(prompts: &Prompts, limit: usize) -> Result<ReplyEncoder<'_>, LearnError> {
        let (text, reply) = ("Told.", "Said.");
        let mut messages = vec![Message::new("system", text), Message::new("user", text)];
        let prompt = prompts.template().render(&messages, true)?;
        let around = match (prompt.find(text), prompt.rfind(text)) {
            (Some(first), Some(last)) => (&prompt[..first], &prompt[last + text.len()..]),
            _ => ("", ""),
        };
        let around = (around.0.to_owned(), around.1.to_owned());

        // The stop token that the template writes after a reply.
        messages.push(Message::new("assistant", reply));
        let whole = prompts.template().render(&messages, false)?;
        let after = whole.rsplit(reply).next().unwrap_or_default();
        let tokenizer = prompts.tokenizer();
        let mut nearest: Option<(usize, u32)> = None;
        for &id in tokenizer.stop_ids() {
            let token = tokenizer.token(id)?.unwrap_or_default();
            if let Some(at) = after.find(&token).filter(|_| !token.is_empty()) {
                nearest = Some(nearest.map_or((at, id), |other| other.min((at, id))));
            }
        }
        let end = nearest.map(|(_, id)| id);
        let end = end.or(tokenizer.stop_ids().first().copied());
        let end = end.ok_or_else(|| {
            LearnError::Imitation(
                "the model has no token that ends a reply (eos_token_id)".to_owned(),
            )
        })?;
        Ok(ReplyEncoder {
            prompts,
            around,
            end,
            limit,
        })
    }

    fn turn(&self, turn: &KeptTurn) -> Result<Turn, LearnError> {
        let tokenizer = self.prompts.tokenizer();
        let prompt = match &turn.messages[..] {
            [] => self.check(&turn.prompt)?.to_owned(),
            messages => self.prompts.template().render(messages, true)?,
        };
        let prompt = tokenizer.encode(&prompt)?;
        let mut ids = tokenizer.encode(&turn.reply)?;
        ids.push(self.end);
        if prompt.len() + ids.len() > self.limit {
            return Err(LearnError::Imitation(format!(
                "a prompt of {} tokens and its reply of {} do not fit this model, whose limit is {} positions \
                 (max_position_embeddings)",
                prompt.len(),
                ids.len(),
                self.limit
            )));
        }
        Ok(Turn {
            sampled: Some(Sampled {
                prompt: prompt.into(),
                // Unused by imitation.
                log_probs: vec![0.0; ids.len()],
                entropies: vec![0.0; ids.len()],
                ids,
                cut: false,
                allowed: None,
            }),
            ..Turn::default()
        })
    }

    /// Returns a prompt that was kept as text, if it is in this model's chat template.
    fn check<'a>(&self, prompt: &'a str) -> Result<&'a str, LearnError> {
        let (before, after) = &self.around;
        match !prompt.is_empty() && prompt.starts_with(before) && prompt.ends_with(after) {
            true => Ok(prompt),
            false => Err(LearnError::Imitation(
                "an episode has its prompts only as text in the chat template of another model; use episodes of `lapwing play \
                 --keep`, which contain the messages"
                    .to_owned(),
            )),
        }
    }
}

/// Trains the learner's weights on demonstrations, and calls `report` after every update. If that returns false, this was the
/// last one.
///
/// # Errors
/// If the device fails, or the loss is not finite.
///
/// # Panics
/// If the learner only plays.
pub fn imitate(
    learner: &mut LanguageLearner,
    train: &TrainConfig,
    data: &Demonstrations,
    how: &Imitation,
    report: &mut dyn FnMut(ImitationUpdate) -> bool,
) -> Result<HeldOutLoss, LearnError> {
    let steps = how.updates(data);
    let before = held_out_loss(learner, train, data)?;
    let (mut order, mut epoch) = (Vec::new(), 0);
    for step in 0..steps {
        // The next episodes: each once per epoch, in a new order.
        if order.is_empty() {
            order = (0..data.train.len()).collect::<Vec<usize>>();
            let seed = seeds::derive(how.seed, "imitation", &[epoch]);
            Stream::new(seed, "imitation").shuffle(&mut order);
            epoch += 1;
        }
        let now = order.split_off(order.len().saturating_sub(EPISODES));

        let episodes = now.iter().map(|e| &data.train[*e]);
        let batches = pack_all(episodes, train.tokens_per_batch);
        let parameters = learner.parameters.as_mut().expect("a learner that trains");
        let mut loss = 0.0;
        for batch in &batches {
            let policy = &learner.policy;
            let part = cross_entropy(&policy.model, policy.adapter.as_ref(), batch);
            parameters.accumulate(&part.backward());
            loss += f64::from(part.to_vec()?[0]);
        }
        if !loss.is_finite() {
            return Err(LearnError::Imitation(format!(
                "the loss is not finite after {step} updates; choose a smaller learning rate than {} (--lr of `lapwing pretrain`, or warmup.lr)",
                how.lr
            )));
        }
        parameters.step(train.adamw(how.lr * schedule(step, steps)));
        let step = step + 1;
        if !report(ImitationUpdate { step, steps, loss }) {
            break;
        }
    }
    Ok(HeldOutLoss {
        before,
        after: held_out_loss(learner, train, data)?,
    })
}

/// Computes a batch's part of the loss.
fn cross_entropy(model: &Model, adapter: Option<&Adapter>, batch: &Batch) -> Tensor {
    let gpu = model.gpu();
    let log_probs = batch.on(gpu).log_probs(model, adapter, 1.0);
    // Replies with equal prefixes share pairs.
    let mut weights = vec![0.0; batch.rows.len()];
    for token in &batch.tokens {
        weights[token.pair as usize] += token.weight;
    }
    let weights = Tensor::from_slice(gpu, &weights, &[weights.len()]);
    log_probs.mul(&weights).sum().neg()
}

fn held_out_loss(
    learner: &LanguageLearner,
    train: &TrainConfig,
    data: &Demonstrations,
) -> Result<Option<f64>, LearnError> {
    if data.held_out.is_empty() {
        return Ok(None);
    }
    let policy = &learner.policy;
    let model = policy.model.without_gradients();
    let adapter = policy.adapter.as_ref().map(Adapter::without_gradients);
    let mut loss = 0.0;
    for batch in pack_all(data.held_out.iter(), train.tokens_per_batch) {
        loss += f64::from(cross_entropy(&model, adapter.as_ref(), &batch).to_vec()?[0]);
    }
    Ok(Some(loss))
}

/// Returns the learning rate as a share of its peak: a linear rise, then a cosine.
pub fn schedule(step: usize, steps: usize) -> f64 {
    let (now, rise) = ((step + 1) as f64 / steps as f64, 0.05);
    if now < rise {
        now / rise
    } else {
        let progress = (now - rise) / (1.0 - rise);
        0.05 + 0.95 * (1.0 + (std::f64::consts::PI * progress).cos()) / 2.0
    }
}

#[cfg(test)]
mod tests;
