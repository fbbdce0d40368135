//! Ranges: what a value may be beyond its type.

use lapwing_learn::config::Sampling;

use super::{Config, ConfigError};

/// Episodes of an evaluation: drawing the scenes of more takes seconds before anything is said.
pub const MOST_EPISODES: usize = 100_000;

/// Refuses values that no run could mean.
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
    if name.is_empty() || name.contains(['/', '\\']) {
        return Err(range(
            "name",
            name,
            "a name for a directory, without slashes",
        ));
    }
    between("lora.rank", lora.rank, 1, 1 << 16)?;
    positive("lora.alpha", lora.alpha)?;
    lora.targets
        .check()
        .map_err(|reason| ConfigError::Targets { reason })?;

    for one in mix {
        within("mix.share", one.share, 0.0, 1.0)?;
        if one.until != 0 && one.until <= one.from {
            let wanted = format!("0, or above mix.from, which is {}", one.from);
            return Err(range("mix.until", one.until, wanted));
        }
        // Every change of the sum comes where one of them begins.
        let there = mix.iter().filter(|other| other.steps().contains(&one.from));
        let sum: f64 = there.map(|other| other.share).sum();
        if sum > 1.0 + 1e-9 {
            let wanted = format!(
                "less: in step {} the shares of all games that are mixed in add up to {sum}, and 1 is the whole",
                one.from
            );
            return Err(range("mix.share", one.share, wanted));
        }
    }
    between("policy.history", policy.history, 0, 1 << 16)?;
    // Beyond these, logits divided by it are all alike or infinite.
    within("policy.temperature", policy.temperature, 1e-3, 1e3)?;
    not_negative("policy.spread", policy.spread)?;
    let [coldest, warmest] = policy.temperature_range;
    within("policy.temperature_range", coldest, 1e-3, 1e3)?;
    within("policy.temperature_range", warmest, coldest, 1e3)?;
    if policy.spread > 0.0 && !(coldest..=warmest).contains(&policy.temperature) {
        let wanted = format!(
            "a range that holds policy.temperature, which is {}",
            policy.temperature
        );
        let found = format!("[{coldest}, {warmest}]");
        return Err(range("policy.temperature_range", found, wanted));
    }
    within(
        "policy.temperature_rate",
        policy.temperature_rate,
        0.0,
        10.0,
    )?;
    between("policy.max_new_tokens", policy.max_new_tokens, 1, 1 << 24)?;
    not_negative("policy.format_penalty", policy.format_penalty)?;

    between("train.groups", train.groups, 1, 1 << 24)?;
    // One episode has nothing to stand out from.
    between("train.group_size", train.group_size, 2, 1 << 24)?;
    at_least("train.learn", train.learn, 1)?;
    if train.sampling != Sampling::All && train.learn > train.group_size {
        let wanted = format!("at most train.group_size, which is {}", train.group_size);
        return Err(range("train.learn", train.learn, wanted));
    }
    if train.measure && train.group_size < 4 {
        let wanted = "false with train.group_size below 4: halves of a group are measured against each other";
        return Err(range("train.measure", true, wanted));
    }
    positive("train.aaw_temperature", train.aaw_temperature)?;
    if !(train.filter > 0.0 && train.filter <= 1.0) {
        return Err(range(
            "train.filter",
            train.filter,
            "a number above 0, up to 1",
        ));
    }
    if train.correction && train.sampling != Sampling::Aaw {
        return Err(range(
            "train.correction",
            true,
            "false unless train.sampling is \"aaw\"",
        ));
    }
    within("train.clip_low", train.clip_low, 0.0, 1.0)?;
    not_negative("train.clip_high", train.clip_high)?;
    for (key, [low, high]) in [
        ("train.turn_clip", train.turn_clip),
        ("train.episode_clip", train.episode_clip),
    ] {
        within(key, low, 0.0, 1.0)?;
        not_negative(key, high)?;
    }
    let [low, high] = train.entropy_band;
    within("train.entropy_band", low, 0.0, 100.0)?;
    within("train.entropy_band", high, low, 100.0)?;
    not_negative("train.entropy_gain", train.entropy_gain)?;
    not_negative("train.beta", train.beta)?;
    at_least("train.passes", train.passes, 1)?;
    at_least("train.minibatches", train.minibatches, 1)?;
    not_negative("train.lr", train.lr)?;
    not_negative("train.weight_decay", train.weight_decay)?;
    for beta in train.betas {
        if !(0.0..1.0).contains(&beta) {
            return Err(range(
                "train.betas",
                beta,
                "two numbers from 0 to just below 1",
            ));
        }
    }
    positive("train.max_grad_norm", train.max_grad_norm)?;
    seed("train.seed", train.seed)?;
    // A prompt and its reply go through the model together.
    at_least(
        "train.tokens_per_batch",
        train.tokens_per_batch,
        policy.max_new_tokens + 1,
    )?;

    between("value.window", value.window, 0, 64)?;
    // More would not fit the device's memory, which a network is not counted for.
    for &channels in &value.channels {
        between("value.channels", channels, 1, 1024)?;
    }
    for &hidden in &value.hidden {
        between("value.hidden", hidden, 1, 8192)?;
    }
    if value.hidden.is_empty() {
        let wanted = "at least one width: the turns left go into the first of them";
        return Err(range("value.hidden", "[]", wanted));
    }
    within("value.gamma", value.gamma, 0.0, 1.0)?;
    between("value.episodes", value.episodes, 1, MOST_EPISODES)?;
    within("value.epsilon", value.epsilon, 0.0, 1.0)?;
    between("value.batch", value.batch, 1, 1 << 16)?;
    between("dqn.capacity", dqn.capacity, 1, 1 << 24)?;
    if dqn.start > dqn.capacity {
        let wanted = format!("at most dqn.capacity, which is {}", dqn.capacity);
        return Err(range("dqn.start", dqn.start, wanted));
    }
    between("dqn.updates", dqn.updates, 1, 1 << 16)?;
    between("dqn.target", dqn.target, 1, 1 << 24)?;
    between("dqn.n_step", dqn.n_step, 1, 1000)?;
    within("dqn.alpha", dqn.alpha, 0.0, 1.0)?;
    within("dqn.beta", dqn.beta, 0.0, 1.0)?;
    within("pqn.lambda", pqn.lambda, 0.0, 1.0)?;
    between("pqn.passes", pqn.passes, 1, 1000)?;
    within("credit.gamma", credit.gamma, 0.0, 1.0)?;
    within("credit.lambda", credit.lambda, 0.0, 1.0)?;
    not_negative("credit.omega", credit.omega)?;

    between("critic.hidden", critic.hidden, 1, 1 << 16)?;
    not_negative("critic.lr", critic.lr)?;
    at_least("critic.passes", critic.passes, 1)?;
    positive("critic.clip", critic.clip)?;

    between("eval.episodes", eval.episodes, 1, MOST_EPISODES)?;
    seed("eval.seed", eval.seed)?;
    match eval.temperature {
        0.0 => (),
        other if (1e-3..=1e3).contains(&other) => (),
        other => {
            let wanted = "0, or a number from 0.001 to 1000";
            return Err(range("eval.temperature", other, wanted));
        }
    }
    // A run of a year has half a million of them.
    within("checkpoint.minutes", checkpoint.minutes, 0.0, 1e6)?;
    between("checkpoint.keep", checkpoint.keep, 1, 1000)
}

