//! The tokenizer and the chat template in the metadata of a GGUF file, in Hugging Face's formats.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::ModelError;
use crate::files::config_json::MOST_TOKENS;
use crate::files::gguf::Gguf;

const CURE: &str = "put the model's tokenizer.json and tokenizer_config.json beside the file";

/// The regular expression with which Qwen2 and Llama 3 divide texts, but for the length of numbers.
const WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBER| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The supported pre-tokenizers, by their names in llama.cpp's converter.
pub(super) const PRE_TOKENIZERS: [&str; 5] =
    ["gpt-2", "smollm", "qwen2", "deepseek-r1-qwen", "llama-bpe"];

/// Returns the steps of a pre-tokenizer, if it is supported.
pub(super) fn split_steps(name: &str) -> Option<Value> {
    let words = |number: &str| {
        let regex = WORDS.replace("NUMBER", number);
        let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        json!([split, bytes_step(false)])
    };
    let digits = || json!({"type": "Digits", "individual_digits": true});
    Some(match name {
        "gpt-2" => json!([bytes_step(true)]),
        "smollm" => json!([digits(), bytes_step(true)]),
        "qwen2" | "deepseek-r1-qwen" => words(r"\p{N}"),
        "llama-bpe" | "llama3" | "llama-v3" => words(r"\p{N}{1,3}"),
        _ => return None,
    })
}

fn bytes_step(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

/// Returns the normalizer of the models with a pre-tokenizer.
pub(super) fn normalizer(pre: &str) -> Value {
    match pre {
        "qwen2" => json!({"type": "NFC"}),
        _ => Value::Null,
    }
}

/// Returns whether a word that is a token as a whole is not divided by merges.
pub(super) fn ignores_merges(pre: &str) -> bool {
    pre.starts_with("llama")
}

/// Returns the text of a `tokenizer.json`.
pub(crate) fn tokenizer_json(path: &Path) -> Result<String, ModelError> {
    let gguf = Gguf::open_header(path)?;
    let fields = gguf.fields();
    let key = |field: &str| format!("tokenizer.ggml.{field}");
    let kind = fields.text(&key("model"))?.unwrap_or_default();
    if kind != "gpt2" {
        let problem = format!("{kind:?} is not supported, only gpt2 (byte-level BPE); {CURE}");
        return Err(fields.wrong(&key("model"), problem));
    }
    let pre = fields.text(&key("pre"))?.unwrap_or_default();
    let steps = split_steps(pre).ok_or_else(|| {
        let all = PRE_TOKENIZERS.join(", ");
        let problem = format!("{pre:?} is not supported; supported are {all}; {CURE}");
        fields.wrong(&key("pre"), problem)
    })?;
    let is_llama = ignores_merges(pre);
    let tokens = gguf.texts(&key("tokens"), MOST_TOKENS)?;
    let kinds = gguf
        .numbers(&key("token_type"), MOST_TOKENS)?
        .unwrap_or_default();
    // Control tokens, and tokens that a user defined.
    let added = kinds
        .iter()
        .enumerate()
        .filter(|(_, kind)| [3, 4].contains(*kind));
    let added = added.filter_map(|(id, kind)| {
        let content = tokens.get(id)?;
        Some(json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": *kind == 3,
        }))
    });
    let merges = gguf.texts(&key("merges"), 4 * MOST_TOKENS)?;
    let merges = merges.iter().map(|merge| match merge.split_once(' ') {
        Some(pair) => Ok(json!([pair.0, pair.1])),
        None => Err(fields.wrong(&key("merges"), format!("{merge:?} is not a pair"))),
    });
    let merges: Vec<Value> = merges.collect::<Result<_, _>>()?;
    let vocabulary: Map<String, Value> = (0..)
        .zip(&tokens)
        .map(|(id, token): (u32, _)| ((*token).to_owned(), json!(id)))
        .collect();
    let adds_first = match fields.get(&key("add_bos_token")) {
        Some(flag) => flag.as_bool() == Some(true),
        None => is_llama,
    };
    let first = special_token(&gguf, "bos_token_id", &tokens)?.filter(|_| adds_first);
    let template = first.map(|(id, token)| {
        let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
        let first = json!({"SpecialToken": {"id": token, "type_id": 0}});
        json!({
            "type": "TemplateProcessing", "single": [first, text("A")], "pair": [first, text("A"), first, text("B")],
            "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}},
        })
    });
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": normalizer(pre),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": template,
        "decoder": bytes_step(true),
        "model": {"type": "BPE", "ignore_merges": is_llama, "vocab": vocabulary, "merges": merges},
    });
    Ok(tokenizer.to_string())
}

/// Returns the fields of a `tokenizer_config.json`: the template and the special tokens.
pub(crate) fn tokenizer_config(path: &Path) -> Result<Map<String, Value>, ModelError> {
    let gguf = Gguf::open_header(path)?;
    let tokens = gguf.texts("tokenizer.ggml.tokens", MOST_TOKENS)?;
    let mut config = Map::new();
    if let Some(template) = gguf.fields().text("tokenizer.chat_template")? {
        config.insert("chat_template".to_owned(), json!(template));
    }
    for (name, field) in [
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("pad_token", "padding_token_id"),
    ] {
        if let Some((_, token)) = special_token(&gguf, field, &tokens)? {
            config.insert(name.to_owned(), json!(token));
        }
    }
    Ok(config)
}

fn special_token<'a>(
    gguf: &Gguf,
    field: &str,
    tokens: &[&'a str],
) -> Result<Option<(u32, &'a str)>, ModelError> {
    let ids = gguf
        .fields()
        .token_ids(&format!("tokenizer.ggml.{field}"))?;
    let token = |id: &u32| Some((*id, *tokens.get(*id as usize)?));
    Ok(ids.first().and_then(token))
}
