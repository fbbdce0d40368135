//! The tokenizer and the chat template of a base model made from nothing: byte-level BPE, learned from the texts of the
//! games, so that the words of the game it plays are single tokens and any other text can still be written.

use std::path::Path;

use lapwing_env::Scenario;
use serde_json::json;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer, TokenizerBuilder};

use lapwing_play::SettingError;
use lapwing_play::config::Policy;
use lapwing_play::{Form, Framing, Seen};
use lapwing_train::Error;
use lapwing_train::record::write_error;

/// Ends a reply.
const END: &str = "<|end|>";
/// One for each role of a conversation, and the end.
const SPECIAL: [&str; 4] = [END, "<|system|>", "<|user|>", "<|assistant|>"];
const TEMPLATE: &str = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}\
     {% if message.role == 'assistant' %}<|end|>{% endif %}{% endfor %}\
     {% if add_generation_prompt %}<|assistant|>{% endif %}";
/// The 256 bytes, the special tokens, and enough merges for every word of the games.
const VOCABULARY: usize = 640;

/// Games whose words come into every vocabulary. No more of them: the embedded base was made with these, and must come out
/// the same when it is made again.
const ALWAYS: [&str; 2] = ["frozen-lake", "snake"];

/// Writes `tokenizer.json`, `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja`.
///
/// # Errors
/// If the directory cannot be written, or an action of one of these games would take more than one token.
pub fn write(dir: &Path, games: &[Box<dyn Scenario>]) -> Result<(), Error> {
    std::fs::create_dir_all(dir).map_err(write_error(dir))?;
    let texts = texts(games)?;
    let tokenizer = learn(texts).map_err(|e| Error::Vocabulary(e.to_string()))?;
    for action in games.iter().flat_map(|game| game.actions()) {
        let encoded = tokenizer.encode(action.as_str(), false);
        let count = encoded.map_err(|e| Error::Vocabulary(e.to_string()))?.len();
        if count != 1 {
            return Err(Error::Vocabulary(format!(
                "the action {action} takes {count} tokens, wanted 1"
            )));
        }
    }
    let text = tokenizer
        .to_string(true)
        .map_err(|e| Error::Vocabulary(e.to_string()))?;
    let end = tokenizer.token_to_id(END);
    let files = [
        ("tokenizer.json", text),
        (
            "tokenizer_config.json",
            pretty(&json!({ "eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast" })),
        ),
        (
            "generation_config.json",
            pretty(&json!({ "eos_token_id": end })),
        ),
        ("chat_template.jinja", TEMPLATE.to_owned()),
    ];
    for (name, text) in files {
        let file = dir.join(name);
        std::fs::write(&file, text).map_err(write_error(&file))?;
    }
    Ok(())
}

/// The number of tokens of the tokenizer in `dir`, and the id of the one that ends a reply.
///
/// # Errors
/// If the file cannot be read.
pub fn size_and_end(dir: &Path) -> Result<(usize, u32), Error> {
    let tokenizer = Tokenizer::from_file(dir.join("tokenizer.json"))
        .map_err(|e| Error::Vocabulary(e.to_string()))?;
    let end = tokenizer
        .token_to_id(END)
        .ok_or_else(|| Error::Vocabulary(format!("{END} is missing")))?;
    Ok((tokenizer.get_vocab_size(true), end))
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// What the vocabulary is learned from. The words of the games at hand are repeated, so that they come first.
fn texts(games: &[Box<dyn Scenario>]) -> Result<Vec<String>, Error> {
    let policy = Policy {
        reply: Form::Word,
        ..Policy::default()
    };
    let mut texts = Vec::new();
    for game in games {
        let framing = Framing::new(&**game, &policy)?;
        let told = framing.messages(&Seen::first(""))?;
        texts.extend(vec![told[0].content.clone(); 4]);
        texts.extend(
            game.actions()
                .iter()
                .flat_map(|action| vec![action.clone(); 64]),
        );
        for seed in 0..64 {
            texts.push(game.start(seed, seed)?.observe(0)?);
        }
    }
    for name in ALWAYS {
        let kind = lapwing_env::find(name).map_err(SettingError::from)?;
        let other = (kind.configure)(&json!({})).map_err(SettingError::from)?;
        texts.push(other.rules());
        texts.push(other.start(0, 0)?.observe(0)?);
    }
    Ok(texts)
}

fn learn(texts: Vec<String>) -> tokenizers::Result<Tokenizer> {
    let mut tokenizer = TokenizerBuilder::new()
        .with_model(BPE::default())
        .with_normalizer(None::<NFC>)
        .with_pre_tokenizer(Some(ByteLevel::new(false, true, true)))
        .with_post_processor(Some(ByteLevel::new(false, false, true)))
        .with_decoder(Some(ByteLevel::new(false, true, true)))
        .build()?;
    let mut trainer = BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(VOCABULARY)
        .min_frequency(1)
        // sorted: the alphabet is a set in no order
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(SPECIAL.map(|token| AddedToken::from(token, true)).to_vec())
        .build();
    tokenizer.train(&mut trainer, texts.into_iter())?;
    Ok(tokenizer.into())
}
