//! `lapwing score`: how likely a model finds each token of a text, at temperature 1.

use std::io::Write;

use anyhow::Result;
use lapwing_model::ModelError;
use lapwing_tensor::{Gpu, GpuError, Indices};
use serde::Serialize;

use super::subject::{Subject, check_ids, open, read_ids};
use crate::args;
use crate::out;

/// Rows of the head at a time.
const ROWS: usize = 1024;

#[derive(Serialize)]
struct Scored {
    ids: Vec<u32>,
    /// of `ids[1..]`, natural logarithms
    logprobs: Vec<f32>,
}

/// Scores the text or the ids and prints them.
pub fn score(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Score,
) -> Result<()> {
    let files = open(&arguments.subject.chosen.model)?;
    let config = files.checkpoint.config();
    let ids = match (&arguments.input.ids, &arguments.input.text) {
        (Some(path), _) => read_ids(path, config)?,
        (None, text) => {
            let text = text.as_deref().unwrap_or_default();
            let ids = files.tokenizer()?.encode_plain(text)?;
            check_ids("--text".into(), &ids, config)?;
            ids
        }
    };
    // Only needed to show them, but what it lacks should be said before the work.
    let tokenizer = (!arguments.subject.json).then(|| files.tokenizer());
    let tokenizer = tokenizer.transpose()?;
    let mut subject = Subject::load(open_gpu, &arguments.subject.chosen, &files, ids.len(), 0)?;
    let scored = Scored {
        logprobs: log_probs(&mut subject, &ids)?,
        ids,
    };

    let Some(tokenizer) = tokenizer else {
        writeln!(out::raw(), "{}", serde_json::to_string(&scored)?)?;
        return Ok(());
    };
    let mut out = out::shown();
    let of = |id: u32| {
        let token = tokenizer.token(id)?.unwrap_or_default();
        Ok::<_, ModelError>(out::line(&token).into_owned())
    };
    writeln!(out, "{:>8}  {:>9}  token", "id", "log-prob")?;
    writeln!(
        out,
        "{:>8}  {:>9}  {}",
        scored.ids[0],
        "",
        of(scored.ids[0])?
    )?;
    for (id, log_prob) in scored.ids[1..].iter().zip(&scored.logprobs) {
        writeln!(out, "{id:>8}  {log_prob:>9.4}  {}", of(*id)?)?;
    }
    if scored.logprobs.is_empty() {
        return Ok(());
    }
    let sum: f64 = scored.logprobs.iter().map(|&x| f64::from(x)).sum();
    let mean = sum / scored.logprobs.len() as f64;
    writeln!(
        out,
        "sum {sum:.4}, mean {mean:.4}, perplexity {:.4}",
        (-mean).exp()
    )?;
    Ok(())
}

fn log_probs(subject: &mut Subject, ids: &[u32]) -> Result<Vec<f32>> {
    let (model, adapter) = (&subject.model, subject.adapter.as_ref());
    let head = model.head(adapter);
    let last = subject.arena.prefill(model, adapter, &[ids])?[0];
    let path = subject.arena.path(last);
    let asked = path[..ids.len() - 1]
        .chunks(ROWS)
        .zip(ids[1..].chunks(ROWS));
    let mut log_probs = Vec::with_capacity(ids.len() - 1);
    for (rows, targets) in asked {
        let (rows, targets) = (
            Indices::new(model.gpu(), rows),
            Indices::new(model.gpu(), targets),
        );
        let scored = subject
            .arena
            .hidden()
            .log_probs(&head, &rows, &targets, 1.0);
        log_probs.extend(scored.log_probs.to_vec()?);
    }
    if !log_probs.iter().all(|x| x.is_finite()) {
        return Err(ModelError::NotNumbers.into());
    }
    Ok(log_probs)
}
