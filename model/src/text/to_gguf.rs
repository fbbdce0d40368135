//! A tokenizer and a chat template in Hugging Face's formats as metadata of a GGUF file: the inverse of `gguf_text.rs`.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use super::chat_program::{TextConfig, special_tokens};
use super::gguf_text::{PRE_TOKENIZERS, ignores_merges, normalizer, split_steps};
use crate::files::gguf::{GgufFields, GgufValue};
use crate::{ModelConfig, ModelError};

/// The types of tokens in a GGUF file.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// Returns the metadata of the files in `dir`, of which `tokenizer` is `tokenizer.json`.
pub(crate) fn gguf_fields(
    dir: &Path,
    tokenizer: &str,
    model: &ModelConfig,
) -> Result<GgufFields, ModelError> {
    let path = dir.join("tokenizer.json");
    let tokenizer: Value = serde_json::from_str(tokenizer)
        .map_err(|e| ModelError::file(&path, format!("not a tokenizer: {e}")))?;
    let wrong = |field: &str, problem: String| {
        let problem = format!(
            "{problem}, which a GGUF file cannot express; write a Hugging Face directory instead (--format hf)"
        );
        ModelError::field(&path, field, problem)
    };
    let bpe = &tokenizer["model"];
    let pre = pre_tokenizer(&tokenizer).ok_or_else(|| {
        let all = PRE_TOKENIZERS.join(", ");
        let problem = format!("not a byte-level BPE that divides texts as one of {all}");
        wrong("pre_tokenizer", problem)
    })?;
    for field in [
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
    ] {
        if !matches!(&bpe[field], Value::Null | Value::Bool(false)) && bpe[field] != "" {
            return Err(wrong(
                &format!("model.{field}"),
                format!("found {}", bpe[field]),
            ));
        }
    }

    let vocabulary = bpe["vocab"].as_object().into_iter().flatten();
    let listed = vocabulary.map(|(token, id)| (token.as_str(), id, NORMAL));
    let added = tokenizer["added_tokens"].as_array().into_iter().flatten();
    for token in added.clone() {
        let strips = ["lstrip", "rstrip", "single_word"];
        if let Some(flag) = strips.into_iter().find(|flag| token[*flag] == true) {
            let problem = format!("{} has {flag}", token["content"]);
            return Err(wrong("added_tokens", problem));
        }
    }
    let added = added.map(|token| {
        let kind = if token["special"] == true {
            CONTROL
        } else {
            USER_DEFINED
        };
        (
            token["content"].as_str().unwrap_or_default(),
            &token["id"],
            kind,
        )
    });
    // The embedding may have more rows than there are tokens.
    let mut tokens: Vec<String> = (0..model.vocab).map(|id| format!("[PAD{id}]")).collect();
    let (mut kinds, mut ids) = (vec![UNUSED; model.vocab], HashMap::new());
    for (token, id, kind) in listed.chain(added) {
        let place = id.as_u64().map(|id| id as usize);
        let Some(place) = place.filter(|id| *id < model.vocab) else {
            let problem = format!(
                "the id of {token:?} is {id}, and the model has {} tokens",
                model.vocab
            );
            return Err(ModelError::file(&path, problem));
        };
        (tokens[place], kinds[place]) = (token.to_owned(), kind);
        ids.insert(token.to_owned(), place);
    }
    let merges = bpe["merges"].as_array().into_iter().flatten();
    let merges = merges.map(|merge| match merge {
        Value::String(pair) => pair.clone(),
        pair => [0, 1]
            .map(|i| pair[i].as_str().unwrap_or_default())
            .join(" "),
    });
    let merges: Vec<String> = merges.collect();

    let first = first_token(&tokenizer["post_processor"]).ok_or_else(|| {
        wrong(
            "post_processor",
            "it adds other tokens than one at the start".to_owned(),
        )
    })?;
    let config = TextConfig::read(dir)?;
    let special = special_tokens(&config.fields);
    let id_of = |name: &str| ids.get(special.get(name)?.as_str()?).copied();
    let bos = match first {
        Some(token) => ids.get(token).copied(),
        None => id_of("bos_token"),
    };
    let mut stops: Vec<usize> = id_of("eos_token").into_iter().collect();
    stops.extend(
        model
            .eos
            .iter()
            .map(|id| *id as usize)
            .filter(|id| id_of("eos_token") != Some(*id)),
    );
    if stops.len() > STOPS.len() {
        let problem = format!("{} ids end a reply", stops.len());
        return Err(wrong("eos_token_id", problem));
    }

    let mut fields = Vec::new();
    let mut set = |field: &str, value| fields.push((format!("tokenizer.ggml.{field}"), value));
    set("model", GgufValue::text("gpt2"));
    set("pre", GgufValue::text(pre));
    set(
        "tokens",
        GgufValue::texts(tokens.iter().map(String::as_str)),
    );
    set("token_type", GgufValue::numbers(&kinds));
    set(
        "merges",
        GgufValue::texts(merges.iter().map(String::as_str)),
    );
    set("add_bos_token", GgufValue::flag(first.is_some()));
    let others = [
        ("bos_token_id", bos),
        ("unknown_token_id", id_of("unk_token")),
        ("padding_token_id", id_of("pad_token")),
    ];
    let stops = STOPS.into_iter().zip(stops.into_iter().map(Some));
    for (field, id) in stops.chain(others) {
        if let Some(id) = id {
            set(field, GgufValue::count(id));
        }
    }
    if let Some((_, template)) = config.template {
        let template = GgufValue::text(&template);
        fields.push(("tokenizer.chat_template".to_owned(), template));
    }
    Ok(fields)
}

