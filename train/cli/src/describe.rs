//! One-line summaries of steps and evaluations.

use lapwing_learn::config::{Sampling, TrainConfig};
use lapwing_learn::metrics::StepMetrics;
use lapwing_play::config::MixConfig;
use lapwing_play::metrics::PlayMetrics;
use lapwing_train::config::Config;
use lapwing_train::record::Record;

use crate::screen::counted;

/// Describes how the episodes to train on are selected.
pub fn sampling(train: &TrainConfig) -> String {
    let (learn, group) = (train.learn, train.group_size);
    match train.sampling {
        Sampling::All => "training on all of them".to_owned(),
        Sampling::Aaw => {
            format!("training on {learn} of each {group}, sampled by absolute advantage (AAW)")
        }
        Sampling::Uniform => format!("training on {learn} of each {group}, sampled uniformly"),
        Sampling::Top => {
            format!("training on the {learn} of each {group} with the largest absolute advantage")
        }
        Sampling::Variance => {
            format!("training on the {learn} of each {group} whose returns vary most")
        }
    }
}

/// Describes the games that are mixed into training; empty if there are none.
pub fn mixed(config: &Config) -> String {
    let one = |one: &MixConfig| {
        let (first, last) = (one.from + 1, one.until);
        let when = match last {
            0 => format!("from step {first} on"),
            _ => format!("in steps {first} to {last}"),
        };
        let who = match one.share {
            1.0 => "all groups play".to_owned(),
            share => format!("{:.0} % of the groups play", 100.0 * share),
        };
        format!("; {when} {who} {}", one.title(&config.game))
    };
    config.mix.iter().map(one).collect()
}

/// Describes a record in one line; `None` if it has no news for people.
pub fn record(record: &Record) -> Option<String> {
    match record {
        Record::Step(metrics) => Some(step_words(metrics).join("  ")),
        Record::Evaluation(evaluation) => Some(self::evaluation(&evaluation.play)),
        Record::Warning(w) => Some(format!("warning ({}): {}", w.check, w.text)),
        Record::Baselines(_) | Record::Episode(_) => None,
    }
}

/// Describes a step by its numbers.
pub fn step_words(metrics: &StepMetrics) -> Vec<String> {
    let play = &metrics.play;
    let mut words = vec![
        format!("return {:.3}", play.return_mean),
        format!("success {:.2}", play.success_rate),
    ];
    words.extend(valid(play));
    words.push(format!("length {:.1}", play.episode_length_mean));
    words.extend(play.replies.map(|r| format!("entropy {:.3}", r.entropy)));
    let critic = metrics.critic.and_then(|critic| critic.explained_variance);
    words.extend(critic.map(|share| format!("critic {share:.2}")));
    match (&metrics.learned, &metrics.value, metrics.updates_dropped) {
        (Some(learned), _, 0) => {
            words.extend(learned.kl.map(|kl| format!("kl {kl:.4}")));
            words.push(format!("grad {:.3}", learned.grad_norm));
        }
        (None, Some(value), 0) => {
            words.push(format!("td error {:.4}", value.td_error));
            words.push(format!("epsilon {:.2}", value.epsilon));
        }
        (None, None, 0) if play.replies.is_none() => {
            words.push("no update: fewer turns in the replay buffer than dqn.start".to_owned());
        }
        (None, None, 0) if metrics.is_warmup() => words.push("critic warm-up".to_owned()),
        (None, None, 0) => words.push("no update: equal returns in every group".to_owned()),
        (_, _, dropped) => words.push(format!("{dropped} updates dropped: not finite")),
    }
    words.push(seconds(metrics));
    words
}

fn seconds(metrics: &StepMetrics) -> String {
    format!("{:.2} s", metrics.seconds_rollout + metrics.seconds_update)
}

/// Describes a step in at most 40 columns, for a progress bar.
pub fn short_step(metrics: &StepMetrics) -> String {
    let play = &metrics.play;
    let mut words = vec![format!("return {:.3}", play.return_mean)];
    words.extend(valid(play));
    words.push(seconds(metrics));
    words.join("  ")
}

