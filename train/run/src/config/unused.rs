//! Values that have no effect with the others, or keep training from what is expected.

use std::collections::{BTreeMap, BTreeSet};

use super::origin::Origin;
use lapwing_learn::config::{AdvantageEstimator, LearnerKind, Optimiser, Ratio, Sampling, Weights};

use super::{Config, reference};
use serde::Serialize;
use toml::Value;

/// Returns the keys without effect.
pub(super) fn keys(config: &Config) -> BTreeSet<String> {
    let idle = idle(config).into_iter();
    let own = idle.filter(|(_, what)| what.starts_with("has no effect"));
    let keys = reference::keys().into_iter();
    let others = keys.map(|(section, key)| reference::dotted(section, key.name));
    let others = others.filter(|key| is_for_another(config.learner, key));
    own.map(|(key, _)| key.to_owned()).chain(others).collect()
}

/// Returns a line for each of them that the user set, and for values that keep the policy as it is, whoever set them.
pub(super) fn notes(config: &Config, origins: &BTreeMap<String, Origin>) -> Vec<String> {
    let chosen = |key: &str| match origins.get(key)? {
        origin @ Origin::Setting(option) if option != "set" => Some(origin.to_string()),
        origin @ (Origin::File(_) | Origin::Setting(_)) => Some(format!("{key} ({origin})")),
        _ => None,
    };
    let learner = config.learner;
    let own = idle(config).into_iter();
    let own = own.filter(|(key, _)| !is_for_another(learner, key));
    let mut notes: Vec<String> = own
        .filter_map(|(key, what)| {
            let is_default = what.starts_with("is ") && !origins.contains_key(key);
            let default = is_default.then(|| format!("{key} (the default)"));
            Some(format!("{} {what}", chosen(key).or(default)?))
        })
        .collect();
    let name = learner.name();
    let others = origins.keys().filter(|key| is_for_another(learner, key));
    let others = others.filter_map(|key| chosen(key));
    notes.extend(others.map(|key| format!("{key} has no effect with learner = \"{name}\"")));
    // An option can set two keys.
    notes.dedup();
    notes
}

/// Returns whether only other learners read this key.
fn is_for_another(learner: LearnerKind, key: &str) -> bool {
    /// Keys that all learners read.
    const SHARED: [&str; 6] = [
        "train.steps",
        "train.lr",
        "train.weight_decay",
        "train.betas",
        "train.max_grad_norm",
        "train.seed",
    ];
    let section = key.split('.').next().unwrap_or_default();
    let of_words = [
        "model", "lora", "mix", "policy", "warmup", "credit", "critic",
    ]
    .contains(&section)
        || section == "train" && !SHARED.contains(&key)
        || key == "eval.temperature";
    match learner {
        LearnerKind::MsGrpo => ["value", "dqn", "pqn"].contains(&section),
        LearnerKind::Dqn => of_words || section == "pqn",
        LearnerKind::Pqn => of_words || section == "dqn",
    }
}

/// Returns the reason of a key without effect beside this value of another.
fn no_effect(key: &str, value: impl Serialize) -> String {
    let value = Value::try_from(value).expect("a plain word");
    format!("has no effect with {key} = {value}")
}

/// Returns the keys without effect, each with the reason.
fn idle(config: &Config) -> Vec<(&'static str, String)> {
    let Config {
        model,
        policy,
        train,
        warmup,
        credit,
        critic,
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
    let sampling = no_effect("train.sampling", train.sampling);
    add(train.sampling == Sampling::All, &["train.learn"], &sampling);
    let is_muon = train.optimiser == Optimiser::Muon && train.weights == Weights::Lora;
    let optimiser = no_effect("train.optimiser", train.optimiser);
    add(is_muon, &["train.betas"], &optimiser);
    let beta = "has no effect with train.beta = 0";
    add(train.beta == 0.0, &["train.kl"], beta);
    // With one update in a step the ratio is exactly 1.
    let learns_once = train.passes == 1 && train.minibatches == 1;
    add(
        learns_once,
        &[
            "train.ratio",
            "train.clip_low",
            "train.clip_high",
            "train.turn_clip",
            "train.episode_clip",
        ],
        "has no effect with train.passes = 1 and train.minibatches = 1",
    );
    let ratio = no_effect("train.ratio", train.ratio);
    for (level, keys) in [
        (Ratio::Token, &["train.clip_low", "train.clip_high"][..]),
        (Ratio::Turn, &["train.turn_clip"]),
        (Ratio::Episode, &["train.episode_clip"]),
    ] {
        add(!learns_once && train.ratio != level, keys, &ratio);
    }
    add(
        train.entropy_band == [0.0, 100.0],
        &["train.entropy_gain"],
        "has no effect with train.entropy_band = [0, 100]",
    );
    add(
        train.entropy_band[0] == 0.0,
        &["train.entropy_end"],
        "has no effect with a lower limit of 0 in train.entropy_band",
    );
    let constrain = "has no effect with policy.constrain = true, which leaves no reply unreadable";
    add(policy.constrain, &["policy.format_penalty"], constrain);
    let end = format!("train.steps, which is {}", train.steps);
    let method = no_effect("credit.method", credit.method);
    let is_gigpo = credit.method == AdvantageEstimator::Gigpo;
    let has_critic = credit.method == AdvantageEstimator::Critic;
    let discounts = credit.method != AdvantageEstimator::Episode;
    add(!discounts, &["credit.gamma"], &method);
    add(!has_critic, &["credit.lambda"], &method);
    add(!is_gigpo, &["credit.omega"], &method);
    let of_critic = [
        "critic.hidden",
        "critic.lr",
        "critic.passes",
        "critic.clip",
        "critic.warmup",
    ];
    add(!has_critic, &of_critic, &method);
    let n = critic.warmup;
    add(
        has_critic && n >= train.steps,
        &["critic.warmup"],
        &format!("is {n}, not below {end}: only the critic learns, and the policy stays as it is"),
    );
    let of_warmup = ["warmup.player", "warmup.episodes", "warmup.lr"];
    let none = "has no effect with warmup.updates = 0";
    add(warmup.updates == 0, &of_warmup, none);
    let file = no_effect("warmup.player", &warmup.player);
    let has_file = warmup.updates > 0 && warmup.has_file();
    add(has_file, &["warmup.episodes"], &file);
    let unreached = format!("is more than {end}: train.lr is never reached");
    add(train.warmup > train.steps, &["train.warmup"], &unreached);
    let is_mixed = |step: usize| {
        let played = config.mix.iter().filter(|mix| mix.steps().contains(&step));
        played.map(|mix| mix.share).sum::<f64>() >= 1.0
    };
    let game = &config.game.name;
    let only_mixed = format!(
        "is {}: in all of these steps all groups play games of [[mix]], so {game} itself is only evaluated",
        train.steps
    );
    // The sum of the shares falls only where a mixture ends.
    let falls = config.mix.iter().map(|mix| mix.steps().end).chain([0]);
    let is_only_mixed = train.steps > 0 && falls.filter(|step| *step < train.steps).all(is_mixed);
    add(is_only_mixed, &["train.steps"], &only_mixed);
    let later = format!("has no effect: it is more than {end}");
    add(eval.every > train.steps, &["eval.every"], &later);
    let is_later = checkpoint.every > train.steps;
    add(is_later, &["checkpoint.every"], &later);
    add(
        record.all_episodes,
        &["record.episodes"],
        "has no effect with record.all_episodes = true",
    );
    let lora = ["lora.rank", "lora.alpha", "lora.targets", "lora.rslora"];
    add(
        model.adapter.is_some(),
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
