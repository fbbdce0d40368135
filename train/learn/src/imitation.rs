//! Imitation: an adapter learns to say what somebody else has said. A start for reinforcement learning, or a way to get a
//! large model's play into a small one (distillation).
//!
//! Over the replies of kept episodes, every token with the same weight, the token that ends a reply among them:
//!
//! ```text
//! L = -1/N sum log p(token | prompt, the reply's tokens before it)
//! ```
//!
//! which is the policy gradient of tokens that somebody else has drawn, each with an advantage of 1. So replies become
//! episodes again, in the words and tokens of the model that learns, and go through the same packed token tree as those of
//! [`ms_grpo`](crate::ms_grpo).
//!
//! What is learned from: replies that could be read, of episodes that were not played to examine somebody. A tenth of the
//! scenes is held out, to tell learning from learning by heart.

use std::collections::BTreeSet;

use lapwing_env::rng::Stream;
use lapwing_model::{Adapter, Message, Model};
use lapwing_tensor::{AdamW, Tensor};

use crate::LearnError;
use crate::batch;
use crate::batch::{Batch, Chosen, pack};
use crate::config::{Aggregation, Train};
use crate::language::LanguageLearner;
use lapwing_play::prompt::Prompts;
use lapwing_play::sample::{Purpose, Sample, SampleTurn};
use lapwing_play::seeds;
use lapwing_play::{Episode, Sampled, Turn};

/// Episodes that one update learns from.
const EPISODES: usize = 8;
/// One scene in so many is held out.
const HELD_OUT: usize = 10;

/// Which episodes are imitated, and how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Imitation {
    /// episodes that returned less are left out
    pub min_return: Option<f64>,
    /// episodes that were not won are left out
    pub only_success: bool,
    /// optimiser updates; none: as many as the epochs make
    pub steps: Option<usize>,
    /// passes over the episodes
    pub epochs: usize,
    /// peak learning rate; it rises over the first twentieth of the updates and falls along a cosine to a twentieth
    pub lr: f64,
    /// the order of the episodes follows from it
    pub seed: u64,
}

/// Episodes in the tokens of the model that learns.
#[derive(Debug, Default)]
pub struct Lessons {
    /// what is learned from
    pub train: Vec<Episode>,
    /// of scenes that are not learned from
    pub held_out: Vec<Episode>,
    /// episodes that were played to examine somebody
    pub of_evaluations: usize,
    /// episodes that did not do well enough, or have no reply that could be read
    pub left_out: usize,
    /// replies that could not be read, in episodes that are learned from
    pub unread: usize,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Update {
    /// updates done
    pub step: usize,
    /// updates in all
    pub steps: usize,
    /// cross-entropy of the episodes that it learned from, before it did: nats a token
    pub loss: f64,
}

/// The cross-entropy on held-out scenes, nats a token; none: there were too few scenes to hold one out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Imitated {
    /// before the first update
    pub before: Option<f64>,
    /// after the last
    pub after: Option<f64>,
}

impl Imitation {
    /// What is to be learned from these episodes, by the model whose prompts these are, which takes so many tokens.
    ///
    /// # Errors
    /// If nothing is left, a prompt was written for another model, or is too long for this one.
    pub fn lessons(
        &self,
        samples: &[Sample],
        prompts: &Prompts,
        most: usize,
    ) -> Result<Lessons, LearnError> {
        let writer = Writer::new(prompts, most)?;
        let held_out = held_out(samples.iter().filter(|sample| self.takes(sample)));
        let mut lessons = Lessons::default();
        for sample in samples {
            let read: Vec<&SampleTurn> = sample
                .turns
                .iter()
                .filter(|turn| turn.action.is_some())
                .collect();
            if sample.purpose == Purpose::Evaluation {
                lessons.of_evaluations += 1;
            } else if !self.takes(sample) || read.is_empty() {
                lessons.left_out += 1;
            } else {
                lessons.unread += sample.turns.len() - read.len();
                let turns = read.into_iter().map(|turn| writer.turn(turn));
                let episode = Episode {
                    turns: turns.collect::<Result<_, _>>()?,
                    ..Episode::default()
                };
                match held_out.contains(&*sample.scene) {
                    true => lessons.held_out.push(episode),
                    false => lessons.train.push(episode),
                }
            }
        }
        if lessons.train.is_empty() {
            let (all, examined, left) = (samples.len(), lessons.of_evaluations, lessons.left_out);
            return Err(LearnError::Imitation(format!(
                "nothing is left of {all} episodes: {examined} are of evaluations, on scenes that nobody may learn from \
                 (wanted those of `lapwing play --keep`, or of a run with --all-episodes), and {left} did not do well \
                 enough or hold no reply that can be read"
            )));
        }
        Ok(lessons)
    }

