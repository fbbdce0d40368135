//! The language-agent policy: a model that plays, and that can be taught.

use lapwing_model::{Adapter, Arena, Model, Request, Sampling, generate};

use crate::Error;
use crate::play::prompt::Prompts;
use crate::play::{Ask, Player, Reply, Sampled};
use crate::run::seeds;

/// A model, the adapter that it is trained through, and how it is asked.
pub struct Policy {
    /// the frozen base
    pub model: Model,
    /// none: the base as it is
    pub adapter: Option<Adapter>,
    /// What the policy is held against: the adapter that training began from. None: the base as it is.
    pub reference: Option<Adapter>,
    /// keys and values of what is being played
    pub arena: Arena,
}

impl Policy {
    /// The policy as it stands, at play in the game of these prompts with replies drawn in this way. The last player's keys and values are forgotten:
    /// the adapter may have changed since.
    pub fn player<'a>(
        &'a mut self,
        prompts: &'a mut Prompts,
        temperature: f64,
        max_new_tokens: usize,
    ) -> ModelPlayer<'a> {
        self.arena.clear();
        let sampling = Sampling {
            temperature: temperature as f32,
            max_new_tokens,
            stop: prompts.tokenizer().stop_ids().to_vec(),
            ..Sampling::default()
        };
        ModelPlayer {
            policy: self,
            prompts,
            sampling,
        }
    }
}

/// A policy at play.
pub struct ModelPlayer<'a> {
    policy: &'a mut Policy,
    prompts: &'a mut Prompts,
    sampling: Sampling,
}

impl Player for ModelPlayer<'_> {
    /// Each distinct prompt runs through the model once, however many ask it.
    fn act(&mut self, asks: &[Ask<'_>]) -> Result<Vec<Reply>, Error> {
        let Policy {
            model,
            adapter,
            arena,
            ..
        } = &mut *self.policy;
        let prompts = &mut *self.prompts;
        let mut requests = Vec::with_capacity(asks.len());
        let mut asked = Vec::with_capacity(asks.len());
        for ask in asks {
            let prompt = prompts.ids(&ask.seen())?;
            let key = seeds::derive(ask.seed, "reply", &[ask.turn]);
            requests.push(Request {
                prompt: prompt.to_vec(),
                key,
            });
            asked.push(prompt);
        }
        let drawn = generate(model, adapter.as_ref(), arena, &requests, &self.sampling)?;
        let reply = |(prompt, drawn): (_, lapwing_model::Reply)| {
            let text = prompts.tokenizer().decode(&drawn.ids)?;
            let sampled = Some(Sampled {
                prompt,
                ids: drawn.ids,
                log_probs: drawn.log_probs,
                entropies: drawn.entropies,
                cut: !drawn.stopped,
            });
            let read = prompts.framing.read(text, !drawn.stopped);
            Ok(Reply { sampled, ..read })
        };
        asked.into_iter().zip(drawn).map(reply).collect()
    }
}
