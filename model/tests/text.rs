//! Chat templates and tokenizers against transformers.

use lapwing_model::{ChatTemplate, Config, Message, Tokenizer};
use serde_json::Value;

use crate::support::*;

#[test]
fn conversations_render_and_encode_as_their_library_does() {
    for name in CHECKPOINTS {
        let dir = golden(name);
        let template = ChatTemplate::load(&dir).unwrap();
        let tokenizer = Tokenizer::load(&dir, &Config::read(&dir).unwrap()).unwrap();
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
    let tokenizer = Tokenizer::load(&dir, &Config::read(&dir).unwrap()).unwrap();
    let ids = tokenizer
        .encode("<|im_start|>P _ O\n_ é ✓<|im_end|>")
        .unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), "P _ O\n_ é ✓");
    assert_eq!(ids[0], tokenizer.id("<|im_start|>").unwrap());
}

#[test]
fn the_end_of_text_is_found_wherever_it_is_declared() {
    let stop_ids = |name: &str| {
        let dir = golden(name);
        Tokenizer::load(&dir, &Config::read(&dir).unwrap())
            .unwrap()
            .stop_ids()
            .to_vec()
    };
    // tokenizer_config.json alone; beside config.json and generation_config.json.
    assert_eq!(stop_ids("qwen2"), [366]);
    assert_eq!(stop_ids("llama"), [2, 366]);
}
