//! The language-agent policy: a model, how it is asked, and how its reply is read.

use std::collections::HashMap;
use std::sync::Arc;

use lapwing_env::Scenario;
use lapwing_model::{Adapter, ChatTemplate, Message, Model, ModelError, Tokenizer};

use crate::config::Reply;

/// A model with its tokenizer and chat template, and the adapter that it is trained through.
pub struct Agent {
    /// the frozen base
    pub model: Model,
    /// none: the base as it is
    pub adapter: Option<Adapter>,
    /// What the policy is held against: the adapter that training began from. None: the base as it is.
    pub reference: Option<Adapter>,
    /// text to token ids and back
    pub tokenizer: Tokenizer,
    /// the model's own way to write a conversation
    pub template: ChatTemplate,
}

/// How one game is put to one agent: the template T and the parser of the paper.
///
/// The prompt holds the rules (system message) and the current observation (user message), nothing of the past. All
/// prompts of a game begin with the same tokens, so the rules are computed once.
pub struct Prompts {
    rules: Message,
    actions: &'static [&'static str],
    reply: Reply,
    known: HashMap<String, Arc<[u32]>>,
}

impl Prompts {
    /// For this game and this form of reply.
    pub fn new(scenario: &dyn Scenario, reply: Reply) -> Prompts {
        let (actions, rules) = (scenario.actions(), scenario.rules());
        let words = actions.join(", ");
        let form = match reply {
            Reply::Word => format!("Reply with one word: {words}."),
            Reply::Tags => format!(
                "Think briefly, then give one action in tags, for example <action>{}</action>, and stop. \
                 The actions are: {words}.",
                actions[0]
            ),
        };
        Prompts {
            rules: Message::system(format!("{rules}\n{form}")),
            actions,
            reply,
            known: HashMap::new(),
        }
    }

    /// The system message: the rules and the form of the reply.
    pub fn rules(&self) -> &Message {
        &self.rules
    }

    /// The prompt for an observation as text.
    ///
    /// # Errors
    /// If the model's chat template fails.
    pub fn text(&self, template: &ChatTemplate, observation: &str) -> Result<String, ModelError> {
        template.render(&[self.rules.clone(), Message::user(observation)], true)
    }

    /// The prompt for an observation as token ids. Equal observations are rendered once.
    ///
    /// # Errors
    /// If the model's chat template or tokenizer fails.
    pub fn ids(&mut self, agent: &Agent, observation: &str) -> Result<Arc<[u32]>, ModelError> {
        if let Some(ids) = self.known.get(observation) {
            return Ok(ids.clone());
        }
        let ids: Arc<[u32]> = agent
            .tokenizer
            .encode(&self.text(&agent.template, observation)?)?
            .into();
        self.known.insert(observation.to_owned(), ids.clone());
        Ok(ids)
    }

    /// The action that a reply names; `None` if it cannot be read, which is the invalid action.
    pub fn parse(&self, reply: &str) -> Option<usize> {
        parse(reply, self.reply, self.actions)
    }
}

/// A word is the whole reply; tags are the text between the first `<action>` and the `</action>` after it. Space
/// around the word and its case do not count.
fn parse(reply: &str, form: Reply, actions: &[&str]) -> Option<usize> {
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

    const ACTIONS: &[&str] = &["left", "down"];

    #[test]
    fn every_action_of_every_game_is_read_back() {
        for kind in lapwing_env::GAMES {
            let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
            let word = Prompts::new(&*scenario, Reply::Word);
            let tags = Prompts::new(&*scenario, Reply::Tags);
            for (i, action) in scenario.actions().iter().enumerate() {
                assert_eq!(word.parse(action), Some(i), "{}", kind.name);
                let reply = format!("I think so. <action>{action}</action>");
                assert_eq!(tags.parse(&reply), Some(i), "{}", kind.name);
            }
        }
    }

    #[test]
    fn a_word_is_the_whole_reply() {
        let read = |reply| parse(reply, Reply::Word, ACTIONS);
        assert_eq!(read("left"), Some(0));
        assert_eq!(read(" Down\n"), Some(1));
        for unreadable in ["", "left down", "leftleft", "up", "<action>left</action>"] {
            assert_eq!(read(unreadable), None, "{unreadable}");
        }
    }

    #[test]
    fn tags_are_read_where_they_stand_first() {
        let read = |reply| parse(reply, Reply::Tags, ACTIONS);
        assert_eq!(read("<action>left</action>"), Some(0));
        assert_eq!(
            read("I go down. <action> DOWN </action> and <action>left</action>"),
            Some(1)
        );
        for unreadable in [
            "left",
            "<action>left",
            "left</action>",
            "<action>up</action>",
            "</action>left<action>",
        ] {
            assert_eq!(read(unreadable), None, "{unreadable}");
        }
    }
}
