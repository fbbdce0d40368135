//! `lapwing score`: the log-probability of each token, at temperature 1.

use std::io::Write;

use anyhow::Result;
use lapwing_model::ModelError;
use lapwing_play::Progress;
use lapwing_tensor::Indices;
use serde::Serialize;

use super::loaded_model::{LoadedModel, check_ids, open, read_ids};
use crate::args::{DeviceArgs, ScoreArgs};
use crate::out;
use crate::progress::Terminal;

/// Number of rows of the output layer computed at a time.
const ROWS: usize = 1024;

/// Tokens between two reports of progress.
const PART: usize = 128;

#[derive(Serialize)]
struct TokenScores {
    ids: Vec<u32>,
    /// Natural logarithms, for `ids[1..]`.
    logprobs: Vec<f32>,
}

pub fn score(device: DeviceArgs, arguments: &ScoreArgs) -> Result<()> {
    let (files, adapter) = open(&arguments.model)?;
    let config = files.checkpoint.config();
    let ids = match (&arguments.ids, &arguments.text) {
        (Some(path), _) => read_ids(path, config)?,
        (None, text) => {
            let text = text.as_deref().unwrap_or_default();
            let ids = files.tokenizer()?.encode_plain(text)?;
            check_ids("--text".into(), &ids, config)?;
            ids
        }
    };
    // Checked before the model is loaded.
    let tokenizer = (!arguments.json).then(|| files.tokenizer()).transpose()?;
    let mut loaded = LoadedModel::for_text(device, &files, adapter.as_ref(), ids.len(), 0)?;
    let logprobs = log_probs(&mut loaded, &ids)?;
    let Some(tokenizer) = tokenizer else {
        let json = serde_json::to_string(&TokenScores { ids, logprobs })?;
        writeln!(out::raw(), "{json}")?;
        return Ok(());
    };
    let mut out = out::shown();
    writeln!(out, "{:>8}  {:>9}  token", "id", "log-prob")?;
    // Nothing precedes the first token.
    let numbers = logprobs.iter().map(|log_prob| format!("{log_prob:.4}"));
    for (id, number) in ids.iter().zip([String::new()].into_iter().chain(numbers)) {
        let token = tokenizer.text_of(*id)?;
        writeln!(out, "{id:>8}  {number:>9}  \"{}\"", out::line(&token))?;
    }
    if !logprobs.is_empty() {
        let sum: f64 = logprobs.iter().map(|&x| f64::from(x)).sum();
        let mean = sum / logprobs.len() as f64;
        let perplexity = (-mean).exp();
        writeln!(
            out,
            "sum {sum:.4}, mean {mean:.4}, perplexity {perplexity:.4}"
        )?;
    }
    Ok(())
}

fn log_probs(loaded: &mut LoadedModel, ids: &[u32]) -> Result<Vec<f32>> {
    let (model, adapter) = (&loaded.model, loaded.adapter.as_ref());
    let head = model.head(adapter);
    let terminal = Terminal::new();
    terminal.phase("text", ids.len(), "tokens");
    for end in (PART..ids.len()).step_by(PART) {
        loaded.arena.prefill(model, adapter, &[&ids[..end]])?;
        terminal.done(end);
    }
    let last = loaded.arena.prefill(model, adapter, &[ids])?[0];
    drop(terminal);
    let path = loaded.arena.path(last);
    let rows = path[..ids.len() - 1].chunks(ROWS);
    let mut log_probs = Vec::with_capacity(ids.len() - 1);
    for (rows, targets) in rows.zip(ids[1..].chunks(ROWS)) {
        let [rows, targets] = [rows, targets].map(|ids| Indices::new(model.gpu(), ids));
        let hidden = loaded.arena.hidden();
        let scores = hidden.log_probs(&head, &rows, &targets, &[], 1.0);
        log_probs.extend(scores.log_probs.to_vec()?);
    }
    if !log_probs.iter().all(|x| x.is_finite()) {
        return Err(ModelError::NotNumbers.into());
    }
    Ok(log_probs)
}
