//! Writes the prompts of a game and parses the replies: the template T of the paper.

use std::path::PathBuf;

use lapwing_env::Scenario;
use lapwing_model::{Jinja, JinjaError, JinjaErrorKind, JinjaOptions, Message, read_text};

use serde_json::{Map, Value};

use crate::PlayError;
use crate::config::PolicyConfig;
use crate::episode::{Episode, Turn};
use crate::player::Reply;
use crate::reply::{self, ReplyForm};
use crate::seeds;

/// The default template, which others may extend.
const USUAL: &str = include_str!("prompt.jinja");
/// The name by which other templates extend it.
const USUAL_NAME: &str = "usual";
/// The maximum number of instructions of a template. The default one takes less than a hundred.
const FUEL: u64 = 1_000_000;
/// The maximum number of bytes of a prompt.
const MAX_PROMPT: usize = 4 << 20;
/// The maximum number of bytes of a template file.
const LONGEST: u64 = 64 << 10;

/// The inputs of a prompt.
#[derive(Debug, Clone, Copy)]
pub struct AgentView<'a> {
    /// the current observation
    pub observation: &'a str,
    /// the earlier turns, from the first
    pub past: &'a [Turn],
    /// the seed of the player's random choices in this episode, which also selects the template
    pub seed: u64,
}

impl<'a> AgentView<'a> {
    /// Returns the inputs of a first turn.
    pub fn first(observation: &'a str) -> AgentView<'a> {
        AgentView {
            observation,
            past: &[],
            seed: 0,
        }
    }

    /// Returns the inputs of a turn, from 0, or of the turn that would follow the last one of an episode that has ended.
    pub fn turn(episode: &'a Episode, turn: usize) -> AgentView<'a> {
        let played = episode.turns.get(turn);
        AgentView {
            observation: played.map_or(&episode.last, |turn| &turn.observation),
            past: &episode.turns[..turn],
            seed: episode.seed,
        }
    }
}

/// The prompts of one game, and the parser of its replies.
///
/// A prompt is a system message (rules and the form of a reply), as many of the latest turns as `policy.history` sets,
/// and the current observation. Without history all prompts of a game begin with the same text.
#[derive(Debug, Clone)]
pub struct PromptWriter {
    game: String,
    rules: String,
    actions: Vec<String>,
    takes_text: bool,
    form: ReplyForm,
    history: usize,
    templates: Vec<PromptTemplate>,
}

#[derive(Debug, Clone)]
struct PromptTemplate {
    /// the file, or `usual`
    path: PathBuf,
    jinja: Jinja,
}

impl PromptWriter {
    /// Makes the prompts of this game for this policy.
    ///
    /// # Errors
    /// If a template is unreadable or invalid.
    pub fn new(scenario: &dyn Scenario, policy: &PolicyConfig) -> Result<PromptWriter, PlayError> {
        let mut templates = Vec::new();
        for path in &policy.templates {
            let text = read_text(path, LONGEST)
                .map_err(|error| PlayError::Prompt(format!("{error} (policy.templates)")))?;
            templates.push(PromptTemplate::parse(path.clone(), text)?);
        }
        if templates.is_empty() {
            templates.push(PromptTemplate::parse(USUAL_NAME.into(), USUAL.to_owned())?);
        }
        let framing = PromptWriter {
            game: scenario.name().to_owned(),
            rules: scenario.rules(),
            actions: scenario.actions().to_vec(),
            takes_text: scenario.takes_text(),
            form: policy.reply,
            history: policy.history,
            templates,
        };
        // A faulty template fails here instead of in the middle of a run.
        for template in &framing.templates {
            framing.render(template, "")?;
        }
        Ok(framing)
    }

    /// Returns the number of templates.
    pub fn wordings(&self) -> usize {
        self.templates.len()
    }

    /// Returns the index of the template of the episode with this seed.
    pub(crate) fn wording(&self, seed: u64) -> usize {
        match self.templates.len() {
            1 => 0,
            count => (seeds::derive(seed, "wording", &[]) % count as u64) as usize,
        }
    }

    /// Returns the turns to repeat.
    pub(crate) fn shown_history<'a>(&self, seen: &AgentView<'a>) -> &'a [Turn] {
        &seen.past[seen.past.len().saturating_sub(self.history)..]
    }

