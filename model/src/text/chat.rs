//! The chat template of a checkpoint: a conversation as the text that the model was taught to continue.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::process::{Process, Request};
use super::template::{SPECIAL_TOKENS, Source, Template};
use super::worker::{Unfinished, Worker};
use crate::ModelError;

/// What someone says in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who: `system`, `user` or `assistant`.
    pub role: String,
    /// The words.
    pub content: String,
}

impl Message {
    /// What the conversation is about; here, the rules of the game.
    pub fn system(content: impl Into<String>) -> Message {
        Message {
            role: "system".into(),
            content: content.into(),
        }
    }

    /// What the model is told or asked.
    pub fn user(content: impl Into<String>) -> Message {
        Message {
            role: "user".into(),
            content: content.into(),
        }
    }

    /// What the model replied.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message {
            role: "assistant".into(),
            content: content.into(),
        }
    }
}

/// A checkpoint's template, parsed, with the special tokens that it may print. Those who share it wait for each other.
pub struct ChatTemplate {
    path: PathBuf,
    place: Place,
    /// What the template finds beside the conversation: the special tokens, and what was set.
    variables: Map<String, Value>,
}

/// Where it runs.
enum Place {
    /// On the thread that asks: a template of our own.
    Here(Box<Template>),
    /// On a thread of this process, which has the stack for it and is left behind if it takes too long.
    Thread(Worker, Arc<Template>),
    /// In a process that may come to any end.
    Apart(Arc<Process>),
}

/// Deep enough for all that a source within its limit can nest; what a template builds up while it runs may go deeper.
const STACK: usize = 256 << 20;
/// Published templates take milliseconds; the machine may be busy, though.
const LONGEST_TIME: Duration = Duration::from_secs(5);
/// What a conversation is given to a template under, beside the special tokens.
const OURS: [&str; 4] = [
    "messages",
    "add_generation_prompt",
    "raise_exception",
    "strftime_now",
];

impl ChatTemplate {
    /// Reads `chat_template.jinja`, or else the template inside `tokenizer_config.json`, and runs it in this process,
    /// within limits of length, depth, steps and time. They do not bound the memory that it takes in that time, nor how
    /// deep what it builds up is nested, which can end the process; [`TextFiles::guarded`](crate::TextFiles::guarded)
    /// does.
    ///
    /// # Errors
    /// If there is none, or it cannot be parsed.
    pub fn load(dir: &Path) -> Result<ChatTemplate, ModelError> {
        let source = Source::read(dir)?;
        let worker = Worker::new(STACK);
        let text = source.text;
        let parsed = attempt(&worker, move || Template::parse(text));
        let template = parsed.map_err(|e| wrong(&source.path, e))?;
        Ok(ChatTemplate {
            path: source.path,
            place: Place::Thread(worker, Arc::new(template)),
            variables: source.special_tokens,
        })
    }

    /// The same for a template of our own: no thread, no stack, no limit of time.
    pub(crate) fn trusted(dir: &Path) -> Result<ChatTemplate, ModelError> {
        let source = Source::read(dir)?;
        let template = Template::parse(source.text).map_err(|e| wrong(&source.path, e))?;
        Ok(ChatTemplate {
            path: source.path,
            place: Place::Here(Box::new(template)),
            variables: source.special_tokens,
        })
    }

    /// The same in the process of this directory.
    pub(crate) fn apart(process: &Arc<Process>) -> Result<ChatTemplate, ModelError> {
        let parse = Request::Template;
        let (file, variables): (String, _) = process.ask(SUBJECT, None, &parse)?;
        Ok(ChatTemplate {
            path: process.dir().join(file),
            place: Place::Apart(process.clone()),
            variables,
        })
    }

    /// Sets variables for the template, such as Qwen3's `enable_thinking`, in all that is rendered from now on.
    ///
    /// # Errors
    /// If one of them would replace the conversation or what the checkpoint says, naming it.
    pub fn set(&mut self, variables: Map<String, Value>) -> Result<(), ModelError> {
        let ours = |name: &&String| Self::is_reserved(name);
        if let Some(name) = variables.keys().find(ours) {
            let problem = format!("the variable `{name}` is not free to be set: leave it out");
            return Err(wrong(&self.path, problem));
        }
        self.variables.extend(variables);
        Ok(())
    }

    /// Whether a variable of this name is one that [`ChatTemplate::set`] refuses: the conversation itself, what every
    /// template may call, and the special tokens of the checkpoint.
    pub fn is_reserved(name: &str) -> bool {
        OURS.contains(&name) || SPECIAL_TOKENS.contains(&name)
    }

    /// The text of a conversation; with `add_generation_prompt` it ends where the assistant's reply begins. A message
    /// is a [`Message`], or whatever else the template understands (tool calls, contents in parts).
    ///
    /// # Errors
    /// What the template complains about, or which limit it exceeds.
    pub fn render(
        &self,
        messages: &[impl Serialize],
        add_generation_prompt: bool,
    ) -> Result<String, ModelError> {
        let mut context = Map::new();
        context.insert("tools".into(), Value::Null);
        context.insert("documents".into(), Value::Null);
        context.extend(self.variables.clone());
        context.insert("messages".into(), json!(messages));
        context.insert("add_generation_prompt".into(), json!(add_generation_prompt));
        let rendered = match &self.place {
            Place::Here(template) => template.render(context),
            Place::Thread(worker, template) => {
                let template = template.clone();
                attempt(worker, move || template.render(context))
            }
            Place::Apart(process) => {
                return process.ask(SUBJECT, Some(&self.path), &Request::Render(context));
            }
        };
        rendered.map_err(|e| wrong(&self.path, e))
    }
}

