//! Jinja templates with limits on their source, their steps and their output.
//!
//! The memory and the time of one step cannot be limited from within; untrusted templates belong in the
//! [sandbox](crate::run_sandbox_if_requested).

use std::error::Error as _;
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde::Serialize;

/// Largest source of a template in bytes. The longest published chat templates have some 20,000.
pub(super) const MAX_JINJA_SOURCE: usize = 64 << 10;

/// The limits and the dialect of a [`Jinja`] environment.
#[derive(Debug, Clone, Copy)]
pub struct JinjaOptions {
    /// Instructions that one rendering may execute.
    pub max_instructions: u64,
    /// Bytes that one rendering may write.
    pub max_output: usize,
    /// Removes the newline after a block tag and the blanks before it, as transformers does.
    pub trim_blocks: bool,
    /// Makes an undefined variable an error instead of an empty text.
    pub strict: bool,
    /// Adds Python's string methods, and writes JSON with Python's spaces, as published chat templates expect.
    pub python: bool,
}

/// A set of named templates that may extend each other. HTML is not escaped.
#[derive(Debug, Clone)]
pub struct Jinja {
    pub(super) environment: Environment<'static>,
    options: JinjaOptions,
}

/// An error in a template: its line and the problem. It does not contain the file's name.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct JinjaError {
    /// The kind, for which a caller may add a hint.
    pub kind: ErrorKind,
    text: String,
}

impl Jinja {
    /// Returns an environment without templates. It has the filter `tojson(indent)`, which does not escape HTML.
    pub fn new(options: JinjaOptions) -> Jinja {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(options.trim_blocks)
            .lstrip_blocks(options.trim_blocks)
            .build();
        environment.set_syntax(syntax.expect("the standard delimiters are distinct"));
        environment.set_fuel(Some(options.max_instructions));
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        if options.strict {
            environment.set_undefined_behavior(UndefinedBehavior::Strict);
        }
        if options.python {
            environment
                .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        }
        let python = options.python;
        let filter = move |value: Value, first: Option<Value>, named: Kwargs| {
            to_json(&value, first, &named, python)
        };
        environment.add_filter("tojson", filter);
        Jinja {
            environment,
            options,
        }
    }

    /// Adds a template under a name.
    ///
    /// # Errors
    /// The source is longer than 64 KiB or has a syntax error.
    pub fn add(&mut self, name: &str, source: String) -> Result<(), JinjaError> {
        if source.len() > MAX_JINJA_SOURCE {
            return Err(JinjaError {
                kind: ErrorKind::InvalidOperation,
                text: format!("longer than {} KiB", MAX_JINJA_SOURCE >> 10),
            });
        }
        let added = self.environment.add_template_owned(name.to_owned(), source);
        added.map_err(|e| self.error(&e))
    }

    /// Renders a template.
    ///
    /// # Errors
    /// The template fails or exceeds a limit.
    pub fn render(&self, name: &str, variables: impl Serialize) -> Result<String, JinjaError> {
        Ok(self.render_blocks(name, variables, &[])?.0)
    }

    /// Renders a template and some of its blocks: the whole text, and those of the blocks.
    ///
    /// # Errors
    /// The template fails, exceeds a limit, or has no block of a requested name.
    pub fn render_blocks(
        &self,
        name: &str,
        variables: impl Serialize,
        blocks: &[&str],
    ) -> Result<(String, Vec<String>), JinjaError> {
        let rendered = || {
            let most = self.options.max_output;
            let mut text = LimitedText::new(most);
            let template = self.environment.get_template(name)?;
            let mut rendered = template.render_captured_to(Serde(variables), &mut text)?;
            let block = |name: &&str| {
                let mut text = LimitedText::new(most);
                rendered.with_state_mut(|state| state.render_block_to_write(name, &mut text))?;
                Ok(text.into_string())
            };
            let blocks = blocks.iter().map(block).collect::<Result<_, Error>>()?;
            drop(rendered);
            Ok((text.into_string(), blocks))
        };
        rendered().map_err(|e| self.error(&e))
    }

    /// Returns whether an expression is true of some variables.
    ///
    /// # Errors
    /// The expression has a syntax error, fails or exceeds a limit.
    pub fn is_true(&self, expression: &str, variables: impl Serialize) -> Result<bool, JinjaError> {
        let compiled = self.environment.compile_expression(expression);
        let value = compiled.and_then(|expression| expression.eval(Serde(variables)));
        value.map(|v| v.is_true()).map_err(|e| self.error(&e))
    }

