//! Checks of values: the ranges that the sections declare, and what depends on several values.

use std::fmt::Display;

use lapwing_env::OptionRange::{self, Real};
use lapwing_learn::config::{Sampling, Weights};
use lapwing_play::ReplyForm;
use toml::{Table, Value};

use super::origin::Origin;
use super::{Config, ConfigError, Quantise, Resolved, reference};

/// Refuses values that no run could use.
pub(super) fn check(resolved: &Resolved) -> Result<(), ConfigError> {
    let Config {
        name,
        learner,
        model,
        lora,
        mix,
        policy,
        train,
        warmup,
        value,
        dqn,
        eval,
        ..
    } = &resolved.config;
    let is_name = !name.is_empty() && !name.contains(['/', '\\']);
    let wanted = "a name for a directory, without slashes";
    ensure(is_name, "name", name, wanted)?;
    let values = Table::try_from(&resolved.config).expect("read from a table");
    for (section, option) in reference::keys() {
        // A list of tables, or one.
        let tables = match values.get(section) {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_table).collect(),
            one => Vec::from_iter(one.and_then(Value::as_table)),
        };
        let key = reference::dotted(section, option.name);
        for (table, range) in tables
            .iter()
            .flat_map(|t| option.range.iter().map(move |r| (t, r)))
        {
            within(&key, &table[option.name], range)?;
        }
    }
    let agree = |holds, [key, other]: [&str; 2], wanted, cure: &dyn Display| {
        let value = |key: &str| {
            let (section, name) = key.split_once('.').expect("in a section");
            &values[section][name]
        };
        let (beside, origin) = (value(other), resolved.origin(other));
        let cure = match resolved.origins.get(key) {
            // Options win over --set.
            Some(Origin::Setting(option)) if option != "set" => format!("leave out --{option}"),
            _ => format!("for example: --set {key}={cure}"),
        };
        let wanted = format!("{wanted} {other}, which is {beside} ({origin}); {cure}");
        ensure(holds, key, value(key), wanted)
    };
    let one_model = model.dir.is_none() || model.repo.is_none();
    agree(one_model, ["model.repo", "model.dir"], "none beside", &"")?;
    let fits = model.quantise == Quantise::None || train.weights == Weights::Lora;
    agree(
        fits,
        ["model.quantise", "train.weights"],
        "\"none\" beside",
        &"none",
    )?;
    let targets = lora.targets.check();
    targets.map_err(|reason| ConfigError::Invalid(format!("key `lora.targets`: {reason}")))?;

    for one in mix {
        let ends = one.until == 0 || one.until > one.from;
        let wanted = format!("0, or above mix.from, which is {}", one.from);
        ensure(ends, "mix.until", one.until, wanted)?;
        // The sum of the shares rises only at the first step of a mixture.
        let there = mix.iter().filter(|other| other.steps().contains(&one.from));
        let sum: f64 = there.map(|other| other.share).sum();
        let wanted = format!(
            "less: in step {} the shares of all games that are mixed in add up to {sum}, and 1 is the whole",
            one.from
        );
        ensure(sum <= 1.0 + 1e-9, "mix.share", one.share, wanted)?;
    }
    let is_word = !policy.constrain || policy.reply == ReplyForm::Word;
    let keys = ["policy.reply", "policy.constrain"];
    agree(is_word, keys, "\"word\" beside", &"word")?;

    let size = train.group_size;
    let fits = train.sampling == Sampling::All || train.learn <= size;
    agree(fits, ["train.learn", "train.group_size"], "at most", &size)?;
    let has_halves = !train.measure || size >= 4;
    let keys = ["train.measure", "train.group_size"];
    let wanted = "false, because it compares halves of a group, or at least 4 as";
    agree(has_halves, keys, wanted, &false)?;
    for (key, [low, high]) in [
        ("train.turn_clip", train.turn_clip),
        ("train.episode_clip", train.episode_clip),
    ] {
        within(key, &low.into(), &Real(0.0, 1.0))?;
        within(key, &high.into(), &Real(0.0, f64::MAX))?;
    }
    let [low, high] = train.entropy_band;
    within("train.entropy_band", &high.into(), &Real(low, 100.0))?;
    for beta in train.betas {
        let wanted = "two numbers from 0 to just below 1";
        ensure((0.0..1.0).contains(&beta), "train.betas", beta, wanted)?;
    }
    let trains_adapter = warmup.updates == 0 || train.weights == Weights::Lora;
    let keys = ["warmup.updates", "train.weights"];
    let wanted = "0 (imitate with `lapwing pretrain --from` first) beside";
    agree(trains_adapter, keys, wanted, &0)?;
    let is_for_words = warmup.updates == 0 || learner.has_language();
    let wanted = format!(
        "0 with learner = \"{}\", which has no replies",
        learner.name()
    );
    ensure(is_for_words, "warmup.updates", warmup.updates, wanted)?;
    let wanted = "at least one width: the turns left go into the first of them";
    ensure(!value.hidden.is_empty(), "value.hidden", "[]", wanted)?;
    let (keys, most) = (["dqn.start", "dqn.capacity"], dqn.capacity);
    agree(dqn.start <= most, keys, "at most", &most)?;
    let is_temperature = eval.temperature == 0.0 || (1e-3..=1e3).contains(&eval.temperature);
    let wanted = "0, or a number from 0.001 to 1000";
    ensure(is_temperature, "eval.temperature", eval.temperature, wanted)?;
    policy.template_variables()?;
    Ok(())
}

/// Refuses a number, or a list with one, outside this range.
fn within(key: &str, found: &Value, range: &OptionRange) -> Result<(), ConfigError> {
    match found {
        Value::Integer(n) => ensure(range.contains(*n as f64), key, n, range.wanted()),
        Value::Float(n) => ensure(range.contains(*n), key, n, range.wanted()),
        Value::Array(list) => list.iter().try_for_each(|item| within(key, item, range)),
        _ => Ok(()),
    }
}

fn ensure(
    holds: bool,
    key: &str,
    found: impl ToString,
    wanted: impl Into<String>,
) -> Result<(), ConfigError> {
    match holds {
        true => Ok(()),
        false => Err(ConfigError::range(key, found, wanted)),
    }
}