    /// Optimiser updates that these lessons make.
    pub fn updates(&self, lessons: &Lessons) -> usize {
        let epoch = lessons.train.len().div_ceil(EPISODES);
        self.steps.unwrap_or(self.epochs * epoch)
    }

    fn takes(&self, sample: &Sample) -> bool {
        sample.purpose == Purpose::Training
            && (sample.success || !self.only_success)
            && self
                .min_return
                .is_none_or(|least| sample.game_return >= least)
    }
}

/// The scenes that are held out: the same whatever the seed, as long as the scenes are.
fn held_out<'a>(samples: impl Iterator<Item = &'a Sample>) -> BTreeSet<&'a str> {
    let scenes: BTreeSet<&str> = samples.map(|sample| &*sample.scene).collect();
    let mut scenes: Vec<&str> = scenes.into_iter().collect();
    // A single scene is needed to learn from.
    let count = if scenes.len() < 2 {
        0
    } else {
        scenes.len().div_ceil(HELD_OUT)
    };
    scenes.sort_by_key(|scene| seeds::derive(0, &format!("held out {scene}"), &[]));
    scenes.into_iter().take(count).collect()
}

/// Writes turns as the model that learns reads and says them.
struct Writer<'a> {
    prompts: &'a Prompts,
    /// what every prompt of this model begins and ends with
    around: (String, String),
    /// what ends a reply
    end: u32,
    most: usize,
}

impl Writer<'_> {
    fn new(prompts: &Prompts, most: usize) -> Result<Writer<'_>, LearnError> {
        let (told, said) = ("Told.", "Said.");
        let mut messages = vec![Message::system(told), Message::user(told)];
        let prompt = prompts.template().render(&messages, true)?;
        let around = match (prompt.find(told), prompt.rfind(told)) {
            (Some(first), Some(last)) => (&prompt[..first], &prompt[last + told.len()..]),
            _ => ("", ""),
        };
        let around = (around.0.to_owned(), around.1.to_owned());

        // Of the tokens that end a reply, the one that the template writes after it.
        messages.push(Message::assistant(said));
        let whole = prompts.template().render(&messages, false)?;
        let after = whole.rsplit(said).next().unwrap_or_default();
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
        Ok(Writer {
            prompts,
            around,
            end,
            most,
        })
    }

    fn turn(&self, turn: &SampleTurn) -> Result<Turn, LearnError> {
        let tokenizer = self.prompts.tokenizer();
        let prompt = match &turn.messages[..] {
            [] => self.check(&turn.prompt)?.to_owned(),
            messages => self.prompts.template().render(messages, true)?,
        };
        let prompt = tokenizer.encode(&prompt)?;
        let mut ids = tokenizer.encode(&turn.reply)?;
        ids.push(self.end);
        if prompt.len() + ids.len() > self.most {
            return Err(LearnError::Imitation(format!(
                "a prompt of {} tokens and its reply of {} do not fit this model, which was made for {} together \
                 (max_position_embeddings)",
                prompt.len(),
                ids.len(),
                self.most
            )));
        }
        Ok(Turn {
            sampled: Some(Sampled {
                prompt: prompt.into(),
                // Nobody of ours has drawn them; imitation does not ask.
                log_probs: vec![0.0; ids.len()],
                entropies: vec![0.0; ids.len()],
                ids,
                cut: false,
            }),
            ..Turn::default()
        })
    }

    /// A prompt that was kept as text is in the template of the model that played.
    fn check<'a>(&self, prompt: &'a str) -> Result<&'a str, LearnError> {
        let (before, after) = &self.around;
        match !prompt.is_empty() && prompt.starts_with(before) && prompt.ends_with(after) {
            true => Ok(prompt),
            false => Err(LearnError::Imitation(
                "an episode has its prompts only as text, in the chat template of another model: another model can imitate \
                 what `lapwing play --keep` has kept"
                    .to_owned(),
            )),
        }
    }
}

