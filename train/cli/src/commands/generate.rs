//! `lapwing generate`: a model goes on with a text, a conversation or token ids.

use std::io::Write;

use anyhow::Result;
use lapwing_model::{GenerationRequest, SamplingOptions, Tokenizer, generate as draw};
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::base::files::Files;
use serde::Serialize;
use serde_json::{Map, Value};

use super::subject::{InputError, Subject, check_ids, open, origin, read_ids, read_json};
use crate::args;
use crate::out;

#[derive(Serialize)]
struct Generated {
    /// as drawn, the one that ended the reply included
    ids: Vec<u32>,
    /// special tokens left out
    text: String,
}

/// Draws a reply and prints it.
pub fn generate(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Generate,
) -> Result<()> {
    let files = open(&arguments.subject.chosen.model)?;
    let tokenizer = files.tokenizer()?;
    let prompt = prompt(&arguments.input, &files, tokenizer)?;
    let config = files.checkpoint.config();
    let more = arguments
        .max_new_tokens
        .min(config.max_positions - prompt.len());
    if more == 0 {
        let most = config.max_positions;
        let problem =
            format!("{most} tokens, which is all that the model was made for: no room to go on");
        return Err(InputError::new("the prompt", problem).into());
    }
    let mut subject = Subject::load(
        open_gpu,
        &arguments.subject.chosen,
        &files,
        prompt.len(),
        more,
    )?;
    let sampling = SamplingOptions {
        temperature: if arguments.greedy {
            0.0
        } else {
            arguments.temperature
        },
        top_k: usize::try_from(arguments.top_k).unwrap_or(usize::MAX),
        top_p: arguments.top_p,
        max_new_tokens: more,
        stop: tokenizer.stop_ids().to_vec(),
    };
    let request = GenerationRequest {
        prompt,
        key: arguments.seed,
    };
    let (model, adapter) = (&subject.model, subject.adapter.as_ref());
    let mut replies = draw(model, adapter, &mut subject.arena, &[request], &sampling)?;
    let reply = replies.remove(0);
    let generated = Generated {
        text: tokenizer.decode(&reply.ids)?,
        ids: reply.ids,
    };

    match arguments.subject.json {
        true => writeln!(out::raw(), "{}", serde_json::to_string(&generated)?)?,
        false => out::print(&generated.text)?,
    }
    Ok(())
}

/// The token ids to go on with.
fn prompt(input: &args::GenerateInput, files: &Files, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let config = files.checkpoint.config();
    let (origin, ids) = if let Some(path) = &input.ids {
        return read_ids(path, config);
    } else if let Some(path) = &input.chat {
        let origin = origin(path);
        let (messages, variables) = conversation(&origin, read_json(path, "wanted messages")?)?;
        let mut template = files.template()?;
        template.set(variables)?;
        let text = template.render(&messages, true)?;
        (origin, tokenizer.encode(&text)?)
    } else {
        let text = input.prompt.as_deref().unwrap_or_default();
        ("--prompt".to_owned(), tokenizer.encode_plain(text)?)
    };
    check_ids(origin, &ids, config)?;
    Ok(ids)
}

/// A list of messages, or an object with one and with variables for the template.
fn conversation(origin: &str, value: Value) -> Result<(Vec<Value>, Map<String, Value>)> {
    let wrong = |problem: &str| InputError::new(origin, problem);
    let (messages, variables) = match value {
        Value::Object(mut map) => (map.remove("messages").unwrap_or_default(), map),
        other => (other, Map::new()),
    };
    let Value::Array(messages) = messages else {
        return Err(wrong("wanted a list of messages, or an object with `messages`").into());
    };
    let is_message = |message: &Value| message["role"].is_string();
    match messages.iter().position(|message| !is_message(message)) {
        None if messages.is_empty() => Err(wrong("there is no message in it").into()),
        None => Ok((messages, variables)),
        Some(at) => {
            let wanted = "{\"role\": \"user\", \"content\": \"...\"}";
            Err(wrong(&format!(
                "message {at} has no role; wanted such as {wanted}"
            ))
            .into())
        }
    }
}
