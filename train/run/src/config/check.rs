//! Ranges of values. Each is declared once, for the check and its message.

use std::fmt::Display;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::{RangeBounds, RangeFrom, RangeInclusive, RangeToInclusive};

use lapwing_learn::config::Sampling;

use super::{Config, ConfigError};

/// The maximum number of episodes of an evaluation. Drawing more scenes takes seconds without any output.
pub const MOST_EPISODES: usize = 100_000;

const SHARE: RangeInclusive<f64> = 0.0..=1.0;
/// Beyond these, logits divided by the temperature become equal or infinite.
const TEMPERATURE: RangeInclusive<f64> = 1e-3..=1e3;
const ABOVE_0: (Bound<f64>, Bound<f64>) = (Excluded(0.0), Unbounded);
const NOT_NEGATIVE: RangeFrom<f64> = 0.0..;
/// TOML has no larger whole numbers, and the resolved config must be written as TOML.
const SEED: RangeToInclusive<u64> = ..=i64::MAX as u64;

/// Refuses values that no run could use.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let Config {
        name,
        lora,
        mix,
        policy,
        train,
        value,
        dqn,
        pqn,
        credit,
        critic,
        eval,
        checkpoint,
        ..
    } = config;
    let is_name = !name.is_empty() && !name.contains(['/', '\\']);
    let wanted = "a name for a directory, without slashes";
    ensure(is_name, "name", name, wanted)?;
    range("lora.rank", lora.rank, 1..=1 << 16)?;
    range("lora.alpha", lora.alpha, ABOVE_0)?;
    lora.targets
        .check()
        .map_err(|reason| ConfigError::Targets { reason })?;

    for one in mix {
        range("mix.share", one.share, SHARE)?;
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
    range("policy.history", policy.history, 0..=1 << 16)?;
    range("policy.temperature", policy.temperature, TEMPERATURE)?;
    range("policy.spread", policy.spread, NOT_NEGATIVE)?;
    let [coldest, warmest] = policy.temperature_range;
    range("policy.temperature_range", coldest, TEMPERATURE)?;
    range("policy.temperature_range", warmest, coldest..=1e3)?;
    let holds = policy.spread == 0.0 || (coldest..=warmest).contains(&policy.temperature);
    let found = format!("[{coldest}, {warmest}]");
    let temperature = policy.temperature;
    let wanted = format!("a range that holds policy.temperature, which is {temperature}");
    ensure(holds, "policy.temperature_range", found, wanted)?;
    range(
        "policy.temperature_rate",
        policy.temperature_rate,
        0.0..=10.0,
    )?;
    range("policy.max_new_tokens", policy.max_new_tokens, 1..=1 << 24)?;
    range("policy.format_penalty", policy.format_penalty, NOT_NEGATIVE)?;

    range("train.groups", train.groups, 1..=1 << 24)?;
    // A group of one episode has no advantages.
    range("train.group_size", train.group_size, 2..=1 << 24)?;
    range("train.learn", train.learn, 1..)?;
    let fits = train.sampling == Sampling::All || train.learn <= train.group_size;
    let wanted = format!("at most train.group_size, which is {}", train.group_size);
    ensure(fits, "train.learn", train.learn, wanted)?;
    let wanted =
        "false with train.group_size below 4: halves of a group are measured against each other";
    let has_halves = !train.measure || train.group_size >= 4;
    ensure(has_halves, "train.measure", true, wanted)?;
    range("train.aaw_temperature", train.aaw_temperature, ABOVE_0)?;
    range("train.filter", train.filter, (Excluded(0.0), Included(1.0)))?;
    let corrects = !train.correction || train.sampling == Sampling::Aaw;
    let wanted = "false unless train.sampling is \"aaw\"";
    ensure(corrects, "train.correction", true, wanted)?;
    for (key, [low, high]) in [
        ("train.turn_clip", train.turn_clip),
        ("train.episode_clip", train.episode_clip),
    ] {
        range(key, low, SHARE)?;
        range(key, high, NOT_NEGATIVE)?;
    }
    range("train.clip_low", train.clip_low, SHARE)?;
    range("train.clip_high", train.clip_high, NOT_NEGATIVE)?;
    let [low, high] = train.entropy_band;
    range("train.entropy_band", low, 0.0..=100.0)?;
    range("train.entropy_band", high, low..=100.0)?;
    range("train.entropy_gain", train.entropy_gain, NOT_NEGATIVE)?;
    range("train.beta", train.beta, NOT_NEGATIVE)?;
    range("train.passes", train.passes, 1..)?;
    range("train.minibatches", train.minibatches, 1..)?;
    range("train.lr", train.lr, NOT_NEGATIVE)?;
    range("train.weight_decay", train.weight_decay, NOT_NEGATIVE)?;
    for beta in train.betas {
        let wanted = "two numbers from 0 to just below 1";
        ensure((0.0..1.0).contains(&beta), "train.betas", beta, wanted)?;
    }
    range("train.max_grad_norm", train.max_grad_norm, ABOVE_0)?;
    range("train.seed", train.seed, SEED)?;
    // A prompt and its reply pass through the model together.
    let reply = policy.max_new_tokens;
    range(
        "train.tokens_per_batch",
        train.tokens_per_batch,
        reply + 1..,
    )?;

    range("value.window", value.window, 0..=64)?;
    // More would exceed the device's memory, and the memory plan does not cover networks.
    for &channels in &value.channels {
        range("value.channels", channels, 1..=1024)?;
    }
    for &hidden in &value.hidden {
        range("value.hidden", hidden, 1..=8192)?;
    }
    let wanted = "at least one width: the turns left go into the first of them";
    ensure(!value.hidden.is_empty(), "value.hidden", "[]", wanted)?;
    range("value.gamma", value.gamma, SHARE)?;
    range("value.episodes", value.episodes, 1..=MOST_EPISODES)?;
    range("value.epsilon", value.epsilon, SHARE)?;
    range("value.batch", value.batch, 1..=1 << 16)?;
    range("dqn.capacity", dqn.capacity, 1..=1 << 24)?;
    ensure(
        dqn.start <= dqn.capacity,
        "dqn.start",
        dqn.start,
        format!("at most dqn.capacity, which is {}", dqn.capacity),
    )?;
    range("dqn.updates", dqn.updates, 1..=1 << 16)?;
    range("dqn.target", dqn.target, 1..=1 << 24)?;
    range("dqn.n_step", dqn.n_step, 1..=1000)?;
    range("dqn.alpha", dqn.alpha, SHARE)?;
    range("dqn.beta", dqn.beta, SHARE)?;
    range("pqn.lambda", pqn.lambda, SHARE)?;
    range("pqn.passes", pqn.passes, 1..=1000)?;
    range("credit.gamma", credit.gamma, SHARE)?;
    range("credit.lambda", credit.lambda, SHARE)?;
    range("credit.omega", credit.omega, NOT_NEGATIVE)?;

    range("critic.hidden", critic.hidden, 1..=1 << 16)?;
    range("critic.lr", critic.lr, NOT_NEGATIVE)?;
    range("critic.passes", critic.passes, 1..)?;
    range("critic.clip", critic.clip, ABOVE_0)?;

    range("eval.episodes", eval.episodes, 1..=MOST_EPISODES)?;
    range("eval.seed", eval.seed, SEED)?;
    let is_temperature = eval.temperature == 0.0 || TEMPERATURE.contains(&eval.temperature);
    ensure(
        is_temperature,
        "eval.temperature",
        eval.temperature,
        "0, or a number from 0.001 to 1000",
    )?;
    // A run of a year has half a million minutes.
    range("checkpoint.minutes", checkpoint.minutes, 0.0..=1e6)?;
    range("checkpoint.keep", checkpoint.keep, 1..=1000)
}