fn range(key: &str, found: impl ToString, wanted: impl Into<String>) -> ConfigError {
    ConfigError::Range {
        key: key.to_owned(),
        found: found.to_string(),
        wanted: wanted.into(),
    }
}

fn at_least(key: &'static str, found: usize, least: usize) -> Result<(), ConfigError> {
    if found >= least {
        Ok(())
    } else {
        Err(range(key, found, format!("at least {least}")))
    }
}

fn between(key: &'static str, found: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&found) {
        Ok(())
    } else {
        Err(range(
            key,
            found,
            format!("a whole number from {least} to {most}"),
        ))
    }
}

/// TOML has no infinity to guard against by type: it can be written, so it is refused here.
fn positive(key: &'static str, found: f64) -> Result<(), ConfigError> {
    if found > 0.0 && found.is_finite() {
        Ok(())
    } else {
        Err(range(key, found, "a number above 0"))
    }
}

fn not_negative(key: &'static str, found: f64) -> Result<(), ConfigError> {
    if found >= 0.0 && found.is_finite() {
        Ok(())
    } else {
        Err(range(key, found, "a number, 0 or more"))
    }
}

fn within(key: &'static str, found: f64, low: f64, high: f64) -> Result<(), ConfigError> {
    if (low..=high).contains(&found) {
        Ok(())
    } else {
        Err(range(key, found, format!("a number from {low} to {high}")))
    }
}

/// Whole numbers end at 2^63 - 1 in TOML, and the resolved config must be written as TOML.
fn seed(key: &'static str, found: u64) -> Result<(), ConfigError> {
    if i64::try_from(found).is_ok() {
        Ok(())
    } else {
        Err(range(key, found, "at most 9223372036854775807"))
    }
}
