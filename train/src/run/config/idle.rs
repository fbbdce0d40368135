//! Values that somebody chose and that change nothing, beside the others.

use super::resolved::Resolved;
use super::{Config, Learner, Sampling};

/// A line for each of them.
pub(super) fn notes(resolved: &Resolved) -> Vec<String> {
    let chosen = idle(&resolved.config)
        .into_iter()
        .filter_map(|(key, what)| Some((key, resolved.chosen(key)?, what)));
    let mut notes: Vec<String> = chosen
        .map(|(key, origin, what)| format!("{key} ({origin}) {what}"))
        .collect();
    notes.extend(of_other_learners(resolved));
    notes
}

/// Keys that another learner would read.
fn of_other_learners(resolved: &Resolved) -> Vec<String> {
    /// Of language: sections, and keys of sections that others share.
    const WORDS: &[&str] = &[
        "model.",
        "lora.",
        "policy.",
        "mix",
        "train.groups",
        "train.group_size",
        "train.learn",
        "train.sampling",
        "train.aaw_temperature",
        "train.correction",
        "train.shared_luck",
        "train.clip_low",
        "train.clip_high",
        "train.beta",
        "train.kl",
        "train.aggregation",
        "train.passes",
        "train.minibatches",
        "train.warmup",
        "train.tokens_per_batch",
        "eval.temperature",
    ];
    let learner = resolved.config.learner;
    let others = match learner {
        Learner::MsGrpo => [&["value.", "dqn.", "pqn."][..], &[]],
        Learner::Dqn => [WORDS, &["pqn."]],
        Learner::Pqn => [WORDS, &["dqn."]],
    };
    let others = others.concat();
    // A section ends with a dot; what does not is a whole key.
    let is_idle = |key: &str| {
        let mut others = others.iter();
        others.any(|other| key == *other || other.ends_with('.') && key.starts_with(other))
    };
    let keys = resolved.origins.keys().filter(|key| is_idle(key));
    let chosen = keys.filter_map(|key| Some((key, resolved.chosen(key)?)));
    let name = learner.name();
    chosen
        .map(|(key, origin)| format!("{key} ({origin}) has no effect with learner = \"{name}\""))
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
    // Those of words are told of as a whole where nobody reads them.
    let reads = config.learner == Learner::MsGrpo;
    let sampling = toml::Value::try_from(train.sampling).expect("a plain word");
    let sampling = format!("has no effect with train.sampling = {sampling}");
    add(
        reads && train.sampling == Sampling::All,
        &["train.learn"],
        &sampling,
    );
    add(
        reads && train.sampling != Sampling::Aaw,
        &["train.aaw_temperature"],
        &sampling,
    );
    add(
        reads && train.beta == 0.0,
        &["train.kl"],
        "has no effect with train.beta = 0",
    );
    // The ratio is exactly 1 where a step learns once.
    add(
        reads && train.passes == 1 && train.minibatches == 1,
        &["train.clip_low", "train.clip_high"],
        "has no effect with train.passes = 1 and train.minibatches = 1",
    );
    let end = format!("train.steps, which is {}", train.steps);
    add(
        reads && train.warmup > train.steps,
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
    add(
        reads && model.adapter_directory().is_some(),
        &["lora.rank", "lora.alpha", "lora.targets", "lora.rslora"],
        "has no effect with model.adapter, whose adapter has its own",
    );
    idle
}
