//! The prompts of one game for one model, in the model's chat template, as token ids.

use std::collections::HashMap;
use std::sync::Arc;

use lapwing_model::{ChatTemplate, Tokenizer};

use crate::PlayError;
use crate::prompt_writer::{AgentView, PromptWriter};

/// Maximum bytes of the cache, texts and ids together; it is cleared when it is full. On a large board states rarely
/// repeat, and a long run must not fill the memory.
const MAX_CACHE_BYTES: usize = 8 << 20;

/// One game's prompts for one model.
pub struct Prompts {
    /// Writes the messages and reads the replies.
    pub framing: PromptWriter,
    tokenizer: Tokenizer,
    template: Arc<ChatTemplate>,
    cache: HashMap<String, Arc<[u32]>>,
    /// Bytes in the cache.
    cached_bytes: usize,
}

impl Prompts {
    /// Creates the prompts that `framing` writes, in the model's template.
    pub fn new(
        framing: PromptWriter,
        tokenizer: Tokenizer,
        template: impl Into<Arc<ChatTemplate>>,
    ) -> Prompts {
        Prompts {
            framing,
            tokenizer,
            template: template.into(),
            cache: HashMap::new(),
            cached_bytes: 0,
        }
    }

    /// Returns the model's tokenizer.
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
    pub fn text(&self, view: &AgentView<'_>) -> Result<String, PlayError> {
        let messages = self.framing.messages(view)?;
        Ok(self.template.render(&messages, true)?)
    }

    /// Returns a prompt as token ids, from the cache if it is there.
    ///
    /// # Errors
    /// If a template or the model's tokenizer fails.
    pub fn ids(&mut self, view: &AgentView<'_>) -> Result<Arc<[u32]>, PlayError> {
        let name = self.name(view);
        if let Some(ids) = self.cache.get(&name) {
            return Ok(ids.clone());
        }
        let ids: Arc<[u32]> = self.tokenizer.encode(&self.text(view)?)?.into();
        let size = name.len() + size_of_val(&*ids);
        if self.cached_bytes + size > MAX_CACHE_BYTES {
            self.cache.clear();
            self.cached_bytes = 0;
        }
        self.cached_bytes += size;
        self.cache.insert(name, ids.clone());
        Ok(ids)
    }

    /// Returns the cache key: everything that a prompt depends on.
    fn name(&self, view: &AgentView<'_>) -> String {
        let mut name = view.observation.to_owned();
        for turn in self.framing.shown_history(view) {
            name += &format!("\0{}\0{}", turn.observation, turn.text);
        }
        if self.framing.wordings() > 1 {
            name += &format!("\0{}", self.framing.wording(view.seed));
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PolicyConfig;

    /// On a large board, a long run meets new states all the time.
    #[test]
    fn the_cache_is_bounded() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/base");
        let config = lapwing_model::ModelDirectory::open(dir.as_ref()).unwrap();
        let files = lapwing_model::TextFiles::trusted(dir.as_ref());
        let lake =
            (lapwing_env::find("frozen-lake").unwrap().configure)(&serde_json::json!({})).unwrap();
        let (tokenizer, template) = (
            files.tokenizer(config.config()).unwrap(),
            files.template().unwrap(),
        );
        let framing = PromptWriter::new(&*lake, &PolicyConfig::default()).unwrap();
        let mut prompts = Prompts::new(framing, tokenizer, template);
        let (long, mut most, mut total) = ("_ ".repeat(20_000), 0, 0);
        for number in 0..150 {
            let observation = format!("{number} {long}");
            let ids = prompts.ids(&AgentView::first(&observation)).unwrap();
            assert_eq!(prompts.ids(&AgentView::first(&observation)).unwrap(), ids);
            total += observation.len() + size_of_val(&*ids);
            let texts = prompts
                .cache
                .iter()
                .map(|(text, ids)| text.len() + size_of_val(&**ids));
            most = most.max(texts.sum::<usize>());
        }
        assert!(
            total > MAX_CACHE_BYTES && most <= MAX_CACHE_BYTES,
            "{most} bytes kept of {total}"
        );
    }
}
