//! `lapwing generate`: a continuation of a text, a conversation or token ids.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use lapwing_model::{GenerationRequest, SamplingOptions, Tokenizer, generate as sample};
use lapwing_play::Progress;
use lapwing_train::base::files::Files;
use serde_json::{Map, Value, json};

use super::loaded_model::{InputError, LoadedModel, check_ids, open, origin, read_ids, read_json};
use crate::args::{DeviceArgs, GenerateArgs};
use crate::interrupt::{self, Stopped};
use crate::out;
use crate::progress::Terminal;

pub fn generate(device: DeviceArgs, arguments: &GenerateArgs) -> Result<()> {
    interrupt::listen("the text so far is printed")?;
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
    if max_new_tokens < arguments.max_new_tokens {
        out::note(&format!(
            "the reply has at most {max_new_tokens} tokens: the model supports {most} with the prompt"
        ));
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
        allowed: None,
    };
    let request = GenerationRequest {
        prompt,
        key: arguments.seed,
    };
    let (model, adapter) = (&loaded.model, loaded.adapter.as_ref());
    let is_streamed = !arguments.json && io::stdout().is_terminal();
    let terminal = (!is_streamed).then(Terminal::new);
    if let Some(terminal) = &terminal {
        terminal.phase("reply", max_new_tokens, "tokens");
    }
    let mut printed = Ok(String::new());
    let mut watch = |_: usize, ids: &[u32]| {
        if let Some(terminal) = &terminal {
            terminal.done(ids.len());
        }
        if is_streamed && let Ok(before) = &mut printed {
            let more = print_new(tokenizer, ids, before);
            printed = more.map(|()| std::mem::take(before));
        }
        printed.is_ok() && !interrupt::is_asked()
    };
    let arena = &mut loaded.arena;
    let mut replies = sample(model, adapter, arena, &[request], &sampling, &mut watch)?;
    drop(terminal);
    let ids = replies.remove(0).ids;
    let text = tokenizer.decode(&ids)?;
    match arguments.json {
        // All new tokens, including the stop token; the text has no special tokens.
        true => writeln!(out::raw(), "{}", json!({ "ids": ids, "text": text }))?,
        false => out::print(text.strip_prefix(&*printed?).unwrap_or(&text))?,
    }
    match interrupt::is_asked() {
        true => Err(Stopped(format!(" after {} tokens", ids.len())).into()),
        false => Ok(()),
    }
}

/// Prints what follows the text that is printed already.
fn print_new(tokenizer: &Tokenizer, ids: &[u32], printed: &mut String) -> Result<()> {
    let text = tokenizer.decode(ids)?;
    // A character that is not complete yet.
    let text = text.trim_end_matches('\u{fffd}');
    if let Some(new) = text.strip_prefix(&**printed) {
        write!(out::shown(), "{new}")?;
        io::stdout().flush()?;
        text.clone_into(printed);
    }
    Ok(())
}

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
    let is_message = |message: &Value| {
        let content = &message["content"];
        let has_content = content.is_string() || content.is_array();
        message["role"].is_string() && (has_content || message["tool_calls"].is_array())
    };
    match messages.iter().position(|message| !is_message(message)) {
        None => Ok((messages, variables)),
        Some(at) => wrong(&format!(
            "message {at} has no role or no text; wanted a message such as {{\"role\": \"user\", \"content\": \"...\"}}"
        )),
    }
}
