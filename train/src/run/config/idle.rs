//! Values that somebody chose and that change nothing, beside the others.

use super::resolved::Resolved;
use super::{Config, Sampling, Weights};

/// A line for each of them.
pub(super) fn notes(resolved: &Resolved) -> Vec<String> {
    let chosen = idle(&resolved.config)
        .into_iter()
        .filter_map(|(key, what)| Some((key, resolved.chosen(key)?, what)));
    chosen
        .map(|(key, origin, what)| format!("{key} ({origin}) {what}"))
        .collect()
}

/// The keys without effect, each with what takes it away.
fn idle(config: &Config) -> Vec<(&'static str, String)> {
    let Config {
        model,
        train,
        eval,
        checkpoint,
        record,
        ..
    } = config;
    let mut idle = Vec::new();
    let mut add = |is_idle: bool, keys: &[&'static str], what: &str| {
        if is_idle {
            idle.extend(keys.iter().map(|key| (*key, what.to_owned())));
        }
    };
    let sampling = toml::Value::try_from(train.sampling).expect("a plain word");
    let sampling = format!("has no effect with train.sampling = {sampling}");
    add(train.sampling == Sampling::All, &["train.learn"], &sampling);
    add(
        train.sampling != Sampling::Aaw,
        &["train.aaw_temperature"],
        &sampling,
    );
    add(
        train.beta == 0.0,
        &["train.kl"],
        "has no effect with train.beta = 0",
    );
    // The ratio is exactly 1 where a step learns once.
    add(
        train.passes == 1 && train.minibatches == 1,
        &["train.clip_low", "train.clip_high"],
        "has no effect with train.passes = 1 and train.minibatches = 1",
    );
    let end = format!("train.steps, which is {}", train.steps);
    add(
        train.warmup > train.steps,
        &["train.warmup"],
        &format!("is more than {end}: train.lr is never reached"),
    );
    add(
        eval.every > train.steps,
        &["eval.every"],
        &format!("has no effect: it is more than {end}"),
    );
    add(
        checkpoint.every > train.steps,
        &["checkpoint.every"],
        &format!("has no effect: it is more than {end}"),
    );
    add(
        record.all_episodes,
        &["record.episodes"],
        "has no effect with record.all_episodes = true",
    );
    let lora = ["lora.rank", "lora.alpha", "lora.targets", "lora.rslora"];
    add(
        model.adapter_directory().is_some(),
        &lora,
        "has no effect with model.adapter, whose adapter has its own",
    );
    add(
        train.weights == Weights::All,
        &lora,
        "has no effect with train.weights = \"all\", which trains no adapter",
    );
    idle
}
