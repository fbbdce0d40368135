//! The prompts of one game for one model: text in the model's chat template, as token ids.

use std::collections::HashMap;
use std::sync::Arc;

use lapwing_model::{AllowedReplies, ChatTemplate, Tokenizer};

use crate::config::PolicyConfig;
use crate::prompt_writer::{AgentView, PromptWriter};
use crate::{PlayError, SettingError};

/// The maximum number of bytes of remembered prompts, texts and ids together; then all are dropped. A game on a large
/// board rarely repeats a state, so a long run would fill the memory.
const KEPT: usize = 8 << 20;

/// The prompts of one game for one model.
#[derive(Clone)]
pub struct Prompts {
    /// writes prompts and parses replies
    pub framing: PromptWriter,
    /// the replies to which sampling is restricted (`policy.constrain`), after [`Prompts::check_replies`]
    pub allowed: Option<Arc<AllowedReplies>>,
    tokenizer: Tokenizer,
    template: Arc<ChatTemplate>,
    known: HashMap<String, Arc<[u32]>>,
    /// bytes in `known`
    held: usize,
}

impl Prompts {
    /// Makes the prompts of this prompt writer, in the model's own template.
    pub fn new(
        framing: PromptWriter,
        tokenizer: Tokenizer,
        template: impl Into<Arc<ChatTemplate>>,
    ) -> Prompts {
        Prompts {
            framing,
            allowed: None,
            tokenizer,
            template: template.into(),
            known: HashMap::new(),
            held: 0,
        }
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the model's chat template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// Returns a prompt as text.
    ///
    /// # Errors
    /// If a template fails.
    pub fn text(&self, seen: &AgentView<'_>) -> Result<String, PlayError> {
        let messages = self.framing.messages(seen)?;
        Ok(self.template.render(&messages, true)?)
    }

    /// Returns a prompt as token ids. Equal prompts are rendered once while they are remembered.
    ///
    /// # Errors
    /// If a template or the model's tokenizer fails.
    pub fn ids(&mut self, seen: &AgentView<'_>) -> Result<Arc<[u32]>, PlayError> {
        let name = self.name(seen);
        if let Some(ids) = self.known.get(&name) {
            return Ok(ids.clone());
        }
        let ids: Arc<[u32]> = self.tokenizer.encode(&self.text(seen)?)?.into();
        let size = name.len() + size_of_val(&*ids);
        if self.held + size > KEPT {
            self.known.clear();
            self.held = 0;
        }
        self.held += size;
        self.known.insert(name, ids.clone());
        Ok(ids)
    }

    /// Returns the number of tokens of the shortest reply for an action, with the reply, for the action that takes most;
    /// `None` if any text is an action. With `policy.constrain`, only these replies are allowed from now on.
    ///
    /// # Errors
    /// If this is more than the maximum, the tokenizer fails or has no tokens for a reply, or the replies cannot be
    /// restricted.
    pub fn check_replies(
        &mut self,
        policy: &PolicyConfig,
    ) -> Result<Option<(usize, String)>, PlayError> {
        let most = policy.max_new_tokens;
        let (mut longest, mut replies) = (None, Vec::new());
        for (action, reply) in self.framing.shortest_replies().enumerate() {
            let ids = self.tokenizer.encode(&reply)?;
            let written = self.tokenizer.decode(&ids)?;
            if self.framing.read(written.clone(), false).action != Some(action) {
                let wanted = format!(
                    "a form without characters that the model's tokenizer lacks: it writes {written:?}"
                );
                let found = format!("{reply:?}");
                return Err(SettingError::range("policy.reply", found, wanted).into());
            }
            longest = longest.max(Some((ids.len(), reply)));
            replies.push(ids);
        }
        if let Some((tokens, reply)) = longest.as_ref().filter(|(tokens, _)| *tokens > most) {
            let wanted = format!(
                "at least {tokens}, because the reply {reply:?} takes as many tokens of this model: --set policy.max_new_tokens={tokens}"
            );
            let (key, found) = ("policy.max_new_tokens", most.to_string());
            return Err(SettingError::range(key, found, wanted).into());
        }
        if policy.constrain {
            let stop = self.tokenizer.stop_ids();
            let allowed = AllowedReplies::new(&replies, stop);
            let goes_on = |ids: &Vec<u32>| !allowed.after(ids).is_empty();
            let refused = |why: &str| {
                let wanted = format!("false, because {why}: --set policy.constrain=false");
                Err(SettingError::range("policy.constrain", "true", wanted).into())
            };
            if replies.is_empty() {
                return refused("the game takes any text");
            }
            if stop.is_empty() && replies.iter().any(goes_on) {
                return refused(
                    "an action begins with another, and the model has no token that ends a reply (eos_token_id)",
                );
            }
            self.allowed = Some(Arc::new(allowed));
        }
        Ok(longest)
    }

    /// The inputs of a prompt.
    fn name(&self, seen: &AgentView<'_>) -> String {
        let mut name = seen.observation.to_owned();
        for turn in self.framing.shown_history(seen) {
            name += &format!("\0{}\0{}", turn.observation, turn.text);
        }
        if self.framing.wordings() > 1 {
            name += &format!("\0{}", self.framing.wording(seen.seed));
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ReplyForm;
    use crate::config::PolicyConfig;

    const BASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/base");

    /// The prompts of the built-in model, with the tokenizer of this directory.
    fn prompts(reply: ReplyForm, tokenizer: &Path) -> Prompts {
        let dir = Path::new(BASE);
        let config = lapwing_model::ModelDirectory::open(dir).unwrap();
        let lake = lapwing_env::find("frozen-lake").unwrap();
        let lake = (lake.configure)(&serde_json::json!({})).unwrap();
        let policy = PolicyConfig {
            reply,
            ..PolicyConfig::default()
        };
        let framing = PromptWriter::new(&*lake, &policy).unwrap();
        let [text, other] = [dir, tokenizer].map(lapwing_model::TextFiles::trusted);
        let tokenizer = other.tokenizer(config.config()).unwrap();
        let template = text.template().unwrap();
        Prompts::new(framing, tokenizer, template)
    }

    #[test]
    fn replies_are_as_long_as_the_model_has_to_write_them() {
        let check_with = |reply, tokenizer: &Path, max_new_tokens| {
            let policy = PolicyConfig {
                max_new_tokens,
                ..PolicyConfig::default()
            };
            prompts(reply, tokenizer).check_replies(&policy)
        };
        let check = |reply, most| check_with(reply, BASE.as_ref(), most);
        assert_eq!(
            check(ReplyForm::Word, 1).unwrap(),
            Some((1, "up".to_owned()))
        );
        let (tokens, reply) = check(ReplyForm::Tags, 99).unwrap().unwrap();
        assert_eq!(reply, "<action>up</action>");
        check(ReplyForm::Tags, tokens).unwrap();
        let error = check(ReplyForm::Tags, tokens - 1).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("--set policy.max_new_tokens={tokens}")),
            "{error}"
        );

        let dir = tempfile::tempdir().unwrap();
        let json = std::fs::read_to_string(format!("{BASE}/tokenizer.json")).unwrap();
        let json = json.replacen("\"<\":", "\"nothing\":", 1);
        std::fs::write(dir.path().join("tokenizer.json"), json).unwrap();
        let error = check_with(ReplyForm::Tags, dir.path(), 99);
        let error = error.unwrap_err().to_string();
        assert!(
            error.ends_with("it writes \"action>left/action>\""),
            "{error}"
        );
    }

    /// A long run on a large board has new states all the time.
    #[test]
    fn prompts_are_not_kept_for_ever() {
        let mut prompts = prompts(ReplyForm::Tags, BASE.as_ref());
        let (long, mut most, mut seen) = ("_ ".repeat(20_000), 0, 0);
        for number in 0..150 {
            let observation = format!("{number} {long}");
            let ids = prompts.ids(&AgentView::first(&observation)).unwrap();
            assert_eq!(prompts.ids(&AgentView::first(&observation)).unwrap(), ids);
            seen += observation.len() + size_of_val(&*ids);
            let texts = prompts
                .known
                .iter()
                .map(|(text, ids)| text.len() + size_of_val(&**ids));
            most = most.max(texts.sum::<usize>());
        }
        assert!(seen > KEPT && most <= KEPT, "{most} bytes kept of {seen}");
    }
}
