//! `lapwing generate`: a continuation of a text, a conversation or token ids.

use std::io::Write;

use anyhow::Result;
use lapwing_model::{GenerationRequest, SamplingOptions, Tokenizer, generate as sample};
use lapwing_train::base::files::Files;
use serde_json::{Map, Value, json};

use super::loaded_model::{InputError, LoadedModel, check_ids, open, origin, read_ids, read_json};
use crate::args::{DeviceArgs, GenerateArgs};
use crate::out;

pub fn generate(device: DeviceArgs, arguments: &GenerateArgs) -> Result<()> {
    let (files, adapter) = open(&arguments.model)?;
    let tokenizer = files.tokenizer()?;
    let prompt = prompt(arguments, &files, tokenizer)?;
    let most = files.checkpoint.config().max_positions;
    let max_new_tokens = arguments.max_new_tokens.min(most - prompt.len());
    if max_new_tokens == 0 {
        let problem =
            format!("{most} tokens, the maximum of the model: no room for a continuation");
        return Err(InputError::new("the prompt", problem).into());
    }
    let mut loaded = LoadedModel::for_text(
        device,
        &files,
        adapter.as_ref(),
        prompt.len(),
        max_new_tokens,
    )?;
    let sampling = SamplingOptions {
        temperature: match arguments.greedy {
            true => 0.0,
            false => arguments.temperature,
        },
        top_k: usize::try_from(arguments.top_k).unwrap_or(usize::MAX),
        top_p: arguments.top_p,
        max_new_tokens,
        stop: tokenizer.stop_ids().to_vec(),
    };
    let request = GenerationRequest {
        prompt,
        key: arguments.seed,
    };
    let (model, adapter) = (&loaded.model, loaded.adapter.as_ref());
    let mut replies = sample(model, adapter, &mut loaded.arena, &[request], &sampling)?;
    let ids = replies.remove(0).ids;
    let text = tokenizer.decode(&ids)?;
    match arguments.json {
        // All new tokens, including the stop token; the text has no special tokens.
        true => writeln!(out::raw(), "{}", json!({ "ids": ids, "text": text }))?,
        false => out::print(&text)?,
    }
    Ok(())
}

/// Returns the token ids to continue.
fn prompt(arguments: &GenerateArgs, files: &Files, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let config = files.checkpoint.config();
    let (origin, ids) = if let Some(path) = &arguments.ids {
        return read_ids(path, config);
    } else if let Some(path) = &arguments.chat {
        let origin = origin(path);
        let (messages, variables) = conversation(&origin, read_json(path, "wanted messages")?)?;
        let mut template = files.template()?;
        template.set(variables)?;
        let text = template.render(&messages, true)?;
        (origin, tokenizer.encode(&text)?)
    } else {
        let text = arguments.prompt.as_deref().unwrap_or_default();
        ("--prompt".to_owned(), tokenizer.encode_plain(text)?)
    };
    check_ids(origin, &ids, config)?;
    Ok(ids)
}

/// Returns the messages and the template variables of a conversation.
fn conversation(origin: &str, value: Value) -> Result<(Vec<Value>, Map<String, Value>)> {
    let wrong = |problem: &str| Err(InputError::new(origin, problem).into());
    let (messages, variables) = match value {
        Value::Object(mut map) => (map.remove("messages").unwrap_or_default(), map),
        other => (other, Map::new()),
    };
    let Value::Array(messages) = messages else {
        return wrong("wanted a list of messages, or an object with `messages`");
    };
    if messages.is_empty() {
        return wrong("the conversation has no message");
    }
    let is_message = |message: &Value| message["role"].is_string();
    match messages.iter().position(|message| !is_message(message)) {
        None => Ok((messages, variables)),
        Some(at) => wrong(&format!(
            "message {at} has no role; wanted a message such as {{\"role\": \"user\", \"content\": \"...\"}}"
        )),
    }
}
