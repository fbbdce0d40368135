//! The chat template of a checkpoint: a conversation as the text that the model was taught to continue.
//!
//! Templates are Jinja programs written for Python. They run here as transformers runs them (`trim_blocks`,
//! `lstrip_blocks`, Python's string methods, `raise_exception`, `strftime_now`, its own `tojson`), but with a limit on
//! the work they may do.

use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::fields::read_object;
use crate::{ModelError, clock, files};

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

/// A checkpoint's template, parsed, with the special tokens that it may print.
pub struct ChatTemplate {
    path: std::path::PathBuf,
    environment: Environment<'static>,
    special_tokens: Map<String, Value>,
}

/// Instructions a template may execute; the longest published ones need about ten thousand for a short conversation.
const FUEL: u64 = 3_000_000;
const NAME: &str = "chat_template";

impl ChatTemplate {
    /// Reads `chat_template.jinja`, or else the template inside `tokenizer_config.json`.
    ///
    /// # Errors
    /// If there is none, or it cannot be parsed.
    pub fn load(dir: &Path) -> Result<ChatTemplate, ModelError> {
        let beside = dir.join("chat_template.jinja");
        let config_path = dir.join("tokenizer_config.json");
        let config = match files::exists(&config_path) {
            true => read_object(&config_path)?,
            false => Map::new(),
        };
        let special_tokens = special_tokens(&config);
        if files::exists(&beside) {
            return ChatTemplate::new(&beside, files::read_text(&beside)?, special_tokens);
        }
        match inside(&config) {
            Some(source) => ChatTemplate::new(&config_path, source, special_tokens),
            None => {
                let problem = "no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json";
                Err(ModelError::file(dir, problem))
            }
        }
    }

    fn new(
        path: &Path,
        source: String,
        special_tokens: Map<String, Value>,
    ) -> Result<ChatTemplate, ModelError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.expect("the standard delimiters are distinct"));
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", tojson);
        environment
            .add_template_owned(NAME, source)
            .map_err(|e| ModelError::file(path, format!("chat template: {}", told(&e))))?;
        Ok(ChatTemplate {
            path: path.to_owned(),
            environment,
            special_tokens,
        })
    }

    /// The text of a conversation; with `add_generation_prompt` it ends where the assistant's reply begins.
    ///
    /// # Errors
    /// What the template complains about, or that it does not come to an end.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, ModelError> {
        self.render_with(messages, add_generation_prompt, &Map::new())
    }

    /// The same with more variables for the template, such as Qwen3's `enable_thinking`.
    ///
    /// # Errors
    /// What the template complains about, or that it does not come to an end.
    pub fn render_with(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        extra: &Map<String, Value>,
    ) -> Result<String, ModelError> {
        let mut context = self.special_tokens.clone();
        context.insert("messages".into(), json!(messages));
        context.insert("add_generation_prompt".into(), json!(add_generation_prompt));
        context.insert("tools".into(), Value::Null);
        context.insert("documents".into(), Value::Null);
        context.extend(extra.clone());
        let template = self
            .environment
            .get_template(NAME)
            .expect("added when this was made");
        let rendered = template.render(Serde(context));
        rendered.map_err(|e| ModelError::file(&self.path, format!("chat template: {}", told(&e))))
    }
}

/// The template in `tokenizer_config.json`: a text, or a list of named ones of which "default" is meant.
fn inside(config: &Map<String, Value>) -> Option<String> {
    match config.get("chat_template")? {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|t| t["name"] == "default")?;
            default["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// `bos_token` and its like: texts, or objects with the text as `content`.
fn special_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let named = ["bos_token", "eos_token", "pad_token", "unk_token"];
    let text = |value: &Value| {
        value
            .as_str()
            .or_else(|| value["content"].as_str())
            .map(str::to_owned)
    };
    let found = named
        .iter()
        .filter_map(|&name| Some((name.to_owned(), json!(text(config.get(name)?)?))));
    found.collect()
}

/// minijinja's message in our manner, with the line it is about.
fn told(error: &Error) -> String {
    let line = error
        .line()
        .map(|line| format!("line {line}: "))
        .unwrap_or_default();
    if error.kind() == ErrorKind::OutOfFuel {
        return format!("{line}it does not come to an end (stopped after {FUEL} instructions)");
    }
    let kind = error.kind().to_string();
    let detail = error
        .detail()
        .map(|detail| format!(": {detail}"))
        .unwrap_or_default();
    format!("{line}{kind}{detail}")
}

fn raise_exception(message: String) -> Result<Jinja, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Today's date (in UTC: transformers uses local time, which would make a run depend on where it runs).
fn strftime_now(format: String) -> Result<String, Error> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.map(|d| d.as_secs()).unwrap_or(0);
    clock::strftime(&format, seconds).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
}

