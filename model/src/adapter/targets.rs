//! The linear layers that an adapter changes, in the format of PEFT's `target_modules`.

use fancy_regex::Regex;
use serde::{Deserialize, Serialize};

use crate::{Linear, ModelConfig, ModelError};

/// The linear layers that get a low-rank term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"all-linear\", a list of names, or a pattern"
)]
pub enum Targets {
    /// A regular expression for the full name of a layer, such as `.*\.[12]\.mlp\..*`; or `all-linear`, which is all seven layers
    /// of every block without the head.
    Pattern(String),
    /// Names of kinds, such as `q_proj`; full names, such as `model.layers.0.mlp.up_proj`; or the last parts of full names.
    Names(Vec<String>),
}

const ALL_LINEAR: &str = "all-linear";

impl Default for Targets {
    fn default() -> Targets {
        Targets::Pattern(ALL_LINEAR.to_owned())
    }
}

impl<const N: usize> From<[Linear; N]> for Targets {
    fn from(kinds: [Linear; N]) -> Targets {
        Targets::Names(kinds.map(|kind| kind.name().to_owned()).to_vec())
    }
}

impl Targets {
    /// Checks the targets as far as possible without a model.
    ///
    /// # Errors
    /// There is no target, a name that no linear layer has, or an invalid pattern.
    pub fn check(&self) -> Result<(), ModelError> {
        let wrong = |found: &str, problem: String| Err(ModelError::targets(found, problem));
        match self {
            Targets::Pattern(pattern) if pattern == ALL_LINEAR => Ok(()),
            Targets::Pattern(pattern) => full_match(pattern).map(|_| ()),
            Targets::Names(names) if names.is_empty() => wrong("[]", "no layer is named".into()),
            Targets::Names(names) => {
                let known = |name: &&String| {
                    let kind = name.rsplit('.').next().unwrap_or_default();
                    Linear::parse(kind).is_none()
                };
                match names.iter().find(known) {
                    None => Ok(()),
                    Some(name) => wrong(
                        name,
                        format!("there is no such layer; there are {}", kinds()),
                    ),
                }
            }
        }
    }

    /// Returns the layers of a model that the targets select: index of the block and kind, block by block, the head last.
    pub(crate) fn layers(&self, config: &ModelConfig) -> Result<Vec<(usize, Linear)>, ModelError> {
        self.check()?;
        let all = every_layer(config);
        let nothing =
            |found: &str| ModelError::targets(found, "this model has no linear layer of that name");
        match self {
            Targets::Pattern(pattern) if pattern == ALL_LINEAR => {
                let blocks = all.into_iter().filter(|(_, kind)| *kind != Linear::Head);
                Ok(blocks.collect())
            }
            Targets::Pattern(pattern) => {
                let regex = full_match(pattern)?;
                let mut found = Vec::new();
                for (layer, kind) in all {
                    if matches(&regex, &kind.module(layer))? {
                        found.push((layer, kind));
                    }
                }
                match found.is_empty() {
                    true => Err(nothing(pattern)),
                    false => Ok(found),
                }
            }
            Targets::Names(names) => {
                let named = |name: &str, (layer, kind): (usize, Linear)| {
                    let module = kind.module(layer);
                    let rest = module.strip_suffix(name);
                    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                };
                let idle = |name: &&String| !all.iter().any(|&place| named(name, place));
                if let Some(name) = names.iter().find(idle) {
                    return Err(nothing(name));
                }
                let meant = |place: &(usize, Linear)| names.iter().any(|name| named(name, *place));
                Ok(all.into_iter().filter(meant).collect())
            }
        }
    }

