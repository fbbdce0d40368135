//! How a game is put to a model, and how its reply is read: the template T and the parser of the paper.

use std::collections::HashMap;
use std::sync::Arc;

use lapwing_env::Scenario;
use lapwing_model::{ChatTemplate, Message, ModelError, Tokenizer};

use crate::run::config::Reply;

/// Prompts that were met are kept up to so many bytes, texts and ids together; then all are forgotten. A game on a large
/// board hardly meets a state again, and a long run must not fill the memory with them.
const KEPT: usize = 8 << 20;

/// The system message of a game: its rules, and what a reply must look like.
pub fn rules(scenario: &dyn Scenario, reply: Reply) -> Message {
    let words = scenario.actions().join(", ");
    let form = match reply {
        Reply::Word => format!("Reply with one word: {words}."),
        Reply::Tags => format!(
            "Think briefly, then give one action in tags, for example <action>{}</action>, and stop. \
             The actions are: {words}.",
            scenario.actions()[0]
        ),
    };
    Message::system(format!("{}\n{form}", scenario.rules()))
}

/// One game's prompts for one model.
///
/// A prompt holds the rules (system message) and the current observation (user message), nothing of the past. All
/// prompts of a game begin with the same tokens, so the rules are computed once.
pub struct Prompts {
    rules: Message,
    actions: Vec<String>,
    reply: Reply,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    known: HashMap<String, Arc<[u32]>>,
    /// bytes in `known`
    held: usize,
}

impl Prompts {
    /// For this game and this form of reply, written by the model's own template.
    pub fn new(
        scenario: &dyn Scenario,
        reply: Reply,
        tokenizer: Tokenizer,
        template: ChatTemplate,
    ) -> Prompts {
        Prompts {
            rules: rules(scenario, reply),
            actions: scenario.actions().to_vec(),
            reply,
            tokenizer,
            template,
            known: HashMap::new(),
            held: 0,
        }
    }

    /// Text to token ids and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The prompt for an observation as text.
    ///
    /// # Errors
    /// If the model's chat template fails.
    pub fn text(&self, observation: &str) -> Result<String, ModelError> {
        self.template
            .render(&[self.rules.clone(), Message::user(observation)], true)
    }

    /// The prompt for an observation as token ids. Equal observations are rendered once while they are remembered.
    ///
    /// # Errors
    /// If the model's chat template or tokenizer fails.
    pub fn ids(&mut self, observation: &str) -> Result<Arc<[u32]>, ModelError> {
        if let Some(ids) = self.known.get(observation) {
            return Ok(ids.clone());
        }
        let ids: Arc<[u32]> = self.tokenizer.encode(&self.text(observation)?)?.into();
        let size = observation.len() + size_of_val(&*ids);
        if self.held + size > KEPT {
            self.known.clear();
            self.held = 0;
        }
        self.held += size;
        self.known.insert(observation.to_owned(), ids.clone());
        Ok(ids)
    }

    /// The action that a reply names; `None` if it cannot be read, which is the invalid action.
    pub fn parse(&self, reply: &str) -> Option<usize> {
        parse(reply, self.reply, &self.actions)
    }
}

/// A word is the whole reply; tags are the text between the first `<action>` and the `</action>` after it. Space
/// around the word and its case do not count.
fn parse(reply: &str, form: Reply, actions: &[String]) -> Option<usize> {
    let word = match form {
        Reply::Word => reply,
        Reply::Tags => reply.split_once("<action>")?.1.split_once("</action>")?.0,
    };
    let word = word.trim().to_lowercase();
    actions.iter().position(|action| *action == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reply: &str, form: Reply) -> Option<usize> {
        parse(reply, form, &["left".to_owned(), "down".to_owned()])
    }

    /// A long run on a large board meets new states all the time.
    #[test]
    fn prompts_are_not_kept_for_ever() {
        let files = crate::base::files::Files::open(None).unwrap();
        let lake =
            (lapwing_env::find("frozen-lake").unwrap().configure)(&serde_json::json!({})).unwrap();
        let (tokenizer, template) = (
            files.tokenizer().unwrap().clone(),
            files.template().unwrap(),
        );
        let mut prompts = Prompts::new(&*lake, Reply::Word, tokenizer, template);
        let (long, mut most, mut seen) = ("_ ".repeat(20_000), 0, 0);
        for number in 0..150 {
            let observation = format!("{number} {long}");
            let ids = prompts.ids(&observation).unwrap();
            assert_eq!(prompts.ids(&observation).unwrap(), ids);
            seen += observation.len() + size_of_val(&*ids);
            let texts = prompts
                .known
                .iter()
                .map(|(text, ids)| text.len() + size_of_val(&**ids));
            most = most.max(texts.sum::<usize>());
        }
        assert!(seen > KEPT && most <= KEPT, "{most} bytes kept of {seen}");
    }

    #[test]
    fn every_action_of_every_game_is_read_back() {
        for kind in lapwing_env::GAMES {
            let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
            let actions = scenario.actions();
            for (i, action) in actions.iter().enumerate() {
                assert_eq!(
                    parse(action, Reply::Word, actions),
                    Some(i),
                    "{}",
                    kind.name
                );
                let reply = format!("I think so. <action>{action}</action>");
                assert_eq!(
                    parse(&reply, Reply::Tags, actions),
                    Some(i),
                    "{}",
                    kind.name
                );
            }
        }
    }

    #[test]
    fn a_word_is_the_whole_reply() {
        assert_eq!(read("left", Reply::Word), Some(0));
        assert_eq!(read(" Down\n", Reply::Word), Some(1));
        for unreadable in ["", "left down", "leftleft", "up", "<action>left</action>"] {
            assert_eq!(read(unreadable, Reply::Word), None, "{unreadable}");
        }
    }

    #[test]
    fn tags_are_read_where_they_stand_first() {
        assert_eq!(read("<action>left</action>", Reply::Tags), Some(0));
        assert_eq!(
            read(
                "I go down. <action> DOWN </action> and <action>left</action>",
                Reply::Tags
            ),
            Some(1)
        );
        for unreadable in [
            "left",
            "<action>left",
            "left</action>",
            "<action>up</action>",
            "</action>left<action>",
        ] {
            assert_eq!(read(unreadable, Reply::Tags), None, "{unreadable}");
        }
    }
}
