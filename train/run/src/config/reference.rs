//! The reference of all keys, for `lapwing config --explain` and `docs/configuration.md`.

use lapwing_env::OptionRange::{Positive, Whole};
use lapwing_env::{DeclaredOption, DeclaredOptions};
use lapwing_model::Targets;

use super::*;

lapwing_env::options! {
    /// The keys of [`LoraConfig`], which is a plain struct, because `model` does not depend on `env`.
    struct LoraKeys;
    /// Rank of the adapter's two matrices. 16: a small rank suffices for rewards, which carry little information per
    /// episode.
    rank: usize = 16, in Whole(1, 1 << 16);
    /// The low-rank term is scaled by alpha / rank. 32: twice the rank, as in most published adapters.
    alpha: f64 = 32.0, in Positive(f64::MAX);
    /// The linear layers that get an adapter, as PEFT's `target_modules`: names such as `q_proj` or
    /// `model.layers.0.mlp.up_proj`, a regular expression for the full name, or `all-linear`, which is the paper's choice
    /// and excludes the head (`lm_head`), the largest matrix of a small model.
    targets: Targets = Targets::default();
    /// Scales by alpha / sqrt(rank) instead (rank-stabilised LoRA). Off, as in PEFT.
    rslora: bool = false;
}

lapwing_env::options! {
    /// The key that only files have.
    struct FileKeys;
    /// The preset, or the other file beside this one, from which a config file starts. Not set: the file starts from the
    /// defaults of this reference, which are for a large model. Only a file can set it, not `--set`.
    base: Option<String> = None;
}

/// Returns all keys, each with its section, in the order of a config file. Keys outside of sections have an empty one.
pub fn keys() -> Vec<(&'static str, &'static DeclaredOption)> {
    let own = Config::LIST.iter().flat_map(|option| {
        let (section, keys) = match option.name {
            "model" => (option.name, ModelChoice::LIST),
            "lora" => (option.name, LoraKeys::LIST),
            "game" => (option.name, GameConfig::LIST),
            "mix" => (option.name, MixConfig::LIST),
            "policy" => (option.name, PolicyConfig::LIST),
            "train" => (option.name, TrainConfig::LIST),
            "warmup" => (option.name, WarmupConfig::LIST),
            "value" => (option.name, ValueConfig::LIST),
            "dqn" => (option.name, DqnConfig::LIST),
            "pqn" => (option.name, PqnConfig::LIST),
            "credit" => (option.name, CreditConfig::LIST),
            "critic" => (option.name, CriticConfig::LIST),
            "eval" => (option.name, EvalConfig::LIST),
            "checkpoint" => (option.name, CheckpointConfig::LIST),
            "record" => (option.name, RecordConfig::LIST),
            _ => ("", std::slice::from_ref(option)),
        };
        keys.iter().map(move |key| (section, key))
    });
    let of_files = FileKeys::LIST.iter().map(|key| ("", key));
    of_files.chain(own).collect()
}

/// Returns the dotted name of a key.
pub(super) fn dotted(section: &str, key: &str) -> String {
    match section {
        "" => key.to_owned(),
        section => format!("{section}.{key}"),
    }
}

/// Returns the keys, with their dotted names, that `name` means: one key, those of a section, or all with this last part.
/// The keys of `game.options` are the options of a `game`.
///
/// # Errors
/// If there are none.
pub fn explain(
    name: &str,
    game: &'static [DeclaredOption],
) -> Result<Vec<(String, &'static DeclaredOption)>, ConfigError> {
    let game = game.iter().map(|option| ("game.options", option));
    let all = keys().into_iter().chain(game);
    let all: Vec<_> = all.map(|(of, key)| (dotted(of, key.name), key)).collect();
    let (inner, last) = (format!("{name}."), format!(".{name}"));
    let is_meant = |key: &str| key == name || key.starts_with(&inner) || key.ends_with(&last);
    let meant = all.iter().filter(|(key, _)| is_meant(key)).cloned();
    let meant: Vec<_> = meant.collect();
    if meant.is_empty() {
        let sections = Config::LIST.iter().map(|option| option.name.to_owned());
        let list = sections.clone().collect::<Vec<_>>().join(", ");
        let known: Vec<_> = all
            .into_iter()
            .map(|(key, _)| key)
            .chain(sections)
            .collect();
        let nearest = lapwing_env::suggestion(name, &known);
        let more = match &*nearest {
            "" => format!("; at the top are {list}"),
            _ => nearest,
        };
        let problem = format!("unknown key or section `{name}`{more}");
        return Err(ConfigError::Invalid(problem));
    }
    Ok(meant)
}