    /// Returns the shortest list of names that selects exactly these layers: their kinds if every block has the same ones, else
    /// their full names.
    pub(crate) fn of(layers: &[(usize, Linear)], config: &ModelConfig) -> Targets {
        let mut kinds: Vec<Linear> = layers.iter().map(|(_, kind)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let all = every_layer(config);
        let complete = all
            .iter()
            .filter(|(_, kind)| kinds.contains(kind))
            .all(|place| layers.contains(place));
        let names = match complete {
            true => kinds.iter().map(|kind| kind.name().to_owned()).collect(),
            false => layers
                .iter()
                .map(|(layer, kind)| kind.module(*layer))
                .collect(),
        };
        Targets::Names(names)
    }
}

pub(crate) fn every_layer(config: &ModelConfig) -> Vec<(usize, Linear)> {
    let blocks = (0..config.layers).flat_map(|layer| Linear::BLOCK.map(|kind| (layer, kind)));
    blocks.chain([(0, Linear::Head)]).collect()
}

fn kinds() -> String {
    let mut names: Vec<&str> = Linear::BLOCK.map(Linear::name).to_vec();
    names.push(Linear::Head.name());
    names.join(", ")
}

/// Compiles a pattern that must match a whole name, as Python's `re.fullmatch`.
fn full_match(pattern: &str) -> Result<Regex, ModelError> {
    compile(&format!("^(?:{pattern})$"), pattern)
}

/// Compiles a key of PEFT's `rank_pattern` and `alpha_pattern`, which matches the end of a name after a dot.
pub(crate) fn pattern_key(key: &str) -> Result<Regex, ModelError> {
    compile(&format!(r"^(?:.*\.)?(?:{key})$"), key)
}

fn compile(regex: &str, pattern: &str) -> Result<Regex, ModelError> {
    let wrong = |e: fancy_regex::Error| {
        let problem = format!("not a regular expression: {e}");
        ModelError::targets(pattern, problem)
    };
    Regex::new(regex).map_err(wrong)
}

/// Returns whether a name matches. The engine gives up patterns that would take forever, which is an error.
pub(crate) fn matches(regex: &Regex, name: &str) -> Result<bool, ModelError> {
    let matched = regex.is_match(name);
    matched.map_err(|e| ModelError::targets(regex.as_str(), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelShape;

    fn config() -> ModelConfig {
        ModelConfig::qwen2(ModelShape {
            vocab: 100,
            width: 64,
            layers: 12,
            heads: 4,
            kv_heads: 2,
            mlp_width: 128,
        })
    }

    fn modules(targets: &Targets) -> Vec<String> {
        let layers = targets.layers(&config()).unwrap();
        layers.iter().map(|(l, kind)| kind.module(*l)).collect()
    }

    fn names(names: &[&str]) -> Targets {
        Targets::Names(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn all_linear_leaves_the_head_out() {
        let all = modules(&Targets::default());
        assert_eq!(all.len(), 7 * 12);
        assert!(!all.contains(&"lm_head".to_owned()));
    }

    #[test]
    fn names_are_ends_of_full_names() {
        assert_eq!(modules(&names(&["q_proj"])).len(), 12);
        assert_eq!(modules(&names(&["mlp.up_proj", "lm_head"])).len(), 13);
        // block 1, not block 11
        assert_eq!(
            modules(&names(&["layers.1.mlp.up_proj"])),
            ["model.layers.1.mlp.up_proj"]
        );
    }

    #[test]
    fn a_pattern_matches_the_whole_name() {
        let pattern = |text: &str| modules(&Targets::Pattern(text.to_owned()));
        assert_eq!(pattern(r".*\.(q|v)_proj").len(), 24);
        assert_eq!(
            pattern(r"(?!.*self_attn).*\.3\..*"),
            [
                "model.layers.3.mlp.gate_proj",
                "model.layers.3.mlp.up_proj",
                "model.layers.3.mlp.down_proj"
            ]
        );
        assert!(Targets::Pattern("q_proj".into()).layers(&config()).is_err());
    }

    #[test]
    fn targets_without_layers_are_refused() {
        let error = |targets: &Targets| targets.layers(&config()).unwrap_err().to_string();
        assert_eq!(
            error(&names(&["q_proj", "c_attn"])),
            "target modules \"c_attn\": there is no such layer; there are q_proj, k_proj, v_proj, o_proj, gate_proj, \
             up_proj, down_proj, lm_head"
        );
        assert_eq!(
            error(&names(&["layers.12.mlp.up_proj"])),
            "target modules \"layers.12.mlp.up_proj\": this model has no linear layer of that name"
        );
        assert!(error(&Targets::Pattern("(".into())).contains("not a regular expression"));
        let endless = Targets::Pattern("(?:(?:[a-z_.0-9]*)*)*(?=x)(?<!y)z".into());
        assert!(endless.layers(&config()).is_err());
    }

    #[test]
    fn the_shortest_names_mean_the_same_layers() {
        for targets in [
            Targets::default(),
            names(&["q_proj", "lm_head"]),
            names(&["layers.1.mlp.up_proj", "k_proj"]),
        ] {
            let layers = targets.layers(&config()).unwrap();
            let short = Targets::of(&layers, &config());
            assert_eq!(short.layers(&config()).unwrap(), layers);
        }
        let all = Targets::default().layers(&config()).unwrap();
        assert_eq!(Targets::of(&all, &config()), Linear::BLOCK.into());
    }
}
