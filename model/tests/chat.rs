//! Chat templates and tokenizers against transformers.

use lapwing_model::{ChatTemplate, Message, ModelConfig, TextFiles, Tokenizer};
use serde_json::{Value, json};

use crate::support::*;

#[test]
fn conversations_render_and_encode_as_their_library_does() {
    for name in CHECKPOINTS {
        let dir = golden(name);
        let template = TextFiles::trusted(&dir).template().unwrap();
        let tokenizer = TextFiles::trusted(&dir)
            .tokenizer(&ModelConfig::read(&dir).unwrap())
            .unwrap();
        let cases = std::fs::read_to_string(dir.join("chat.json")).unwrap();
        let cases: Vec<Value> = serde_json::from_str(&cases).unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            let messages: Vec<Message> = serde_json::from_value(case["messages"].clone()).unwrap();
            let text = template.render(&messages, true).unwrap();
            assert_eq!(text, case["text"], "{name}");
            let wanted: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
            assert_eq!(tokenizer.encode(&text).unwrap(), wanted, "{name}");
        }
    }
}

#[test]
fn text_comes_back_from_its_ids() {
    let dir = golden("qwen2");
    let tokenizer = TextFiles::trusted(&dir)
        .tokenizer(&ModelConfig::read(&dir).unwrap())
        .unwrap();
    let ids = tokenizer
        .encode("<|im_start|>P _ O\n_ é ✓<|im_end|>")
        .unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), "P _ O\n_ é ✓");
    let first = tokenizer.token(ids[0]).unwrap();
    assert_eq!(first.as_deref(), Some("<|im_start|>"));
    let texts = |tokenizer: &Tokenizer, ids: &[u32]| -> Vec<String> {
        ids.iter()
            .map(|id| tokenizer.text_of(*id).unwrap())
            .collect()
    };
    assert_eq!(texts(&tokenizer, &ids[..3]), ["<|im_start|>", "P", " _"]);

    // SentencePiece drops the space of a text's first token, which the token has inside of a text.
    let spaces =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let file = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
        "pre_tokenizer": spaces, "decoder": spaces,
        "model": {"type": "WordLevel", "vocab": {"?": 0, "▁go": 1, "▁": 2, "ing": 3}, "unk_token": "?"},
    });
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("tokenizer.json"), file.to_string()).unwrap();
    let config = ModelConfig::read(&dir).unwrap();
    let tokenizer = TextFiles::trusted(home.path()).tokenizer(&config).unwrap();
    assert_eq!(texts(&tokenizer, &[1, 2, 3]), [" go", " ", "ing"]);
}

#[test]
fn the_end_of_text_is_found_wherever_it_is_declared() {
    let stop_ids = |name: &str| {
        let dir = golden(name);
        TextFiles::trusted(&dir)
            .tokenizer(&ModelConfig::read(&dir).unwrap())
            .unwrap()
            .stop_ids()
            .to_vec()
    };
    // tokenizer_config.json alone; beside config.json and generation_config.json.
    assert_eq!(stop_ids("qwen2"), [366]);
    assert_eq!(stop_ids("llama"), [2, 366]);
}

/// Templates that use what the published ones of Qwen2.5, Qwen3 and Llama 3 use, rendered by transformers: with tools,
/// with thinking on, off and not mentioned, and with conversations that they refuse.
#[test]
fn published_constructs_render_as_in_transformers() {
    let path = golden("chat_templates.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let home = tempfile::tempdir().unwrap();
    let (mut rendered, mut refused) = (0, 0);
    for case in file["cases"].as_array().unwrap() {
        let name = case["template"].as_str().unwrap();
        let source = file["templates"][name].as_str().unwrap();
        std::fs::write(home.path().join("chat_template.jinja"), source).unwrap();
        // The special tokens come from the checkpoint.
        let variables = case["variables"].as_object().unwrap().clone().into_iter();
        let (tokens, variables): (Vec<_>, Vec<_>) =
            variables.partition(|(name, _)| ChatTemplate::is_reserved(name));
        let tokens = Value::Object(tokens.into_iter().collect());
        let config = home.path().join("tokenizer_config.json");
        std::fs::write(config, tokens.to_string()).unwrap();
        let mut template = TextFiles::trusted(home.path()).template().unwrap();
        template.set(variables.into_iter().collect()).unwrap();
        let messages = case["messages"].as_array().unwrap();
        let prompted = case["add_generation_prompt"].as_bool().unwrap();
        let got = template.render(messages, prompted);
        match case["error"].as_str() {
            None => {
                assert_eq!(
                    got.unwrap(),
                    case["text"].as_str().unwrap(),
                    "{name}: {messages:?}"
                );
                rendered += 1;
            }
            Some(said) => {
                let error = got.unwrap_err().to_string();
                assert!(error.ends_with(said), "{error} for {said}");
                refused += 1;
            }
        }
    }
    assert!(
        rendered > 20 && refused > 0,
        "{rendered} rendered, {refused} refused"
    );
}