    /// Returns the messages for an agent.
    ///
    /// # Errors
    /// If the template fails.
    pub fn messages(&self, seen: &AgentView<'_>) -> Result<Vec<Message>, PlayError> {
        let template = &self.templates[self.wording(seen.seed)];
        let (system, user) = self.render(template, seen.observation)?;
        let mut messages = vec![Message::new("system", system)];
        for turn in self.shown_history(seen) {
            let (_, user) = self.render(template, &turn.observation)?;
            messages.push(Message::new("user", user));
            messages.push(Message::new("assistant", &turn.text));
        }
        messages.push(Message::new("user", user));
        Ok(messages)
    }

    /// Returns the shortest reply for each action; none if any text is an action.
    pub(crate) fn shortest_replies(&self) -> impl Iterator<Item = String> {
        let actions = self.actions.iter().filter(|_| !self.takes_text);
        actions.map(|action| self.form.say(action))
    }

    /// Parses a reply. `cut`: the token limit ended it.
    pub fn read(&self, text: String, cut: bool) -> Reply {
        let (action, said) = match self.takes_text {
            false => (reply::action(&text, self.form, &self.actions, cut), None),
            true => match reply::said(&text, self.form, cut) {
                Ok(said) => (Ok(0), Some(said)),
                Err(why) => (Err(why), None),
            },
        };
        Reply {
            action: action.ok(),
            unread: action.err(),
            said,
            text,
            sampled: None,
        }
    }

    /// Returns the system message and the user's.
    fn render(
        &self,
        template: &PromptTemplate,
        observation: &str,
    ) -> Result<(String, String), PlayError> {
        let variables = serde_json::json!({
            "game": self.game,
            "rules": self.rules,
            "actions": self.actions,
            "takes_text": self.takes_text,
            "reply": self.form,
            "observation": observation,
        });
        let blocks = ["system", "user"];
        let rendered = template.jinja.render_blocks("prompt", &variables, &blocks);
        let rendered = rendered.map_err(|e| template.refused(&e, &variables));
        let mut parts = rendered?.1.into_iter();
        let mut part = || parts.next().expect("both are asked for");
        Ok((part(), part()))
    }
}

impl PromptTemplate {
    fn parse(path: PathBuf, text: String) -> Result<PromptTemplate, PlayError> {
        let checked = check_blocks(&text, &blocks(USUAL));
        checked.map_err(|e| PlayError::Prompt(format!("{}: {e}", path.display())))?;
        let mut jinja = Jinja::new(JinjaOptions {
            max_instructions: FUEL,
            max_output: MAX_PROMPT,
            trim_blocks: false,
            // A misspelt name must not become empty text.
            strict: true,
            // JSON with a space after each colon and comma.
            python: true,
        });
        let usual = jinja.add(USUAL_NAME, USUAL.to_owned());
        let added = usual.and_then(|()| jinja.add("prompt", text));
        let template = PromptTemplate { path, jinja };
        added.map_err(|error| template.refused(&error, &Value::Null))?;
        Ok(template)
    }

    /// Adds advice if the error's text does not suggest a fix.
    fn refused(&self, error: &JinjaError, variables: &Value) -> PlayError {
        let cure = match error.kind {
            JinjaErrorKind::UndefinedError => {
                let names = variables.as_object().into_iter().flat_map(Map::keys);
                let names: Vec<&str> = names.map(String::as_str).collect();
                format!("; the variables are {}", names.join(", "))
            }
            JinjaErrorKind::TemplateNotFound => {
                format!("; the only template that others may extend is {USUAL_NAME:?}")
            }
            JinjaErrorKind::UnknownBlock => {
                format!(
                    "; begin with {{% extends {USUAL_NAME:?} %}}, which has all that is left out"
                )
            }
            JinjaErrorKind::OutOfFuel => "; is there a loop in a loop?".to_owned(),
            _ => String::new(),
        };
        PlayError::Prompt(format!("{}: {error}{cure}", self.path.display()))
    }
}

/// An unknown block would be ignored silently.
pub(crate) fn check_blocks(text: &str, known: &[&str]) -> Result<(), String> {
    let names = known.join(", ");
    match blocks(text).into_iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(format!("there is no block `{name}`; they are {names}")),
    }
}

fn blocks(text: &str) -> Vec<&str> {
    let name = |(at, _)| {
        let tag = text[at + 2..].trim_start_matches(['-', '+']).trim_start();
        let name = tag.strip_prefix("block ")?.trim_start();
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
        Some(&name[..end.unwrap_or(0)])
    };
    text.match_indices("{%").filter_map(name).collect()
}
