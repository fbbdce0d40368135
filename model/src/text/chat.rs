//! The chat template of a checkpoint: a conversation as the text that the model was taught to continue.
//!
//! Templates are Jinja programs written for Python. They run here as transformers runs them (`trim_blocks`,
//! `lstrip_blocks`, Python's string methods, `raise_exception`, `strftime_now`, its own `tojson`), but with limits on
//! their length, their depth, the steps and the time they may take and the text they may write. (What a step may hold in
//! memory is bounded by that time only, and a namespace that holds itself still ends the process when it is printed.)

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::clock;
use super::worker::{Unfinished, Worker};
use crate::ModelError;
use crate::files::disk;
use crate::files::fields::read_object;

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

/// A checkpoint's template, parsed, with the special tokens that it may print. It runs on a thread of its own, which ends
/// when this is dropped; those who share it wait for each other.
pub struct ChatTemplate {
    path: std::path::PathBuf,
    environment: Arc<Environment<'static>>,
    worker: Worker,
    /// whether it has come to an end before
    proven: AtomicBool,
    /// What the template finds beside the conversation: the special tokens, and what was set.
    variables: Map<String, Value>,
}

/// Instructions a template may execute; the longest published ones need about ten thousand for a short conversation.
const FUEL: u64 = 3_000_000;
/// Bytes of a template; the longest published ones have some 20,000. Parsing goes as deep as a source is long.
const LONGEST_SOURCE: usize = 64 << 10;
/// ... and this is deep enough.
const STACK: usize = 256 << 20;
/// Published templates take milliseconds. This bounds what a step may do to memory, too, which nothing else does.
const LONGEST_TIME: Duration = Duration::from_secs(1);
/// One that has come to an end before gets longer: a long run must not die of a machine that stalls for a moment.
const LONGEST_TIME_LATER: Duration = Duration::from_secs(60);
/// Bytes of a rendered conversation; the longest contexts of published models are a few megabytes of text.
const LONGEST: usize = 64 << 20;
const NAME: &str = "chat_template";

impl ChatTemplate {
    /// Reads `chat_template.jinja`, or else the template inside `tokenizer_config.json`.
    ///
    /// # Errors
    /// If there is none, or it cannot be parsed.
    pub fn load(dir: &Path) -> Result<ChatTemplate, ModelError> {
        let beside = dir.join("chat_template.jinja");
        let config_path = dir.join("tokenizer_config.json");
        let config = match disk::exists(&config_path) {
            true => read_object(&config_path)?,
            false => Map::new(),
        };
        let special_tokens = special_tokens(&config);
        if disk::exists(&beside) {
            return ChatTemplate::new(
                &beside,
                disk::read_text(&beside, LONGEST_SOURCE as u64)?,
                special_tokens,
            );
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
        variables: Map<String, Value>,
    ) -> Result<ChatTemplate, ModelError> {
        let wrong = |problem: String| ModelError::file(path, format!("chat template: {problem}"));
        if source.len() > LONGEST_SOURCE {
            return Err(wrong(format!("longer than {} KiB", LONGEST_SOURCE >> 10)));
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
        let worker = Worker::new(STACK);
        let parsed = attempt(&worker, LONGEST_TIME, move || {
            environment.add_template_owned(NAME, source)?;
            Ok(environment)
        });
        let environment = Arc::new(parsed.map_err(wrong)?);
        Ok(ChatTemplate {
            path: path.to_owned(),
            environment,
            worker,
            proven: AtomicBool::new(false),
            variables,
        })
    }

    /// Sets variables for the template, such as Qwen3's `enable_thinking`, in all that is rendered from now on.
    pub fn set(&mut self, variables: Map<String, Value>) {
        self.variables.extend(variables);
    }

    /// The text of a conversation; with `add_generation_prompt` it ends where the assistant's reply begins. A message
    /// is a [`Message`], or whatever else the template understands (tool calls, contents in parts).
    ///
    /// # Errors
    /// What the template complains about, or that it does not come to an end.
    pub fn render(
        &self,
        messages: &[impl Serialize],
        add_generation_prompt: bool,
    ) -> Result<String, ModelError> {
        let wrong =
            |problem: String| ModelError::file(&self.path, format!("chat template: {problem}"));
        let mut context = Map::new();
        context.insert("messages".into(), json!(messages));
        context.insert("add_generation_prompt".into(), json!(add_generation_prompt));
        context.insert("tools".into(), Value::Null);
        context.insert("documents".into(), Value::Null);
        context.extend(self.variables.clone());
        let environment = self.environment.clone();
        let limit = match self.proven.load(Ordering::Relaxed) {
            true => LONGEST_TIME_LATER,
            false => LONGEST_TIME,
        };
        let rendered = attempt(&self.worker, limit, move || {
            let mut text = Limited(Vec::new());
            let template = environment.get_template(NAME)?;
            template.render_captured_to(Serde(context), &mut text)?;
            Ok(text.0)
        });
        let text = rendered.map_err(wrong)?;
        self.proven.store(true, Ordering::Relaxed);
        String::from_utf8(text).map_err(|e| wrong(e.to_string()))
    }
}

/// Does some work with a stack that a source within the limits cannot exhaust, for as long as it may take. What takes
/// longer is left behind; whoever loaded such a template has no use for the rest of this process.
fn attempt<T: Send + 'static>(
    worker: &Worker,
    limit: Duration,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, String> {
    let done = worker.run(limit, || work().map_err(|e| told(&e)));
    done.unwrap_or_else(|unfinished| {
        Err(match unfinished {
            Unfinished::NoRoom(e) => format!("there is no room to run it: {e}"),
            Unfinished::TooLong => {
                let seconds = limit.as_secs();
                format!("it does not come to an end (stopped after {seconds} s)")
            }
            Unfinished::Panicked => "it breaks its engine".to_owned(),
        })
    })
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
        if self.0.len() + bytes.len() > LONGEST {
            let problem = format!("the text is longer than {} MiB", LONGEST >> 20);
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
        let mut template = template(source).unwrap();
        let off = json!({"enable_thinking": false});
        template.set(off.as_object().unwrap().clone());
        let text = template.render(&[Message::user("hello")], true).unwrap();
        assert_eq!(text, "0|b|True|True|False|True");
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
        let floods = "{% for i in range(9999) %}{{ messages[0].content * 9999 }}{% endfor %}";
        assert!(render(floods).unwrap_err().contains("longer than 64 MiB"));
        let recurses = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
        assert!(render(recurses).unwrap_err().contains("recursion"));
        // Few steps, each of them slow. (The thread goes on until the tests are over.)
        let slow = "{% set s = 'x' * 9999999 %}{% for i in range(9999) %}{% for j in range(9) %}\
                    {% if s|upper|length %}{% endif %}{% endfor %}{% endfor %}";
        assert!(render(slow).unwrap_err().contains("stopped after 1 s"));
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
        assert!(render(&long).unwrap_err().contains("longer than 64 KiB"));
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
