//! The probabilities of the next word.

use lapwing_model::{BatchRequest, GenerationRequest, ReplyBatch, SamplingOptions, Tokenizer};
use lapwing_play::players::model::Policy;
use serde::Serialize;

/// The most words to return.
const MOST: usize = 8;

/// A word that a model may write next.
#[derive(Debug, Serialize)]
pub struct Word {
    pub word: String,
    pub probability: f32,
}

/// Returns the likeliest first words of the reply to a prompt, in descending order. `trained` is false for the base.
pub fn words(
    policy: &mut Policy,
    tokenizer: &Tokenizer,
    prompt: &str,
    trained: bool,
) -> Result<Vec<Word>, String> {
    let adapter = policy.adapter.as_ref().filter(|_| trained);
    let ids = tokenizer.encode(prompt).map_err(|e| e.to_string())?;
    let sampling = SamplingOptions {
        max_new_tokens: 1,
        ..SamplingOptions::default()
    };
    let request = BatchRequest {
        request: GenerationRequest {
            prompt: ids,
            key: 0,
        },
        sampling,
        scores: Some(MOST),
    };
    policy.arena.clear();
    let mut batch = ReplyBatch::new(&policy.model, adapter);
    let arena = &mut policy.arena;
    batch
        .join(arena, vec![request])
        .map_err(|e| e.to_string())?;
    let sampled = batch.step(arena).map_err(|e| e.to_string())?;
    // Keys and values of another adapter.
    arena.clear();
    let score = sampled[0].score.as_ref().expect("scores were requested");
    let word = |(id, log_prob): &(u32, f32)| {
        let word = tokenizer.decode(&[*id]).map_err(|e| e.to_string())?;
        let word = match word.trim() {
            "" => "(end)".to_owned(),
            word => word.to_owned(),
        };
        let probability = log_prob.exp();
        Ok(Word { word, probability })
    };
    score.likeliest.iter().map(word).collect()
}
