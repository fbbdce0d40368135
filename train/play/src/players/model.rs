//! The language-agent policy: a model that plays and can be trained.

use lapwing_model::{Adapter, GenerationRequest, KvArena, Model, SamplingOptions, generate};

use crate::PlayError;
use crate::prompt::Prompts;
use crate::seeds;
use crate::{ActionRequest, Player, Reply, Sampled};

/// A model with its adapter and reference.
pub struct Policy {
    /// The frozen base, or the model itself if all weights are trained.
    pub model: Model,
    /// The trained adapter; `None` without one.
    pub adapter: Option<Adapter>,
    /// The reference of the KL penalty; `None` if there is no training, or if all weights are trained with `train.beta`
    /// = 0.
    pub reference: Option<Reference>,
    /// The KV cache of the episodes in play.
    pub arena: KvArena,
}

/// The policy that training started from.
pub struct Reference {
    /// The frozen base, or a frozen copy if all weights are trained.
    pub model: Model,
    /// Its adapter; `None` without one.
    pub adapter: Option<Adapter>,
}

impl Policy {
    /// Returns a player of the game of `prompts` with the current weights. Clears the KV cache, since an update may
    /// have changed the weights.
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

/// A player that samples from a policy.
pub struct ModelPlayer<'a> {
    policy: &'a mut Policy,
    prompts: &'a mut Prompts,
    sampling: SamplingOptions,
}

impl Player for ModelPlayer<'_> {
    /// Computes each distinct prompt once.
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