/// `json.dumps(value, ensure_ascii=False, indent=...)` as transformers calls it; Jinja's own would escape HTML.
fn tojson(value: Jinja, indent: Option<usize>, kwargs: Kwargs) -> Result<String, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<usize>>("indent")?,
    };
    kwargs.get::<Option<bool>>("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let failed = |e: serde_json::Error| Error::new(ErrorKind::InvalidOperation, e.to_string());
    let value = serde_json::to_value(&value).map_err(failed)?;
    let mut bytes = Vec::new();
    let written = match indent {
        Some(indent) => {
            let spaces = " ".repeat(indent.min(64));
            let pretty = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(
                &mut bytes, pretty,
            ))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(
            &mut bytes, OneLine,
        )),
    };
    written.map_err(failed)?;
    String::from_utf8(bytes).map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))
}

/// Python puts a blank after each comma and colon.
struct OneLine;

impl serde_json::ser::Formatter for OneLine {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, w: &mut W) -> std::io::Result<()> {
        w.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(source: &str) -> Result<ChatTemplate, ModelError> {
        ChatTemplate::new(Path::new("chat_template.jinja"), source.into(), Map::new())
    }

    fn render(source: &str) -> Result<String, String> {
        let hello = [Message::user("hello <b> é")];
        template(source)
            .and_then(|t| t.render(&hello, true))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn python_methods_that_published_templates_call_work() {
        let source = "{{ messages[0].content.split(' ')[-1].strip() }} {{ messages[0]['role'].upper() }} \
                      {{ messages[0].content.startswith('hel') }} {{ messages[0].get('tool_calls', 'none') }}";
        assert_eq!(render(source).unwrap(), "é USER True none");
    }

    /// What the templates of Qwen3 and Llama 3 lean on beside that.
    #[test]
    fn slices_namespaces_tests_and_dates_work() {
        let source = "{%- set ns = namespace(last=9) %}{%- for m in messages[::-1] %}\
                      {%- if m.content is string and m.reasoning_content is not string %}\
                      {%- set ns.last = (messages|length - 1) - loop.index0 %}{%- endif %}{%- endfor %}\
                      {{- ns.last }}|{{ '<think>a</think>\n\nb'.split('</think>')[-1].lstrip('\n') }}|\
                      {{- enable_thinking is defined and enable_thinking is false }}|\
                      {{- tools is none }}|{{ bos_token is defined }}|{{ strftime_now('%Y')|int > 2024 }}";
        let template = template(source).unwrap();
        let off = json!({"enable_thinking": false});
        let hello = [Message::user("hello")];
        let text = template
            .render_with(&hello, true, off.as_object().unwrap())
            .unwrap();
        assert_eq!(text, "0|b|True|True|False|True");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        assert_eq!(
            render("{{ messages | tojson }}").unwrap(),
            r#"[{"role": "user", "content": "hello <b> é"}]"#
        );
        assert_eq!(render("{{ [1] | tojson(indent=2) }}").unwrap(), "[\n  1\n]");
    }

    #[test]
    fn blocks_swallow_the_white_space_that_transformers_swallows() {
        assert_eq!(
            render("{% if true %}\n  {% for m in messages %}\nx\n  {% endfor %}\n{% endif %}")
                .unwrap(),
            "x\n"
        );
    }

    #[test]
    fn a_template_that_complains_is_quoted() {
        let error = render("{{ raise_exception('roles must alternate') }}").unwrap_err();
        assert_eq!(
            error,
            "chat_template.jinja: chat template: line 1: invalid operation: roles must alternate"
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
        let recurses = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
        assert!(render(recurses).unwrap_err().contains("recursion"));
        let nests = "{% if true %}".repeat(10_000);
        assert!(render(&nests).is_err());
        let nests = format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(render(&nests).is_err());
    }

    #[test]
    fn the_default_of_named_templates_is_meant() {
        let config = json!({"chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]});
        assert_eq!(inside(config.as_object().unwrap()).unwrap(), "d");
    }
}
