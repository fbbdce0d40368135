//! The template between a model and an environment: text of an observation, and of an action what the environment wants.
//!
//! It is one file with the blocks `rules`, `observation` and `action`. A block that it leaves out is that of
//! `default.jinja`.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use serde_json::{Map, Value, json};

use super::protocol::{StepResult, quoted};

/// Instructions that a block may execute. A board of 64 x 64 cells, each looked at, takes about a hundred thousand.
const FUEL: u64 = 3_000_000;
/// Bytes of a template.
pub(super) const LONGEST_SOURCE: u64 = 64 << 10;
/// Bytes of what a block makes. No model reads as much.
const LONGEST_TEXT: usize = 1 << 20;
const DEFAULT: &str = include_str!("default.jinja");
const BLOCKS: [&str; 3] = ["rules", "observation", "action"];

/// A template and an expression, parsed.
#[derive(Debug)]
pub(super) struct ExternalTemplate {
    environment: Environment<'static>,
    success: String,
}

impl ExternalTemplate {
    /// The template with this source, or the default one. The error says what is wrong, and not in which file.
    pub fn parse(source: Option<&str>) -> Result<ExternalTemplate, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.expect("the standard delimiters are distinct"));
        environment.set_fuel(Some(FUEL));
        environment.add_filter("tojson", tojson);
        let source = source.unwrap_or_default();
        for block in BLOCKS {
            // What a template extends is put out with the blocks that it replaces: a page of one block puts out that.
            let page = format!("{block} page");
            let base = default_block(block);
            let add = |environment: &mut Environment<'static>, name, text| {
                environment.add_template_owned(name, text)
            };
            add(&mut environment, page.clone(), base.to_owned()).map_err(|e| error_text(&e))?;
            let text = format!("{{% extends {page:?} %}}{source}");
            add(&mut environment, block.to_owned(), text).map_err(|e| error_text(&e))?;
        }
        Ok(ExternalTemplate {
            environment,
            success: String::new(),
        })
    }

    /// With this expression for what a success is.
    pub fn with_success(mut self, expression: &str) -> Result<ExternalTemplate, String> {
        self.environment
            .compile_expression(expression)
            .map_err(|e| error_text(&e))?;
        self.success = expression.to_owned();
        Ok(self)
    }

    /// The rules.
    pub fn rules(&self) -> Result<String, String> {
        self.render("rules", json!({}))
    }

    /// The text of a state.
    pub fn observation(&self, answer: &StepResult, step: usize) -> Result<String, String> {
        self.render(
            "observation",
            json!({
                "observation": answer.observation,
                "reward": answer.reward,
                "done": answer.done,
                "step": step,
            }),
        )
    }

    /// What is sent for an action, or for a reply that could not be read (`None`); nothing if the block makes nothing.
    pub fn action(
        &self,
        action: Option<(usize, &str)>,
        text: &str,
        step: usize,
    ) -> Result<Option<Map<String, Value>>, String> {
        let made = self.render(
            "action",
            json!({
                "index": action.map(|(index, _)| index),
                "action": action.map(|(_, word)| word),
                "text": text,
                "step": step,
            }),
        )?;
        if made.trim().is_empty() {
            return Ok(None);
        }
        let wrong = |problem: &str| {
            let made = quoted(made.as_bytes());
            Err(format!(
                "its block `action` makes {made}, which is {problem}"
            ))
        };
        match serde_json::from_str(&made) {
            Ok(Value::Object(data)) => Ok(Some(data)),
            Ok(_) => wrong("no JSON object"),
            Err(error) => wrong(&format!("not JSON ({error})")),
        }
    }

    /// Whether an episode that has come so far is a success.
    pub fn succeeded(&self, answer: &StepResult, total: f64, step: usize) -> Result<bool, String> {
        let expression = self.environment.compile_expression(&self.success);
        let value = expression.and_then(|expression| {
            expression.eval(Serde(json!({
                "observation": answer.observation,
                "reward": answer.reward,
                "return": total,
                "done": answer.done,
                "step": step,
            })))
        });
        Ok(value.map_err(|e| error_text(&e))?.is_true())
    }

    fn render(&self, block: &str, variables: Value) -> Result<String, String> {
        let mut text = BoundedText(Vec::new());
        let template = self
            .environment
            .get_template(block)
            .map_err(|e| error_text(&e))?;
        let rendered = template.render_captured_to(Serde(variables), &mut text);
        rendered.map_err(|e| format!("its block `{block}` fails: {}", error_text(&e)))?;
        let text = String::from_utf8(text.0).map_err(|e| e.to_string())?;
        Ok(text.trim_end_matches('\n').to_owned())
    }
}

/// One block of the default template, with its tags.
fn default_block(name: &str) -> &'static str {
    const END: &str = "{% endblock %}";
    let start = DEFAULT.find(&format!("{{% block {name} %}}"));
    let block = &DEFAULT[start.expect("the default template has all blocks")..];
    let end = block.find(END).expect("a block ends");
    &block[..end + END.len()]
}

/// JSON as it is, in one line or indented; Jinja's own would escape HTML, which a model is not to read.
fn tojson(value: Jinja, indent: Option<usize>) -> Result<String, Error> {
    let failed = |e: serde_json::Error| Error::new(ErrorKind::InvalidOperation, e.to_string());
    let Some(indent) = indent else {
        return serde_json::to_string(&value).map_err(failed);
    };
    let indent = " ".repeat(indent.min(8));
    let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    serde::Serialize::serialize(&value, &mut serializer).map_err(failed)?;
    String::from_utf8(bytes).map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))
}

/// minijinja's message in our manner, with the line it is about.
fn error_text(error: &Error) -> String {
    let line = error
        .line()
        .map(|line| format!("line {line}: "))
        .unwrap_or_default();
    if error.kind() == ErrorKind::OutOfFuel {
        return format!("{line}it does not come to an end (stopped after {FUEL} instructions)");
    }
    let source = std::error::Error::source(error);
    if let Some(io) = source.and_then(|e| e.downcast_ref::<io::Error>()) {
        return format!("{line}{io}");
    }
    let detail = error.detail().map(|detail| format!(": {detail}"));
    format!("{line}{}{}", error.kind(), detail.unwrap_or_default())
}

/// A text that may not grow without end.
struct BoundedText(Vec<u8>);

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST_TEXT {
            let problem = format!("the text is longer than {} MiB", LONGEST_TEXT >> 20);
            return Err(io::Error::other(problem));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
