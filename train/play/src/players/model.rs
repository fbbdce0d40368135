//! The language-agent policy: a model that plays, and that can be taught.

use lapwing_model::{Adapter, GenerationRequest, KvArena, Model, SamplingOptions, generate};

use crate::PlayError;
use crate::prompt::Prompts;
use crate::seeds;
use crate::{ActionRequest, Player, Reply, Sampled};

/// A model, the adapter that it is trained through, if it is not trained itself, and how it is asked.
pub struct Policy {
    /// the frozen base; or the model whose every weight is trained, which shows each update
    pub model: Model,
    /// none: the model as it is
    pub adapter: Option<Adapter>,
    /// what it is held against; none: nothing asks, in play or where all weights are trained with `train.beta` = 0
    pub reference: Option<Reference>,
    /// keys and values of what is being played
    pub arena: KvArena,
}

/// What training began from, as it was.
pub struct Reference {
    /// the frozen base; or a frozen copy of the model, where that is trained itself
    pub model: Model,
    /// none: the model as it is
    pub adapter: Option<Adapter>,
}

impl Policy {
    /// The policy as it stands, at play in the game of these prompts with replies drawn in this way. The last player's keys and values are forgotten:
    /// what was learned may have changed since.
    pub fn player<'a>(
        &'a mut self,
        prompts: &'a mut Prompts,
        temperature: f64,
        max_new_tokens: usize,
    ) -> ModelPlayer<'a> {
        self.arena.clear();
        let sampling = SamplingOptions {
            temperature: temperature as f32,
            max_new_tokens,
            stop: prompts.tokenizer().stop_ids().to_vec(),
            ..SamplingOptions::default()
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
    sampling: SamplingOptions,
}

impl Player for ModelPlayer<'_> {
    /// Each distinct prompt runs through the model once, however many ask it.
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
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
            requests.push(GenerationRequest {
                prompt: prompt.to_vec(),
                key,
            });
            asked.push(prompt);
        }
        let drawn = generate(model, adapter.as_ref(), arena, &requests, &self.sampling)?;
        let reply = |(prompt, drawn): (_, lapwing_model::GeneratedReply)| {
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
