//! A chat template as a program: parsed, and rendered as transformers renders it.
//!
//! Templates are Jinja programs written for Python. They run here as transformers runs them (`trim_blocks`,
//! `lstrip_blocks`, Python's string methods, `raise_exception`, `strftime_now`, its own `tojson`), but with limits on
//! their length, their depth, the steps they may take and the text they may write. What a step holds in memory and how
//! long it takes cannot be bounded from within; who runs a stranger's template sees to that.

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::clock;
use super::codec::LONGEST_TEXT;
use crate::ModelError;
use crate::files::disk;
use crate::files::fields::read_object;

/// Instructions a template may execute; the longest published ones need about ten thousand for a short conversation.
const FUEL: u64 = 3_000_000;
/// Bytes of a template; the longest published ones have some 20,000. Parsing goes as deep as a source is long.
pub(crate) const LONGEST_SOURCE: usize = 64 << 10;
const NAME: &str = "chat_template";

/// The tokens that `tokenizer_config.json` may name for a template to print.
pub(crate) const SPECIAL_TOKENS: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];

/// A template that was read and not yet looked at.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) special_tokens: Map<String, Value>,
}

impl Source {
    /// Reads `chat_template.jinja`, or else the template inside `tokenizer_config.json`.
    pub(crate) fn read(dir: &Path) -> Result<Source, ModelError> {
        let beside = dir.join("chat_template.jinja");
        let config_path = dir.join("tokenizer_config.json");
        let config = match disk::exists(&config_path) {
            true => read_object(&config_path)?,
            false => Map::new(),
        };
        let (path, text) = if disk::exists(&beside) {
            let text = disk::read_text(&beside, LONGEST_SOURCE as u64)?;
            (beside, text)
        } else if let Some(text) = inside(&config) {
            (config_path, text)
        } else {
            let problem = "no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json";
            return Err(ModelError::file(dir, problem));
        };
        Ok(Source {
            path,
            text,
            special_tokens: special_tokens(&config),
        })
    }
}

/// A template, parsed.
pub(crate) struct Template(Environment<'static>);

impl Template {
    /// The error says what is wrong, and not in which file.
    pub(crate) fn parse(source: String) -> Result<Template, String> {
        if source.len() > LONGEST_SOURCE {
            return Err(format!("longer than {} KiB", LONGEST_SOURCE >> 10));
        }
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
        let source = without_generation_tags(source);
        let added = environment.add_template_owned(NAME, source);
        added.map_err(|e| told(&e))?;
        Ok(Template(environment))
    }

    /// What it makes of these variables, the messages among them.
    pub(crate) fn render(&self, variables: Map<String, Value>) -> Result<String, String> {
        let mut text = Limited(Vec::new());
        let template = self.0.get_template(NAME).map_err(|e| told(&e))?;
        let rendered = template.render_captured_to(Serde(variables), &mut text);
        rendered.map_err(|e| told(&e))?;
        String::from_utf8(text.0).map_err(|e| e.to_string())
    }
}

/// transformers marks what the assistant said with a tag of its own, which means nothing here.
fn without_generation_tags(source: String) -> String {
    let mut source = source;
    for (tag, stand_in) in [("generation", "if true"), ("endgeneration", "endif")] {
        let regex = fancy_regex::Regex::new(&format!(r"\{{%([-+]?)\s*{tag}\s*([-+]?)%\}}"));
        let regex = regex.expect("a fixed pattern");
        let replaced = regex.replace_all(&source, format!("{{%$1 {stand_in} $2%}}"));
        source = replaced.into_owned();
    }
    source
}

/// A text that may not grow without end.
struct Limited(Vec<u8>);

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST_TEXT {
            let problem = format!("the text is longer than {} MiB", LONGEST_TEXT >> 20);
            return Err(std::io::Error::other(problem));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
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
    let text = |value: &Value| {
        value
            .as_str()
            .or_else(|| value["content"].as_str())
            .map(str::to_owned)
    };
    let found = SPECIAL_TOKENS
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
    if let Some(io) =
        std::error::Error::source(error).and_then(|e| e.downcast_ref::<std::io::Error>())
    {
        return format!("{line}{io}");
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
    let now = jiff::Timestamp::now().as_second();
    clock::strftime(&format, now).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
}

/// `json.dumps(value, ensure_ascii=False, indent=...)` as transformers calls it; Jinja's own would escape HTML.
fn tojson(value: Jinja, ensure_ascii: Option<bool>, kwargs: Kwargs) -> Result<String, Error> {
    let indent = kwargs.get::<Option<usize>>("indent")?;
    let ensure_ascii = ensure_ascii.or(kwargs.get::<Option<bool>>("ensure_ascii")?);
    kwargs.assert_all_used()?;
    if ensure_ascii == Some(true) {
        let problem = "tojson: ensure_ascii=true is not supported";
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
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

    fn render(source: &str) -> Result<String, String> {
        let variables = json!({
            "messages": [{"role": "user", "content": "hello <b> é"}],
            "tools": null,
            "enable_thinking": false,
        });
        let template = Template::parse(source.to_owned())?;
        template.render(variables.as_object().unwrap().clone())
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
        assert_eq!(render(source).unwrap(), "0|b|True|True|False|True");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        assert_eq!(
            render("{{ messages | tojson }}").unwrap(),
            r#"[{"role": "user", "content": "hello <b> é"}]"#
        );
        assert_eq!(render("{{ [1] | tojson(indent=2) }}").unwrap(), "[\n  1\n]");
        assert_eq!(render("{{ 'é' | tojson(false) }}").unwrap(), "\"é\"");
        assert!(render("{{ 'é' | tojson(ensure_ascii=true) }}").is_err());
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
        assert_eq!(error, "line 1: invalid operation: roles must alternate");
    }

    #[test]
    fn marks_around_generations_mean_nothing() {
        let source = "{% for m in messages %}\n{%- generation -%}\n{{ m.content }}\n{%- endgeneration %}\n{% endfor %}";
        assert_eq!(render(source).unwrap(), "hello <b> é");
    }

    #[test]
    fn the_default_of_named_templates_is_meant() {
        let config = json!({"chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]});
        assert_eq!(inside(config.as_object().unwrap()).unwrap(), "d");
    }
}
