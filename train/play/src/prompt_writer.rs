//! How a game is put to whoever reads and writes, and how the answer is read: the template T of the paper.

use std::path::{Path, PathBuf};

use lapwing_env::Scenario;
use lapwing_model::{Jinja, JinjaError, JinjaErrorKind, JinjaOptions, Message, read_text};

use crate::PlayError;
use crate::config::PolicyConfig;
use crate::episode::{Episode, Turn};
use crate::player::{ActionRequest, Reply};
use crate::reply;
use crate::reply::ReplyForm;
use crate::seeds;

/// The template that is used where none is named, and which others may extend.
const USUAL: &str = include_str!("prompt.jinja");
/// What others extend it by.
const USUAL_NAME: &str = "usual";
/// The parts of a template.
const BLOCKS: [&str; 6] = [
    "system",
    "user",
    "rules",
    "actions",
    "observation",
    "format",
];
/// What a template can name.
const VARIABLES: [&str; 6] = [
    "game",
    "rules",
    "actions",
    "takes_text",
    "reply",
    "observation",
];
/// Instructions that a template may execute: the usual one takes less than a hundred.
const FUEL: u64 = 1_000_000;
/// Bytes of a prompt.
const MAX_PROMPT: usize = 4 << 20;
/// Bytes of a template file.
const LONGEST: u64 = 64 << 10;

/// What an agent knows when it is asked for an action.
#[derive(Debug, Clone, Copy)]
pub struct AgentView<'a> {
    /// what it sees
    pub observation: &'a str,
    /// its turns before this one, from the first on
    pub past: &'a [Turn],
    /// the episode's seed, by which it is put in one wording or another
    pub seed: u64,
}

impl<'a> AgentView<'a> {
    /// A first turn.
    pub fn first(observation: &'a str) -> AgentView<'a> {
        AgentView {
            observation,
            past: &[],
            seed: 0,
        }
    }

    /// A turn that would follow the last of an episode that is over.
    pub fn after(episode: &'a Episode) -> AgentView<'a> {
        AgentView {
            observation: &episode.last,
            past: &episode.turns,
            seed: episode.seed,
        }
    }

    /// A turn of an episode, from 0.
    pub fn turn(episode: &'a Episode, turn: usize) -> AgentView<'a> {
        AgentView {
            observation: &episode.turns[turn].observation,
            past: &episode.turns[..turn],
            seed: episode.seed,
        }
    }
}

impl ActionRequest<'_> {
    /// What the agent that asks knows.
    pub(crate) fn seen(&self) -> AgentView<'_> {
        AgentView {
            observation: self.observation,
            past: self.past,
            seed: self.seed,
        }
    }
}

/// How one game is put, and how replies are read.
///
/// A prompt is a system message (rules, and what a reply must look like), as many of the latest turns as
/// `policy.history` says, and the current observation. Without history all prompts of a game begin with the same text.
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
    /// `None`: the usual one
    path: Option<PathBuf>,
    jinja: Jinja,
}

impl PromptWriter {
    /// For this game, as the policy is to be asked.
    ///
    /// # Errors
    /// If a template cannot be read, or is none.
    pub fn new(scenario: &dyn Scenario, policy: &PolicyConfig) -> Result<PromptWriter, PlayError> {
        let templates = match &policy.templates[..] {
            [] => vec![PromptTemplate::parse(None, USUAL.to_owned())?],
            paths => {
                let read = |path: &PathBuf| {
                    let text = read_text(path, LONGEST).map_err(|error| {
                        let (text, path) = (error.to_string(), path.clone());
                        let prefix = format!("{}: ", path.display());
                        let why = text.strip_prefix(&prefix).unwrap_or(&text);
                        let problem = format!("{why} (policy.templates)");
                        PlayError::Prompt { path, problem }
                    })?;
                    PromptTemplate::parse(Some(path), text)
                };
                paths.iter().map(read).collect::<Result<_, PlayError>>()?
            }
        };
        let framing = PromptWriter {
            game: scenario.name().to_owned(),
            rules: scenario.rules(),
            actions: scenario.actions().to_vec(),
            takes_text: scenario.takes_text(),
            form: policy.reply,
            history: policy.history,
            templates,
        };
        // What is wrong with a template shows now, and not when its turn comes.
        for template in &framing.templates {
            framing.render(template, "")?;
        }
        Ok(framing)
    }

