//! The chat template of a model: renders a conversation as the text that the model was trained on.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::chat_program::{SPECIAL_TOKENS, template_error};
use super::sandbox::Runner;
use super::text_server::TextRequest;
use crate::files::gguf::file_of_model;
use crate::{ModelError, TextFiles};

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// Returns a message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        let (role, content) = (role.into(), content.into());
        Message { role, content }
    }
}

/// A parsed chat template with the special tokens that it may print. Threads that share it wait for each other.
#[derive(Debug)]
pub struct ChatTemplate {
    runner: Arc<Runner>,
    path: PathBuf,
    /// Variables beside the conversation: the special tokens, and those of [`ChatTemplate::set`].
    variables: Map<String, Value>,
}

/// The names that [`ChatTemplate::set`] refuses beside the special tokens.
const RESERVED: [&str; 4] = [
    "messages",
    "add_generation_prompt",
    "raise_exception",
    "strftime_now",
];

impl ChatTemplate {
    pub(super) fn of(files: &TextFiles) -> Result<ChatTemplate, ModelError> {
        let request = TextRequest::Template;
        let (file, variables): (String, _) = files.runner.ask(&files.dir, request)?;
        Ok(ChatTemplate {
            runner: files.runner.clone(),
            path: file_of_model(&files.dir, &file),
            variables,
        })
    }

    /// Sets variables for all later renderings, such as Qwen3's `enable_thinking`.
    ///
    /// # Errors
    /// A name is [reserved](ChatTemplate::is_reserved).
    pub fn set(&mut self, variables: Map<String, Value>) -> Result<(), ModelError> {
        if let Some(name) = variables.keys().find(|name| Self::is_reserved(name)) {
            let problem = format!("the variable `{name}` is not free to be set: leave it out");
            return Err(template_error(&self.path, problem));
        }
        self.variables.extend(variables);
        Ok(())
    }

    /// Returns whether [`ChatTemplate::set`] refuses a name: the conversation, the functions that every template may call,
    /// and the special tokens.
    pub fn is_reserved(name: &str) -> bool {
        RESERVED.contains(&name) || SPECIAL_TOKENS.contains(&name)
    }

    /// Renders a conversation. With `add_generation_prompt` the text ends where the assistant's reply begins. A message
    /// is a [`Message`], or any other value that the template reads (tool calls, contents in parts).
    ///
    /// # Errors
    /// The template fails or exceeds a limit.
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
        let request = TextRequest::Render(context);
        self.runner.ask(&self.path, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::jinja::MAX_JINJA_SOURCE;

    fn template(source: &str) -> Result<ChatTemplate, ModelError> {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("chat_template.jinja"), source).unwrap();
        TextFiles::trusted(home.path()).template()
    }

    fn render(source: &str) -> Result<String, String> {
        let hello = [Message::new("user", "hello <b> é")];
        template(source)
            .and_then(|t| t.render(&hello, true))
            .map_err(|e| e.to_string())
    }

    /// A variable called `messages` would make the model play without its game.
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
            template.render(&[Message::new("user", "a")], true).unwrap(),
            "a!True"
        );
    }

    #[test]
    fn steps_output_and_source_are_limited() {
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
        let long = "x".repeat(MAX_JINJA_SOURCE + 1);
        assert!(render(&long).unwrap_err().contains("larger than 64 KiB"));
    }

    #[test]
    fn a_template_may_be_shared_and_survives_its_errors() {
        let source = "{% if messages[0].content == 'no' %}{{ raise_exception('no') }}{% endif %}\
                      {{ messages[0].content }}";
        let shared = template(source).unwrap();
        let render = |text: &str| shared.render(&[Message::new("user", text)], true);
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
        let rendered =
            std::thread::spawn(move || shared.render(&[Message::new("user", "d")], true));
        assert_eq!(rendered.join().unwrap().unwrap(), "d");
    }
}