/// What a process that runs a template is told about.
const SUBJECT: &str = "chat template: it";

pub(crate) fn wrong(path: &Path, problem: String) -> ModelError {
    ModelError::file(path, format!("chat template: {problem}"))
}

/// Does some work with a stack that a source within the limits cannot exhaust, for as long as it may take. What takes
/// longer is left behind; whoever loaded such a template has no use for the rest of this process.
fn attempt<T: Send + 'static>(
    worker: &Worker,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    worker.run(LONGEST_TIME, work).unwrap_or_else(|unfinished| {
        Err(match unfinished {
            Unfinished::NoRoom(e) => format!("there is no room to run it: {e}"),
            Unfinished::TooLong => {
                let seconds = LONGEST_TIME.as_secs();
                format!("it does not come to an end (stopped after {seconds} s)")
            }
            Unfinished::Panicked => "it breaks its engine".to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::template::LONGEST_SOURCE;
    use super::*;

    fn template(source: &str) -> Result<ChatTemplate, ModelError> {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("chat_template.jinja"), source).unwrap();
        ChatTemplate::load(home.path())
    }

    fn render(source: &str) -> Result<String, String> {
        let hello = [Message::user("hello <b> é")];
        template(source)
            .and_then(|t| t.render(&hello, true))
            .map_err(|e| e.to_string())
    }

    /// Whoever sets the messages by a variable would have the model play without its game.
    #[test]
    fn variables_replace_nothing_of_the_conversation() {
        let source = "{{ messages[0].content }}{{ mood }}{{ tools is none }}";
        let mut template = template(source).unwrap();
        for name in [
            "messages",
            "add_generation_prompt",
            "eos_token",
            "strftime_now",
        ] {
            let variables = Map::from_iter([(name.to_owned(), json!("x"))]);
            let error = template.set(variables).unwrap_err().to_string();
            let wanted = format!("the variable `{name}` is not free to be set: leave it out");
            assert!(error.ends_with(&wanted), "{error}");
        }
        let mood = Map::from_iter([("mood".to_owned(), json!("!"))]);
        template.set(mood).unwrap();
        assert_eq!(
            template.render(&[Message::user("a")], true).unwrap(),
            "a!True"
        );
    }

    #[test]
    fn a_template_without_end_is_stopped() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        assert!(
            render(loops)
                .unwrap_err()
                .contains("does not come to an end")
        );
        let floods = "{% for i in range(9999) %}{{ messages[0].content * 9999 }}{% endfor %}";
        assert!(render(floods).unwrap_err().contains("longer than 4 MiB"));
        let recurses = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
        assert!(render(recurses).unwrap_err().contains("recursion"));
        // Few steps, each of them slow. (The thread goes on until the tests are over.)
        let slow = "{% set s = 'x' * 9999999 %}{% for i in range(9999) %}{% for j in range(9) %}\
                    {% if s|upper|length %}{% endif %}{% endfor %}{% endfor %}";
        assert!(render(slow).unwrap_err().contains("stopped after 5 s"));
        let nests = "{% if true %}".repeat(10_000);
        assert!(render(&nests).is_err());
        let nests = format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(render(&nests).is_err());
    }

    /// The parser guards some ways to go deep and not others. None may exhaust the stack.
    #[test]
    fn a_template_may_be_as_deep_as_it_is_long() {
        for (before, again, after) in [
            ("{{ ", "-", "1 }}"),
            ("{{ ", "not ", "1 }}"),
            ("{{ 1", " if 1 else 1", " }}"),
            ("{{ 1", "+1", " }}"),
            ("{{ a", ".b", " }}"),
            ("{{ a", "|trim", " }}"),
            ("{{ a", "[0]", " }}"),
            ("{{ 1", "~1", " }}"),
            ("{{ 1", "**1", " }}"),
            ("{{ ", "[", "1 }}"),
            ("", "{% if 1 %}a{% elif 1 %}", "{% endif %}"),
            ("", "{% for a in b %}", ""),
            ("", "{% set a %}", ""),
        ] {
            let room = LONGEST_SOURCE - before.len() - after.len();
            let source = format!("{before}{}{after}", again.repeat(room / again.len()));
            // With a text or an error; what matters is that it comes back.
            let _ = render(&source);
        }
        let long = "x".repeat(LONGEST_SOURCE + 1);
        assert!(render(&long).unwrap_err().contains("larger than 64 KiB"));
    }

    #[test]
    fn a_template_may_be_shared_and_outlives_what_goes_wrong_in_it() {
        let source = "{% if messages[0].content == 'no' %}{{ raise_exception('no') }}{% endif %}\
                      {{ messages[0].content }}";
        let shared = template(source).unwrap();
        let render = |text: &str| shared.render(&[Message::user(text)], true);
        std::thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                scope.spawn(move || {
                    for number in 0..50 {
                        let text = format!("{name}{number}");
                        assert_eq!(render(&text).unwrap(), text);
                        assert!(render("no").is_err());
                    }
                });
            }
        });
        // It may also move to where it is used.
        let rendered = std::thread::spawn(move || shared.render(&[Message::user("d")], true));
        assert_eq!(rendered.join().unwrap().unwrap(), "d");
    }
}