    /// In how many ways it is put.
    pub fn wordings(&self) -> usize {
        self.templates.len()
    }

    /// Which of them an episode of this seed gets.
    pub(crate) fn wording(&self, seed: u64) -> usize {
        match self.templates.len() {
            1 => 0,
            count => (seeds::derive(seed, "wording", &[]) % count as u64) as usize,
        }
    }

    /// The turns that are told again.
    pub(crate) fn shown_history<'a>(&self, seen: &AgentView<'a>) -> &'a [Turn] {
        &seen.past[seen.past.len().saturating_sub(self.history)..]
    }

    /// What an agent is told.
    ///
    /// # Errors
    /// If the template fails.
    pub fn messages(&self, seen: &AgentView<'_>) -> Result<Vec<Message>, PlayError> {
        let template = &self.templates[self.wording(seen.seed)];
        let (system, user) = self.render(template, seen.observation)?;
        let mut messages = vec![Message::system(system)];
        for turn in self.shown_history(seen) {
            let (_, user) = self.render(template, &turn.observation)?;
            messages.push(Message::user(user));
            messages.push(Message::assistant(&turn.text));
        }
        messages.push(Message::user(user));
        Ok(messages)
    }

    /// A reply, read. `cut`: the limit of tokens ended it.
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

    /// The system message and the user's.
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
        let rendered = template
            .jinja
            .render_blocks("prompt", variables, &["system", "user"]);
        let mut parts = rendered
            .map_err(|error| template.refused(&error))?
            .into_iter();
        let mut part = || parts.next().expect("both are asked for");
        Ok((part(), part()))
    }
}

impl PromptTemplate {
    fn parse(path: Option<&PathBuf>, text: String) -> Result<PromptTemplate, PlayError> {
        if let Some(path) = path {
            check_blocks(path, &text)?;
        }
        let mut template = PromptTemplate {
            path: path.cloned(),
            // A name that is spelt wrong is no empty text.
            jinja: Jinja::new(JinjaOptions {
                max_instructions: FUEL,
                max_output: MAX_PROMPT,
                trim_blocks: false,
                strict: true,
                // JSON has a space after each colon and comma.
                python: true,
            }),
        };
        let jinja = &mut template.jinja;
        let added = jinja
            .add(USUAL_NAME, USUAL.to_owned())
            .and_then(|()| jinja.add("prompt", text));
        match added {
            Ok(()) => Ok(template),
            Err(error) => Err(template.refused(&error)),
        }
    }

    fn refused(&self, error: &JinjaError) -> PlayError {
        let problem = format!("{error}{}", cure(error.kind));
        let path = self.path.clone().unwrap_or_else(|| USUAL_NAME.into());
        PlayError::Prompt { path, problem }
    }
}

/// What helps, where the problem alone does not say it.
fn cure(kind: JinjaErrorKind) -> String {
    match kind {
        JinjaErrorKind::UndefinedVariable => {
            format!("; the variables are {}", VARIABLES.join(", "))
        }
        JinjaErrorKind::UnknownTemplate => {
            format!("; the only template that others may extend is {USUAL_NAME:?}")
        }
        JinjaErrorKind::UnknownBlock => {
            format!("; begin with {{% extends {USUAL_NAME:?} %}}, which has all that is left out")
        }
        JinjaErrorKind::TooManyInstructions => "; is there a loop in a loop?".to_owned(),
        _ => String::new(),
    }
}

/// A block that nobody asks for would be ignored in silence.
fn check_blocks(path: &Path, text: &str) -> Result<(), PlayError> {
    for (at, _) in text.match_indices("{%") {
        let tag = text[at + 2..].trim_start_matches(['-', '+']).trim_start();
        let Some(name) = tag.strip_prefix("block ") else {
            continue;
        };
        let end = name
            .trim_start()
            .find(|c: char| !c.is_alphanumeric() && c != '_');
        let name = &name.trim_start()[..end.unwrap_or(0)];
        if !BLOCKS.contains(&name) {
            let (path, known) = (path.to_owned(), BLOCKS.join(", "));
            let problem = format!("there is no part called {name:?}; the blocks are {known}");
            return Err(PlayError::Prompt { path, problem });
        }
    }
    Ok(())
}