    /// Checks that the source of a template uses no variables but these (such as `a, b`), its own, and global ones.
    ///
    /// # Errors
    /// It uses another one, or has a syntax error.
    pub fn check_variables(&self, source: &str, known: &str) -> Result<(), JinjaError> {
        let template = self.environment.template_from_str(source);
        let used = template.map_err(|e| self.error(&e))?;
        let mut used = used.undeclared_variables(false);
        // It also has those that are set in another branch.
        used.retain(|name| !source.contains(&format!("set {name}")));
        used.retain(|name| self.environment.globals().all(|(global, _)| global != name));
        used.retain(|name| known.split(", ").all(|known| known != name));
        let Some(name) = used.into_iter().min() else {
            return Ok(());
        };
        let kind = ErrorKind::UndefinedError;
        let text = format!("there is no variable `{name}`; they are {known}");
        Err(JinjaError { kind, text })
    }

    fn error(&self, error: &Error) -> JinjaError {
        let line = error.line().map(|line| format!("line {line}: "));
        let source = error.source().and_then(|e| e.downcast_ref::<io::Error>());
        let problem = match (error.kind(), source, error.detail()) {
            (ErrorKind::OutOfFuel, ..) => {
                let most = self.options.max_instructions;
                format!("it does not come to an end (stopped after {most} instructions)")
            }
            (_, Some(limit), _) => limit.to_string(),
            (kind, None, Some(detail)) => format!("{kind}: {detail}"),
            (kind, None, None) => kind.to_string(),
        };
        JinjaError {
            kind: error.kind(),
            text: line.unwrap_or_default() + &problem,
        }
    }
}

/// A text that refuses to grow beyond a limit.
struct LimitedText {
    bytes: Vec<u8>,
    most: usize,
}

impl LimitedText {
    fn new(most: usize) -> LimitedText {
        LimitedText {
            bytes: Vec::new(),
            most,
        }
    }

    fn into_string(self) -> String {
        String::from_utf8(self.bytes).expect("a template writes text")
    }
}

impl io::Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            let problem = format!("the text is longer than {} MiB", self.most >> 20);
            return Err(io::Error::other(problem));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The filter `tojson(ensure_ascii=False, indent=...)` of transformers. A number in the first place is the indent.
fn to_json(
    value: &Value,
    first: Option<Value>,
    named: &Kwargs,
    python: bool,
) -> Result<String, Error> {
    let failed = |e: String| Error::new(ErrorKind::InvalidOperation, e);
    let mut indent = named.get::<Option<usize>>("indent")?;
    let mut ensure_ascii = named.get::<Option<bool>>("ensure_ascii")?;
    match first {
        Some(first) if first.kind() == ValueKind::Bool => ensure_ascii = Some(first.is_true()),
        Some(first) => indent = Some(first.try_into()?),
        None => (),
    }
    named.assert_all_used()?;
    if ensure_ascii == Some(true) {
        return Err(failed(
            "tojson: ensure_ascii=true is not supported".to_owned(),
        ));
    }
    let mut bytes = Vec::new();
    let spaces = " ".repeat(indent.unwrap_or(0).min(64));
    let written = match indent {
        Some(_) => {
            let pretty = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            let mut json = serde_json::Serializer::with_formatter(&mut bytes, pretty);
            value.serialize(&mut json)
        }
        None if python => {
            let mut json = serde_json::Serializer::with_formatter(&mut bytes, PythonSpaces);
            value.serialize(&mut json)
        }
        None => value.serialize(&mut serde_json::Serializer::new(&mut bytes)),
    };
    written.map_err(|e| failed(e.to_string()))?;
    String::from_utf8(bytes).map_err(|e| failed(e.to_string()))
}

/// JSON in one line with a space after each comma and colon.
struct PythonSpaces;

impl serde_json::ser::Formatter for PythonSpaces {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn jinja(strict: bool, python: bool) -> Jinja {
        Jinja::new(JinjaOptions {
            max_instructions: 10_000,
            max_output: 1 << 20,
            trim_blocks: false,
            strict,
            python,
        })
    }