/// Describes the share of readable replies, which networks do not have.
fn valid(play: &PlayMetrics) -> Option<String> {
    let valid = play.valid_action_rate;
    play.replies.map(|_| format!("valid {valid:.2}"))
}

fn evaluation(eval: &PlayMetrics) -> String {
    let episodes = counted(eval.episodes, "episode");
    let (success, mean) = (eval.success_rate, eval.return_mean);
    let valid = valid(eval).map_or(String::new(), |valid| format!(", {valid}"));
    format!("evaluation on {episodes}: success {success:.3}, return {mean:.3}{valid}")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use lapwing_learn::metrics::{CriticMetrics, UpdateMetrics};
    use lapwing_play::metrics::ReplyMetrics;

    use super::*;

    #[test]
    fn a_step_and_an_evaluation_are_described() {
        let learned = UpdateMetrics {
            kl: Some(0.001),
            grad_norm: 0.5,
            ..UpdateMetrics::default()
        };
        let mut metrics = StepMetrics {
            play: PlayMetrics {
                return_mean: 0.25,
                success_rate: 0.25,
                valid_action_rate: 0.99,
                episode_length_mean: 8.5,
                replies: Some(ReplyMetrics {
                    entropy: 1.2,
                    ..ReplyMetrics::default()
                }),
                ..PlayMetrics::default()
            },
            seconds_rollout: 0.1,
            seconds_update: 0.05,
            groups_skipped: Some(0),
            learned: Some(learned),
            ..StepMetrics::default()
        };
        assert_snapshot!(step_words(&metrics).join("  "), @"return 0.250  success 0.25  valid 0.99  length 8.5  entropy 1.200  kl 0.0010  grad 0.500  0.15 s");
        assert_snapshot!(short_step(&metrics), @"return 0.250  valid 0.99  0.15 s");
        metrics.learned = None;
        assert_snapshot!(step_words(&metrics).join("  "), @"return 0.250  success 0.25  valid 0.99  length 8.5  entropy 1.200  no update: equal returns in every group  0.15 s");
        metrics.critic = Some(CriticMetrics {
            explained_variance: Some(0.42),
            ..CriticMetrics::default()
        });
        assert_snapshot!(step_words(&metrics).join("  "), @"return 0.250  success 0.25  valid 0.99  length 8.5  entropy 1.200  critic 0.42  critic warm-up  0.15 s");
        let mut eval = PlayMetrics {
            episodes: 50,
            return_mean: -0.2,
            replies: metrics.play.replies,
            ..PlayMetrics::default()
        };
        assert_snapshot!(evaluation(&eval), @"evaluation on 50 episodes: success 0.000, return -0.200, valid 0.00");

        // A network has no replies. It is not updated before its replay buffer has enough turns.
        eval.replies = None;
        assert_snapshot!(evaluation(&eval), @"evaluation on 50 episodes: success 0.000, return -0.200");
        let network = StepMetrics {
            play: eval,
            ..StepMetrics::default()
        };
        assert_snapshot!(step_words(&network).join("  "), @"return -0.200  success 0.00  length 0.0  no update: fewer turns in the replay buffer than dqn.start  0.00 s");
        assert_snapshot!(short_step(&network), @"return -0.200  0.00 s");
    }

    #[test]
    fn mixed_games_are_described() {
        let of = |request: &str, mix: &str| {
            let config = Config::resolve(request, &[mix.to_owned()]).unwrap().config;
            mixed(&config)
        };
        let probe = r#"mix=[{probe="swapped", share=0.2}]"#;
        assert_snapshot!(of("frozen-lake", probe), @"; from step 1 on 20 % of the groups play frozen-lake (swapped)");
        let lesson = r#"mix=[{name="snake", share=1, until=100, options={size=6, apples=5}}]"#;
        assert_snapshot!(of("frozen-lake", lesson), @"; in steps 1 to 100 all groups play snake with apples = 5, size = 6");
        assert_eq!(of("frozen-lake", "mix=[]"), "");
    }
}