/// The type of a setting's value.
trait Number: Copy + Display + PartialOrd {
    const IS_WHOLE: bool;
    fn is_finite(self) -> bool;
}

impl Number for f64 {
    const IS_WHOLE: bool = false;
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}

impl Number for u64 {
    const IS_WHOLE: bool = true;
    fn is_finite(self) -> bool {
        true
    }
}

impl Number for usize {
    const IS_WHOLE: bool = true;
    fn is_finite(self) -> bool {
        true
    }
}

/// Refuses a value outside this range. TOML has infinity, which is in no range.
fn range<T: Number>(key: &str, found: T, range: impl RangeBounds<T>) -> Result<(), ConfigError> {
    let wanted = match (range.start_bound(), range.end_bound()) {
        (Included(a), Included(b)) if T::IS_WHOLE => format!("a whole number from {a} to {b}"),
        (Included(a), Included(b)) => format!("a number from {a} to {b}"),
        (Excluded(a), Included(b)) => format!("a number above {a}, up to {b}"),
        (Included(a), Unbounded) if T::IS_WHOLE => format!("at least {a}"),
        (Included(a), Unbounded) => format!("a number, {a} or more"),
        (Excluded(a), Unbounded) => format!("a number above {a}"),
        (Unbounded, Included(b)) => format!("at most {b}"),
        _ => unreachable!("no such range is used"),
    };
    ensure(
        range.contains(&found) && found.is_finite(),
        key,
        found,
        wanted,
    )
}

fn ensure(
    holds: bool,
    key: &str,
    found: impl ToString,
    wanted: impl Into<String>,
) -> Result<(), ConfigError> {
    match holds {
        true => Ok(()),
        false => Err(ConfigError::Range {
            key: key.to_owned(),
            found: found.to_string(),
            wanted: wanted.into(),
        }),
    }
}