    fn render(jinja: &Jinja, source: &str) -> Result<String, JinjaError> {
        let mut jinja = jinja.clone();
        jinja.add("test", source.to_owned())?;
        jinja.render("test", json!({"word": "<é>"}))
    }

    #[test]
    fn json_has_the_spaces_of_its_dialect() {
        let (plain, python) = (jinja(false, false), jinja(false, true));
        let list = "{{ {'a': [1, word]} | tojson }}";
        assert_eq!(render(&plain, list).unwrap(), r#"{"a":[1,"<é>"]}"#);
        assert_eq!(render(&python, list).unwrap(), r#"{"a": [1, "<é>"]}"#);
        for indented in ["{{ [1] | tojson(2) }}", "{{ [1] | tojson(indent=2) }}"] {
            assert_eq!(render(&plain, indented).unwrap(), "[\n  1\n]");
            assert_eq!(render(&python, indented).unwrap(), "[\n  1\n]");
        }
        assert_eq!(
            render(&python, "{{ 'é' | tojson(false) }}").unwrap(),
            "\"é\""
        );
        assert!(render(&python, "{{ 'é' | tojson(ensure_ascii=true) }}").is_err());
    }

    #[test]
    fn blocks_are_rendered_one_by_one() {
        let mut jinja = jinja(true, false);
        let base = "{% block a %}1{% endblock %}{% block b %}2{% endblock %}";
        jinja.add("base", base.to_owned()).unwrap();
        let own = "{% extends 'base' %}{% block b %}{{ word }}{% endblock %}";
        jinja.add("own", own.to_owned()).unwrap();
        let rendered = jinja.render_blocks("own", json!({"word": "<"}), &["b", "a"]);
        let (whole, blocks) = rendered.unwrap();
        assert_eq!((&*whole, &*blocks), ("1<", &["<".into(), "1".into()][..]));
        let unknown = jinja.render_blocks("own", json!({"word": "<"}), &["c"]);
        assert_eq!(unknown.unwrap_err().kind, ErrorKind::UnknownBlock);
    }

    #[test]
    fn errors_have_a_kind_and_a_line() {
        let kind = |source: &str| render(&jinja(true, false), source).unwrap_err().kind;
        assert_eq!(kind("{{ wrod }}"), ErrorKind::UndefinedError);
        assert_eq!(kind("{% extends 'x' %}"), ErrorKind::TemplateNotFound);
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        let error = render(&jinja(false, false), endless).unwrap_err();
        assert_eq!(error.kind, ErrorKind::OutOfFuel);
        let wanted = "line 1: it does not come to an end (stopped after 10000 instructions)";
        assert_eq!(error.to_string(), wanted);
        let long = render(&jinja(false, false), "{{ word * 999999 }}").unwrap_err();
        assert_eq!(long.to_string(), "the text is longer than 1 MiB");
        let source = "x".repeat(MAX_JINJA_SOURCE + 1);
        let large = render(&jinja(false, false), &source).unwrap_err();
        assert_eq!(large.to_string(), "longer than 64 KiB");
    }

    #[test]
    fn expressions_are_true_or_false() {
        let jinja = jinja(false, false);
        assert!(jinja.is_true("a > 1 and not b", json!({"a": 2})).unwrap());
        assert!(!jinja.is_true("b", json!({})).unwrap());
    }

    #[test]
    fn a_variable_is_known_or_its_own() {
        let jinja = jinja(false, false);
        for good in [
            "{{ word.length }} {{ range(3) }} {{ {'a': {'b': word}} }}",
            "{% if word %}{% set n = 1 %}{% else %}{% set n = 2 %}{% endif %}{{ n }}",
            "{% macro m(a) %}{{ a }}{% endmacro %}{% block b %}{{ super() }}{{ self.c() }}{% endblock %}",
            "{% for a, b in word %}{{ loop.index }}{{ a }}{{ b }}{% endfor %}",
        ] {
            jinja.check_variables(good, "word").unwrap();
        }
        assert!(jinja.check_variables("{{ word > }}", "word").is_err());
        let wrong = jinja.check_variables("{{ wrod.length }}", "word, step");
        let wanted = "there is no variable `wrod`; they are word, step";
        assert_eq!(wrong.unwrap_err().to_string(), wanted);
    }
}
