//! The template between a model and an environment: it converts observations to text and actions to messages.
//!
//! It is one file with the blocks `rules`, `observation` and `action`. `default.jinja` has the defaults of missing
//! blocks.

use lapwing_model::{Jinja, JinjaOptions};
use serde_json::{Map, Value, json};

use super::protocol::{StepResult, quoted};
use crate::prompt_writer::check_blocks;

/// The maximum number of instructions of a block. A board of 64 x 64 cells takes about a hundred thousand.
const FUEL: u64 = 3_000_000;
/// The maximum number of bytes of a template.
pub(super) const LONGEST_SOURCE: u64 = 64 << 10;
/// The maximum number of bytes of a block's output. No model reads as much.
const LONGEST_TEXT: usize = 1 << 20;
/// Has the blocks in the order of `BLOCKS`.
const DEFAULT: &str = include_str!("default.jinja");
const BLOCKS: [&str; 3] = ["rules", "observation", "action"];
/// The variables of all blocks.
const VARIABLES: &str = "observation, reward, done, step, action, index, text";

#[derive(Debug)]
pub(super) struct ExternalTemplate(Jinja);

impl ExternalTemplate {
    /// Parses this source, or the default template. The error does not name the file.
    pub(crate) fn parse(source: Option<&str>) -> Result<ExternalTemplate, String> {
        let mut jinja = Jinja::new(JinjaOptions {
            max_instructions: FUEL,
            max_output: LONGEST_TEXT,
            trim_blocks: true,
            strict: false,
            python: false,
        });
        let source = source.unwrap_or_default();
        check_blocks(source, &BLOCKS)?;
        let bases = DEFAULT.split_inclusive("{% endblock %}");
        for (block, base) in BLOCKS.into_iter().zip(bases) {
            // Text outside blocks of an extending template is not rendered, so a template of a single block renders
            // only that block.
            let page = format!("{block} page");
            let base = base.trim_start().to_owned();
            let text = format!("{{% extends {page:?} %}}{source}");
            let added = jinja.add(&page, base).and_then(|()| jinja.add(block, text));
            let checked = added.and_then(|()| jinja.check_variables(source, VARIABLES));
            checked.map_err(|e| e.to_string())?;
        }
        Ok(ExternalTemplate(jinja))
    }

    /// Checks the expression that defines success.
    pub(crate) fn check_success(&self, expression: &str) -> Result<(), String> {
        let known = "return, reward, done, step, observation";
        let printed = format!("{{{{ {expression} }}}}");
        let checked = self.0.check_variables(&printed, known);
        checked.map_err(|e| e.to_string())
    }

    pub(crate) fn rules(&self) -> Result<String, String> {
        self.render("rules", json!({}))
    }

    /// Renders the text of a state.
    pub(crate) fn observation(&self, answer: &StepResult, step: usize) -> Result<String, String> {
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

    /// Renders the message for an action, or for an unreadable reply (`None`). Empty output means that nothing is sent.
    pub(crate) fn action(
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

    /// Returns whether an episode in this state is a success by this expression.
    pub(crate) fn succeeded(
        &self,
        expression: &str,
        answer: &StepResult,
        total: f64,
        step: usize,
    ) -> Result<bool, String> {
        let variables = json!({
            "observation": answer.observation,
            "reward": answer.reward,
            "return": total,
            "done": answer.done,
            "step": step,
        });
        let succeeded = self.0.is_true(expression, variables);
        succeeded.map_err(|e| e.to_string())
    }

    fn render(&self, block: &str, variables: Value) -> Result<String, String> {
        let rendered = self.0.render(block, variables);
        let text = rendered.map_err(|e| format!("its block `{block}` fails: {e}"))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }
}