/// Teaches the adapter of a state; `told` hears of every update.
///
/// # Errors
/// If the device fails, or the loss is no finite number any more.
///
/// # Panics
/// If the state is not one that trains.
pub fn imitate(
    learner: &mut LanguageLearner,
    train: &Train,
    lessons: &Lessons,
    how: &Imitation,
    told: &mut dyn FnMut(Update),
) -> Result<Imitated, LearnError> {
    let steps = how.updates(lessons);
    let before = held_out_loss(learner, train, lessons)?;
    let (mut order, mut epoch) = (Vec::new(), 0);
    for step in 0..steps {
        // The next episodes, each once in an epoch, in another order each time.
        if order.is_empty() {
            order = shuffled(lessons.train.len(), how.seed, epoch);
            epoch += 1;
        }
        let now = order.split_off(order.len().saturating_sub(EPISODES));

        // The loss of all their replies, a part of the token tree at a time.
        let batches = packed(
            now.iter().map(|e| &lessons.train[*e]),
            train.tokens_per_batch,
        );
        let parameters = learner.parameters.as_mut().expect("a state that trains");
        let mut loss = 0.0;
        for batch in &batches {
            let part = cross_entropy(
                &learner.policy.model,
                learner.policy.adapter.as_ref(),
                batch,
            );
            parameters.accumulate(&part.backward());
            loss += f64::from(part.to_vec()?[0]);
        }
        if !loss.is_finite() {
            return Err(LearnError::Imitation(format!(
                "the loss is no finite number after {step} updates: choose a smaller --lr than {}",
                how.lr
            )));
        }
        parameters.step(AdamW {
            lr: how.lr * schedule(step, steps),
            beta1: train.betas[0],
            beta2: train.betas[1],
            eps: 1e-8,
            weight_decay: train.weight_decay,
            max_norm: train.max_grad_norm,
        });
        told(Update {
            step: step + 1,
            steps,
            loss,
        });
    }
    Ok(Imitated {
        before,
        after: held_out_loss(learner, train, lessons)?,
    })
}

/// Replies as batches whose losses add up to the mean over their tokens.
fn packed<'a>(episodes: impl Iterator<Item = &'a Episode>, limit: usize) -> Vec<Batch> {
    let episodes: Vec<&Episode> = episodes.collect();
    let longest = episodes.iter().map(|episode| episode.turns.len()).max();
    let advantages = vec![1.0; longest.unwrap_or(0)];
    let one = |episode: &&'a Episode| Chosen {
        episode,
        advantages: &advantages,
        importance: 1.0,
        entropy_weight: 0.0,
    };
    let chosen: Vec<Chosen<'_>> = episodes.iter().map(one).collect();
    let over = batch::count(episodes.iter().copied(), Aggregation::Token);
    pack(&chosen, Aggregation::Token, over, limit)
}

/// This batch's part of the loss.
fn cross_entropy(model: &Model, adapter: Option<&Adapter>, batch: &Batch) -> Tensor {
    let gpu = model.gpu();
    let log_probs = batch.on(gpu).log_probs(model, adapter, 1.0);
    // Replies that begin alike share pairs.
    let mut weights = vec![0.0; batch.rows.len()];
    for token in &batch.tokens {
        weights[token.pair as usize] += token.weight;
    }
    let weights = Tensor::from_slice(gpu, &weights, &[weights.len()]);
    log_probs.mul(&weights).sum().neg()
}

fn held_out_loss(
    learner: &LanguageLearner,
    train: &Train,
    lessons: &Lessons,
) -> Result<Option<f64>, LearnError> {
    if lessons.held_out.is_empty() {
        return Ok(None);
    }
    let model = learner.policy.model.without_gradients();
    let adapter = learner
        .policy
        .adapter
        .as_ref()
        .map(Adapter::without_gradients);
    let mut loss = 0.0;
    for batch in packed(lessons.held_out.iter(), train.tokens_per_batch) {
        loss += f64::from(cross_entropy(&model, adapter.as_ref(), &batch).to_vec()?[0]);
    }
    Ok(Some(loss))
}

/// Rises linearly, falls along a cosine.
pub fn schedule(step: usize, steps: usize) -> f64 {
    let (now, rise) = ((step + 1) as f64 / steps as f64, 0.05);
    if now < rise {
        now / rise
    } else {
        let fallen = (now - rise) / (1.0 - rise);
        0.05 + 0.95 * (1.0 + (std::f64::consts::PI * fallen).cos()) / 2.0
    }
}

/// Fisher and Yates.
fn shuffled(count: usize, seed: u64, epoch: usize) -> Vec<usize> {
    let seed = seeds::derive(seed, "imitation", &[epoch]);
    let mut chance = Stream::new(seed, "imitation");
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        order.swap(i, chance.below(i + 1));
    }
    order
}