/// The ids that end a reply, as `read_config` reads them.
const STOPS: [&str; 3] = ["eos_token_id", "eot_token_id", "eom_token_id"];

/// Returns the name of the pre-tokenizer with the same steps, normalizer and use of merges.
fn pre_tokenizer(tokenizer: &Value) -> Option<&'static str> {
    let (bpe, wanted) = (&tokenizer["model"], plain(&tokenizer["pre_tokenizer"]));
    let ignores = bpe["ignore_merges"] == true;
    let is_same = |name: &&str| {
        let steps = split_steps(name).expect("a name of the list");
        let rest = (normalizer(name), ignores_merges(name));
        plain(&steps) == wanted && rest == (tokenizer["normalizer"].clone(), ignores)
    };
    PRE_TOKENIZERS
        .into_iter()
        .find(is_same)
        .filter(|_| bpe["type"] == "BPE")
}

/// Returns the steps of a pre-tokenizer without settings that change no token.
fn plain(steps: &Value) -> Vec<Value> {
    let steps = match &steps["pretokenizers"] {
        Value::Null => steps,
        steps => steps,
    };
    let steps = steps
        .as_array()
        .cloned()
        .unwrap_or_else(|| vec![steps.clone()]);
    let plain = |mut step: Value| {
        if let Some(fields) = step
            .as_object_mut()
            .filter(|fields| fields["type"] == "ByteLevel")
        {
            fields.remove("trim_offsets");
            fields.entry("use_regex").or_insert(json!(true));
        }
        step
    };
    steps.into_iter().map(plain).collect()
}

/// Returns the token that a post-processor adds at the start, if any; `None` if it does something else.
fn first_token(processor: &Value) -> Option<Option<&str>> {
    let text = |piece: &Value| piece.get("Sequence").is_some();
    match processor["type"].as_str() {
        None | Some("ByteLevel") => Some(None),
        Some("Sequence") => {
            let all = processor["processors"].as_array()?.iter();
            let tokens: Vec<Option<&str>> = all.map(first_token).collect::<Option<_>>()?;
            let mut tokens = tokens.into_iter().flatten();
            let first = tokens.next();
            tokens.next().is_none().then_some(first)
        }
        Some("TemplateProcessing") => match &processor["single"].as_array()?[..] {
            [piece] if text(piece) => Some(None),
            [first, piece] if text(piece) => first["SpecialToken"]["id"].as_str().map(Some),
            _ => None,
        },
        Some(_) => None,
    }
}
