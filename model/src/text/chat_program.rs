//! A chat template that runs in this process.
//!
//! Chat templates are Jinja programs written for Python. They run here as in transformers (`trim_blocks`,
//! `lstrip_blocks`, Python's string methods, `raise_exception`, `strftime_now`, its own `tojson`).

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::Offset;
use minijinja::{Error, ErrorKind};
use serde_json::{Map, Value, json};
use web_time::{SystemTime, UNIX_EPOCH};

use super::codec::MAX_TEXT;
use super::gguf_text;
use super::jinja::{Jinja, JinjaOptions, MAX_JINJA_SOURCE};
use crate::ModelError;
use crate::files::disk;
use crate::files::fields::read_object;
use crate::files::gguf::{file_of_model, is_gguf};

/// The longest published templates execute about ten thousand instructions for a short conversation.
const OPTIONS: JinjaOptions = JinjaOptions {
    max_instructions: 3_000_000,
    max_output: MAX_TEXT,
    trim_blocks: true,
    strict: false,
    python: true,
};
const NAME: &str = "chat_template";

/// The tokens of `tokenizer_config.json` that a template may print.
pub(crate) const SPECIAL_TOKENS: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];

/// The fields of `tokenizer_config.json`, and the chat template with its file.
pub(super) struct TextConfig {
    pub(super) fields: Map<String, Value>,
    pub(super) template: Option<(PathBuf, String)>,
}

impl TextConfig {
    pub(super) fn read(dir: &Path) -> Result<TextConfig, ModelError> {
        let own_file = dir.join("chat_template.jinja");
        let config_path = file_of_model(dir, "tokenizer_config.json");
        let fields = match disk::exists(&config_path) {
            _ if is_gguf(dir) => gguf_text::tokenizer_config(dir)?,
            true => read_object(&config_path)?,
            false => Map::new(),
        };
        let template = match disk::exists(&own_file) {
            true => {
                let source = disk::read_text(&own_file, MAX_JINJA_SOURCE as u64)?;
                Some((own_file, source))
            }
            false => template_in(&fields).map(|source| (config_path, source)),
        };
        Ok(TextConfig { fields, template })
    }
}

/// A parsed chat template.
#[derive(Debug)]
pub(crate) struct ChatProgram {
    pub(crate) path: PathBuf,
    pub(crate) special_tokens: Map<String, Value>,
    jinja: Jinja,
}

impl ChatProgram {
    /// Reads `chat_template.jinja`, or else the template in `tokenizer_config.json` or in a GGUF file.
    pub(crate) fn load(dir: &Path) -> Result<ChatProgram, ModelError> {
        let TextConfig { fields, template } = TextConfig::read(dir)?;
        let Some((path, source)) = template else {
            let problem = match is_gguf(dir) {
                true => "no chat template: tokenizer.chat_template is missing",
                false => {
                    "no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json"
                }
            };
            return Err(ModelError::file(dir, problem));
        };
        let jinja = parse(source).map_err(|e| template_error(&path, e))?;
        Ok(ChatProgram {
            path,
            special_tokens: special_tokens(&fields),
            jinja,
        })
    }

    /// Renders the template with some variables, which include the messages.
    pub(crate) fn render(&self, variables: &Map<String, Value>) -> Result<String, ModelError> {
        let text = self.jinja.render(NAME, variables);
        text.map_err(|e| template_error(&self.path, e))
    }
}

pub(crate) fn template_error(path: &Path, problem: impl std::fmt::Display) -> ModelError {
    ModelError::file(path, format!("chat template: {problem}"))
}

fn parse(source: String) -> Result<Jinja, super::jinja::JinjaError> {
    let mut jinja = Jinja::new(OPTIONS);
    jinja
        .environment
        .add_function("raise_exception", raise_exception);
    jinja.environment.add_function("strftime_now", strftime_now);
    jinja.add(NAME, without_generation_tags(source))?;
    Ok(jinja)
}

/// Replaces the tags with which transformers marks the assistant's tokens. They change no text.
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

/// Returns the template of `tokenizer_config.json`: a text, or a list of named ones with a "default".
fn template_in(config: &Map<String, Value>) -> Option<String> {
    match config.get("chat_template")? {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|t| t["name"] == "default")?;
            default["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// Returns `bos_token` and the like: texts, or objects with the text as `content`.
pub(super) fn special_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let text = |value: &Value| {
        let text = value.as_str().or_else(|| value["content"].as_str());
        text.map(str::to_owned)
    };
    let found = SPECIAL_TOKENS
        .iter()
        .filter_map(|&name| Some((name.to_owned(), json!(text(config.get(name)?)?))));
    found.collect()
}

fn raise_exception(message: String) -> Result<minijinja::Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Writes today's date in UTC. transformers uses local time, which would make a run depend on where it runs.
fn strftime_now(format: String) -> Result<String, Error> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since_1970.map_or(0, |time| time.as_secs() as i64);
    strftime(&format, seconds).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
}

/// Formats a time, in seconds since 1970, as C's `strftime` does.
fn strftime(format: &str, seconds: i64) -> Result<String, String> {
    let time = Timestamp::from_second(seconds).map_err(|e| e.to_string())?;
    let date = Offset::UTC.to_datetime(time);
    strtime::format(format, date).map_err(|e| format!("strftime_now: {e}"))
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
        let rendered = parse(source.to_owned()).and_then(|jinja| jinja.render(NAME, variables));
        rendered.map_err(|e| e.to_string())
    }

    #[test]
    fn python_methods_that_published_templates_call_work() {
        let source = "{{ messages[0].content.split(' ')[-1].strip() }} {{ messages[0]['role'].upper() }} \
                      {{ messages[0].content.startswith('hel') }} {{ messages[0].get('tool_calls', 'none') }}";
        assert_eq!(render(source).unwrap(), "é USER True none");
    }

    /// The templates of Qwen3 and Llama 3 use these.
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
    }

    #[test]
    fn dates_are_written_as_c_writes_them() {
        let leap_day = 1_709_210_096; // date -u -d @1709210096
        assert_eq!(
            strftime("%a %d %b %Y %H:%M:%S", leap_day).unwrap(),
            "Thu 29 Feb 2024 12:34:56"
        );
        assert_eq!(
            strftime("%A, %d %B %y%%", 0).unwrap(),
            "Thursday, 01 January 70%"
        );
        assert!(strftime("%E", 0).is_err());
        assert!(strftime("%Y", i64::MAX).is_err());
    }

    #[test]
    fn white_space_of_blocks_is_trimmed_as_in_transformers() {
        assert_eq!(
            render("{% if true %}\n  {% for m in messages %}\nx\n  {% endfor %}\n{% endif %}")
                .unwrap(),
            "x\n"
        );
    }

    #[test]
    fn the_message_of_a_failing_template_is_quoted() {
        let error = render("{{ raise_exception('roles must alternate') }}").unwrap_err();
        assert_eq!(error, "line 1: invalid operation: roles must alternate");
    }

    #[test]
    fn generation_tags_change_nothing() {
        let source = "{% for m in messages %}\n{%- generation -%}\n{{ m.content }}\n{%- endgeneration %}\n{% endfor %}";
        assert_eq!(render(source).unwrap(), "hello <b> é");
    }

    #[test]
    fn the_default_of_named_templates_is_used() {
        let config = json!({"chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]});
        assert_eq!(template_in(config.as_object().unwrap()).unwrap(), "d");
    }
}
