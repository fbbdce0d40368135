//! The referee: plays many episodes at once with one agent.
//!
//! Every living episode takes its step together with the others. The model sees each distinct prompt once. Step limits
//! and unreadable replies are the referee's business, not the game's.

use std::sync::Arc;

use lapwing_env::{Game, Scenario};
use lapwing_model::{Arena, ModelError, Request, Sampling, generate};

use crate::agent::{Agent, Prompts};
use crate::seeds;

/// What the referee goes by.
#[derive(Debug, Clone)]
pub struct Referee {
    /// An episode that is not over by then is truncated.
    pub step_limit: usize,
    /// Taken off the return for a reply that cannot be read.
    pub format_penalty: f64,
    /// How replies are sampled.
    pub sampling: Sampling,
}

/// One episode to be played.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    /// the seed of the initial state
    pub scene: u64,
    /// the seed of what chance does afterwards
    pub luck: u64,
    /// the seed of the agent's sampling
    pub reply: u64,
}

/// One step of an episode.
#[derive(Debug, Clone)]
pub struct Step {
    /// what the agent saw
    pub observation: String,
    /// the same as the model saw it
    pub prompt: Arc<[u32]>,
    /// token ids as sampled, the stop token included
    pub reply: Vec<u32>,
    /// log-probability of each token of the reply when it was sampled, at the sampling temperature
    pub log_probs: Vec<f32>,
    /// entropy of the distribution that each token was drawn from, in nats
    pub entropies: Vec<f32>,
    /// `None`: the reply could not be read
    pub action: Option<usize>,
    /// what the game gave
    pub reward: f64,
    /// what the referee added: minus the format penalty, or zero
    pub shaping: f64,
}

/// A played episode.
#[derive(Debug, Clone, Default)]
pub struct Episode {
    /// from the first to the last
    pub steps: Vec<Step>,
    /// whether the game counts it as won
    pub success: bool,
    /// stopped by the step limit rather than by the game's rules
    pub truncated: bool,
}

impl Episode {
    /// C: the sum over the steps of reward and shaping.
    pub fn composite_return(&self) -> f64 {
        self.steps
            .iter()
            .map(|step| step.reward + step.shaping)
            .sum()
    }

    /// What the game gave, without the shaping.
    pub fn game_return(&self) -> f64 {
        self.steps.iter().map(|step| step.reward).sum()
    }

    /// Tokens of its replies.
    pub fn reply_tokens(&self) -> usize {
        self.steps.iter().map(|step| step.reply.len()).sum()
    }

    /// Tokens that it would take as separate sequences: a prompt and a reply for every step.
    pub fn tokens(&self) -> usize {
        self.steps
            .iter()
            .map(|step| step.prompt.len() + step.reply.len())
            .sum()
    }
}

/// Plays one episode for each seat, all at once. `finished` is told, after every round, how many episodes are over.
///
/// # Errors
/// If the model, its tokenizer or the device fails.
pub fn play(
    agent: &Agent,
    scenario: &dyn Scenario,
    prompts: &mut Prompts,
    seats: &[Seat],
    referee: &Referee,
    arena: &mut Arena,
    mut finished: impl FnMut(usize),
) -> Result<Vec<Episode>, ModelError> {
    arena.clear();
    let mut games: Vec<Box<dyn Game>> = seats
        .iter()
        .map(|seat| scenario.start(seat.scene, seat.luck))
        .collect();
    let mut episodes = vec![Episode::default(); seats.len()];
    let mut living: Vec<usize> = (0..seats.len()).collect();
    for round in 0..referee.step_limit {
        if living.is_empty() {
            break;
        }
        let mut requests = Vec::with_capacity(living.len());
        for &seat in &living {
            let observation = games[seat].observe();
            let prompt = prompts.ids(agent, &observation)?;
            requests.push(Request {
                prompt: prompt.to_vec(),
                key: seeds::derive(seats[seat].reply, "reply", &[round]),
            });
            episodes[seat].steps.push(Step {
                observation,
                prompt,
                reply: Vec::new(),
                log_probs: Vec::new(),
                entropies: Vec::new(),
                action: None,
                reward: 0.0,
                shaping: 0.0,
            });
        }
        let replies = generate(
            &agent.model,
            agent.adapter.as_ref(),
            arena,
            &requests,
            &referee.sampling,
        )?;
        let mut still = Vec::with_capacity(living.len());
        for (&seat, reply) in living.iter().zip(replies) {
            let episode = &mut episodes[seat];
            let action = prompts.parse(&agent.tokenizer.decode(&reply.ids)?);
            let turn = games[seat].play(action);
            let step = episode.steps.last_mut().expect("pushed above");
            step.action = action;
            step.reward = turn.reward;
            step.shaping = if action.is_none() {
                -referee.format_penalty
            } else {
                0.0
            };
            (step.reply, step.log_probs, step.entropies) =
                (reply.ids, reply.log_probs, reply.entropies);
            episode.success = games[seat].succeeded();
            if !turn.over {
                episode.truncated = round + 1 == referee.step_limit;
                still.push(seat);
            }
        }
        living = still;
        finished(seats.len() - living.len());
    }
    Ok(episodes)
}
