//! A language model as a player that can be trained.

use lapwing_model::{Adapter, GenerationRequest, KvArena, Model, SamplingOptions, generate};

use crate::prompt::Prompts;
use crate::{ActionRequest, PlayError, Player, Reply, Sampled, seeds};

/// A model, its adapter (unless the model itself is trained) and the reference.
pub struct Policy {
    /// the frozen base; or the model whose weights are all trained, which shows each update
    pub model: Model,
    /// none: the model without an adapter
    pub adapter: Option<Adapter>,
    /// the KL reference; none: no reference is needed, as in play, or with all weights trained and `train.beta` = 0
    pub reference: Option<Reference>,
    /// keys and values of the episodes in progress
    pub arena: KvArena,
}

/// The policy at the start of training.
pub struct Reference {
    /// the frozen base; or a frozen copy of the model, if the model itself is trained
    pub model: Model,
    /// none: the model without an adapter
    pub adapter: Option<Adapter>,
}

impl Policy {
    /// Returns the current policy as a player of the game of these prompts, with these sampling settings. Clears the
    /// keys and values of the previous player, because an update may have changed the weights.
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
            allowed: prompts.allowed.clone(),
            ..SamplingOptions::default()
        };
        ModelPlayer {
            policy: self,
            prompts,
            sampling,
            watch: None,
        }
    }
}

/// A policy as a player.
pub struct ModelPlayer<'a> {
    policy: &'a mut Policy,
    prompts: &'a mut Prompts,
    sampling: SamplingOptions,
    /// Receives a request and the ids of its reply: none before the first token, then after each token. If it returns
    /// false, the player leaves.
    pub watch: Option<&'a mut ReplyWatch<'a>>,
}

type ReplyWatch<'a> = dyn FnMut(&ActionRequest<'_>, &[u32]) -> bool + 'a;

impl Player for ModelPlayer<'_> {
    /// Each distinct prompt runs through the model once, however many episodes have it.
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
            asked.push(prompts.ids(&ask.seen)?);
            let prompt = asked[asked.len() - 1].to_vec();
            let key = seeds::derive(ask.seen.seed, "reply", &[ask.turn]);
            requests.push(GenerationRequest { prompt, key });
        }
        let mut goes_on = true;
        let mut watch = |request: usize, ids: &[u32]| {
            if let Some(watch) = &mut self.watch {
                goes_on &= watch(&asks[request], ids);
            }
            goes_on
        };
        let (adapter, sampling) = (adapter.as_ref(), &self.sampling);
        let drawn = generate(model, adapter, arena, &requests, sampling, &mut watch)?;
        if !goes_on {
            return Err(PlayError::Left);
        }
        let reply = |(prompt, drawn): (_, lapwing_model::GeneratedReply)| {
            let text = prompts.tokenizer().decode(&drawn.ids)?;
            let sampled = Some(Sampled {
                prompt,
                ids: drawn.ids,
                log_probs: drawn.log_probs,
                entropies: drawn.entropies,
                cut: !drawn.stopped,
                allowed: sampling.allowed.clone(),
            });
            let read = prompts.framing.read(text, !drawn.stopped);
            Ok(Reply { sampled, ..read })
        };
        asked.into_iter().zip(drawn).map(reply).collect()
    }
}
