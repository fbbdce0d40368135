//! The tokenizer and the chat template of a base model: byte-level BPE, trained on the texts of the games. The actions of the
//! games are single tokens.

use std::path::Path;

use lapwing_env::Scenario;
use lapwing_env::rng::Stream;
use serde_json::json;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer, TokenizerBuilder};

use lapwing_play::config::PolicyConfig;
use lapwing_play::{AgentView, PromptWriter, ReplyForm};
use lapwing_train::Error;
use lapwing_train::record::write_error;

use super::questions::BoardState;

const END: &str = "<|end|>";
const SPECIAL: [&str; 4] = [END, "<|system|>", "<|user|>", "<|assistant|>"];
const TEMPLATE: &str = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}\
     {% if message.role == 'assistant' %}<|end|>{% endif %}{% endfor %}\
     {% if add_generation_prompt %}<|assistant|>{% endif %}";
/// The 256 bytes, the special tokens, and merges for the words of the games.
const VOCABULARY: usize = 640;
/// Scenes of each game whose texts the tokenizer is trained on.
const SCENES: u64 = 16;

/// Writes `tokenizer.json`, `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja`. Returns the number
/// of tokens and the id of the end token.
/// Fails if the directory cannot be written, or a word that is an action of these games takes more than one token.
pub(crate) fn write(dir: &Path, games: &[Box<dyn Scenario>]) -> Result<(usize, u32), Error> {
    std::fs::create_dir_all(dir).map_err(write_error(dir))?;
    let texts = texts(games)?;
    let tokenizer = train(texts).map_err(failed)?;
    let actions = games.iter().flat_map(|game| game.actions());
    for action in actions.filter(|action| !action.contains(' ')) {
        let encoded = tokenizer.encode(action.as_str(), false);
        let count = encoded.map_err(failed)?.len();
        if count != 1 {
            return Err(Error::Vocabulary(format!(
                "the action {action} takes {count} tokens, wanted 1"
            )));
        }
    }
    let end = tokenizer.token_to_id(END).expect("a special token");
    let tokenizer_config =
        json!({ "eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast" });
    let generation_config = json!({ "eos_token_id": end });
    let files = [
        ("tokenizer.json", tokenizer.to_string(true).map_err(failed)?),
        ("tokenizer_config.json", format!("{tokenizer_config:#}\n")),
        ("generation_config.json", format!("{generation_config:#}\n")),
        ("chat_template.jinja", TEMPLATE.to_owned()),
    ];
    for (name, text) in files {
        let file = dir.join(name);
        std::fs::write(&file, text).map_err(write_error(&file))?;
    }
    Ok((tokenizer.get_vocab_size(true), end))
}

fn failed(error: tokenizers::Error) -> Error {
    Error::Vocabulary(error.to_string())
}

/// Returns the prompts of a game with single-word replies.
pub(crate) fn word_prompts(game: &dyn Scenario) -> Result<PromptWriter, Error> {
    let policy = PolicyConfig {
        reply: ReplyForm::Word,
        ..PolicyConfig::default()
    };
    Ok(PromptWriter::new(game, &policy)?)
}

/// Returns the texts that the tokenizer is trained on. The actions are repeated, so that their merges come first.
fn texts(games: &[Box<dyn Scenario>]) -> Result<Vec<String>, Error> {
    let mut texts = Vec::new();
    for game in games {
        let messages = word_prompts(&**game)?.messages(&AgentView::first(""))?;
        texts.extend(vec![messages[0].content.clone(); 4]);
        let actions = game.actions().iter();
        texts.extend(actions.flat_map(|action| vec![action.clone(); 64]));
        let mut random = Stream::new(0, "vocabulary");
        for seed in 0..SCENES {
            let start = game.start(seed, seed)?;
            let state = BoardState::new(&*start, &**game)?;
            for _ in 0..SCENES {
                let question = state.question(&mut random);
                texts.push(state.ask(&question));
                texts.extend(state.answers(&question, seed)?);
            }
            texts.push(state.observation);
        }
    }
    Ok(texts)
}

fn train(texts: Vec<String>) -> tokenizers::Result<Tokenizer> {
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
        // The trainer sorts the alphabet, which is an unordered set.
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(SPECIAL.map(|token| AddedToken::from(token, true)).to_vec())
        .build();
    tokenizer.train(&mut trainer, texts.into_iter())?;
    Ok(tokenizer.into())
}
