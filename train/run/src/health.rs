//! Health checks. Each looks for one way in which a run fails to learn, or is about to fail.
//!
//! A finding is a [`Warning`] in `metrics.jsonl` and on the terminal; `docs/health-checks.md` has a paragraph with
//! remedies for each check. No check changes the training.

use std::collections::{HashMap, VecDeque};

use crate::Error;
use crate::base::source::ModelSource;
use crate::config::Config;
use crate::record::Record;
use crate::record::metrics::{Warning, now};
use lapwing_learn::batch::Group;
use lapwing_learn::config::Weights;
use lapwing_learn::metrics::StepMetrics;
use lapwing_play::{ReplyForm, Turn, UnreadReason};

/// The number of steps that the checks remember.
const MEMORY: usize = 50;
/// A check that has fired stays silent for this many steps.
const SILENCE: usize = 50;
/// Consecutive dropped updates that end a run.
const MOST_DROPPED: usize = 5;
/// The success rate from which a game counts as solved, so that equal returns are expected.
const SOLVED: f64 = 0.9;

/// All checks and their memory.
#[derive(Debug, Default)]
pub struct HealthChecks {
    /// the latest steps, the last one at the end
    steps: VecDeque<StepMetrics>,
    /// mean entropy of the first steps
    first_entropies: Vec<f64>,
    /// the highest share of readable replies
    best_valid: f64,
    /// the step in which each check last fired
    warned: HashMap<String, usize>,
    /// updates dropped since the last one that was made
    dropped: usize,
    /// the words of the game's actions
    actions: Vec<String>,
}

/// A finding: the check, its number, and the text.
type CheckResult = (&'static str, f64, String);

impl HealthChecks {
    /// Returns checks for a game with these actions, before the first step.
    pub fn of(actions: &[String]) -> HealthChecks {
        HealthChecks {
            actions: actions.to_vec(),
            ..HealthChecks::default()
        }
    }

    /// Reads earlier records of a resumed run, so that the checks continue.
    pub(crate) fn recall(&mut self, record: &Record) {
        match record {
            Record::Step(metrics) => self.remember(metrics),
            Record::Warning(warning) => {
                self.warned.insert(warning.check.clone(), warning.step);
            }
            _ => (),
        }
    }

    /// Returns the findings on a step.
    pub fn look(
        &mut self,
        metrics: &StepMetrics,
        groups: &[Group],
        config: &Config,
    ) -> Vec<Warning> {
        self.remember(metrics);
        let mut found = vec![self.dropped_update()];
        if config.learner.has_language() {
            // These need replies and groups.
            found.extend([
                self.unreadable(groups, config),
                self.valid_actions(),
                self.length_limit(config),
                self.no_variance(),
                self.one_action(),
                self.entropy(),
                self.kl(),
                self.ratio(),
                self.clip(config),
            ]);
        }
        let step = metrics.step;
        let mut warnings = Vec::new();
        for (name, value, text) in found.into_iter().flatten() {
            let warned = self.warned.get(name);
            if warned.is_none_or(|before| step >= before + SILENCE) {
                self.warned.insert(name.to_owned(), step);
                warnings.push(Warning {
                    step,
                    time: now(),
                    check: name.to_owned(),
                    value,
                    text,
                });
            }
        }
        warnings
    }

    /// Returns whether the run can continue.
    ///
    /// # Errors
    /// If too many consecutive updates were dropped.
    pub fn verdict(&self) -> Result<(), Error> {
        match self.dropped {
            dropped if dropped >= MOST_DROPPED => Err(Error::Diverged(dropped)),
            _ => Ok(()),
        }
    }

    fn remember(&mut self, metrics: &StepMetrics) {
        if let Some(replies) = &metrics.play.replies
            && self.first_entropies.len() < 5
        {
            self.first_entropies.push(replies.entropy);
        }
        self.best_valid = self.best_valid.max(metrics.play.valid_action_rate);
        self.dropped = match (&metrics.learned, &metrics.value) {
            (None, None) => self.dropped + metrics.updates_dropped,
            _ => 0,
        };
        self.steps.push_back(metrics.clone());
        if self.steps.len() > MEMORY {
            self.steps.pop_front();
        }
    }

    /// Returns the mean of a number over the last steps; `None` if there are too few.
    fn mean(&self, count: usize, of: impl Fn(&StepMetrics) -> f64) -> Option<f64> {
        let begin = self.steps.len().checked_sub(count)?;
        Some(self.steps.iter().skip(begin).map(of).sum::<f64>() / count as f64)
    }

    fn is_solved(&self, count: usize) -> bool {
        self.mean(count, |step| step.play.success_rate)
            .is_some_and(|success| success >= SOLVED)
    }

    fn last(&self) -> &StepMetrics {
        self.steps.back().expect("looked at after a step")
    }

    fn dropped_update(&self) -> Option<CheckResult> {
        let dropped = self.last().updates_dropped;
        let text = format!(
            "an update was dropped, because its loss or gradient was not finite ({MOST_DROPPED} in a row end the run): \
             if it happens again, use a smaller train.lr"
        );
        (dropped > 0).then_some(("dropped-update", dropped as f64, text))
    }

    /// From the start or by now, the replies are unreadable.
    fn unreadable(&self, groups: &[Group], config: &Config) -> Option<CheckResult> {
        let valid = self.mean(3, |step| step.play.valid_action_rate)?;
        if valid >= 0.5 {
            return None;
        }
        let episodes = groups.iter().flat_map(|group| &group.episodes);
        let mut turns = episodes.flat_map(|episode| &episode.turns);
        let turn = turns.find(|turn| turn.action.is_none());
        let said = turn.map_or("", |turn| &turn.text);
        let said: String = said.chars().take(200).collect();
        let wanted = config.policy.reply.wanted();
        let cure = match turn.and_then(|turn| turn.unread) {
            Some(UnreadReason::UnknownWord) => {
                format!("of the actions {} it names none: ", self.actions.join(", "))
            }
            _ => "choose the form of reply that the model can give, give it more tokens (policy.max_new_tokens), ".to_owned(),
        };
        let share = 100.0 * (1.0 - valid);
        let text = format!(
            "{share:.0} % of the replies cannot be read: the model replied {said:?}, but the expected form is {wanted}; \
             {cure}{}, or use another model",
            cures(config)
        );
        Some(("unreadable", valid, text))
    }

    fn valid_actions(&self) -> Option<CheckResult> {
        let valid = self.mean(3, |step| step.play.valid_action_rate)?;
        let best = self.best_valid;
        let text = format!(
            "the share of replies that can be read has fallen from {best:.2} to {valid:.2}: the policy is losing the reply \
             format; use a smaller train.lr, a larger policy.format_penalty or a larger train.beta"
        );
        (valid < best - 0.3).then_some(("valid-actions", valid, text))
    }

    fn length_limit(&self, config: &Config) -> Option<CheckResult> {
        let of = |step: &StepMetrics| step.play.replies.map_or(0.0, |r| r.reply_cut_rate);
        let cut = self.mean(3, of)?;
        let limit = config.policy.max_new_tokens;
        let text = format!(
            "{:.0} % of the replies are cut off after {limit} tokens before they can be read: set policy.max_new_tokens \
             higher, or ask for shorter ones (policy.reply = \"word\")",
            100.0 * cut
        );
        // A model that replies with another word does not need more tokens.
        (cut > 0.2 && config.policy.reply != ReplyForm::Word).then_some(("length-limit", cut, text))
    }

    fn no_variance(&self) -> Option<CheckResult> {
        const STEPS: usize = 10;
        let learned = |step: &StepMetrics| learned(step).max(f64::from(u8::from(step.is_warmup())));
        if self.mean(STEPS, learned)? > 0.0 || self.dropped > 0 || self.is_solved(STEPS) {
            return None;
        }
        let mean = self.mean(STEPS, |step| step.play.return_mean)?;
        let text = format!(
            "nothing was learned in {STEPS} steps: in each group all returns are equal (mean return {mean:.3}). Make the game \
             easier or its episodes longer (game.options), play larger groups (train.group_size) or more of them \
             (train.groups), or begin with a model that succeeds now and then"
        );
        Some(("no-variance", STEPS as f64, text))
    }

    fn one_action(&self) -> Option<CheckResult> {
        const STEPS: usize = 10;
        let share = self.mean(STEPS, |step| step.play.top_action_share)?;
        let action = &self.last().play.top_action;
        let text = format!(
            "{:.0} % of all actions are `{action}`: the policy has narrowed to one word; use a smaller train.lr, a larger \
             train.beta, or a higher policy.temperature",
            100.0 * share
        );
        (share > 0.95 && !self.is_solved(STEPS)).then_some(("one-action", share, text))
    }

    fn entropy(&self) -> Option<CheckResult> {
        const STEPS: usize = 5;
        let of = |step: &StepMetrics| step.play.replies.map_or(0.0, |r| r.entropy);
        let entropy = self.mean(STEPS, of)?;
        let first = self.first_entropies.iter().sum::<f64>() / self.first_entropies.len() as f64;
        let text = format!(
            "entropy has fallen from {first:.3} to {entropy:.4} nats a token, and the game is not solved: the policy hardly \
             tries anything new; use a smaller train.lr, a larger train.beta, or a higher policy.temperature"
        );
        (entropy < 0.03 * first && !self.is_solved(STEPS)).then_some(("entropy", entropy, text))
    }

    fn kl(&self) -> Option<CheckResult> {
        let kl = self.last().learned?.kl?;
        let before = self.steps.iter().rev().skip(1).take(20);
        let mut before: Vec<f64> = before.filter_map(|s| s.learned?.kl).collect();
        if before.len() < 5 {
            return None;
        }
        before.sort_by(f64::total_cmp);
        let usual = before[before.len() / 2];
        let text = format!(
            "the policy changed sharply: its KL against the reference is {kl:.3} nats a token, before the median was {usual:.3}; use a \
             smaller train.lr or train.max_grad_norm, or a larger train.beta"
        );
        (kl > 2.0 && kl > 20.0 * usual && !self.is_solved(5)).then_some(("kl-spike", kl, text))
    }

    fn ratio(&self) -> Option<CheckResult> {
        let error = self.last().learned?.first_ratio_error;
        let text = format!(
            "the ratio of the first update differs from 1 by up to {error:.4}: play and update compute different log-probs, so \
             training is biased; run `lapwing doctor` to find the fault"
        );
        (error > 1e-3).then_some(("ratio", error, text))
    }

    /// A clipping range that no ratio leaves has no effect. With one update in a step no ratio moves, and none is
    /// expected to.
    fn clip(&self, config: &Config) -> Option<CheckResult> {
        const STEPS: usize = 20;
        let train = &config.train;
        if train.passes * train.minibatches == 1 || self.mean(STEPS, learned)? < 1.0 {
            return None;
        }
        let clipped = self.mean(STEPS, |step| step.learned.map_or(0.0, |l| l.clip_fraction))?;
        let ([low, high], keys) = (train.clip(), train.ratio.clip_keys());
        let text = format!(
            "no ratio was clipped in {STEPS} steps: the range from {} to {} is too wide to bound anything; use smaller {keys}, \
             or learn once from each step (train.passes = 1, train.minibatches = 1)",
            1.0 - low,
            1.0 + high
        );
        (clipped == 0.0).then_some(("clip", STEPS as f64, text))
    }
}

fn learned(step: &StepMetrics) -> f64 {
    f64::from(u8::from(step.learned.is_some()))
}

fn read(turns: &[Turn]) -> usize {
    turns.iter().filter(|turn| turn.action.is_some()).count()
}

/// Describes how many of these replies can be read.
pub fn readable(turns: &[Turn]) -> String {
    let (read, all) = (read(turns), turns.len());
    format!("{read} of {all} sampled replies can be read")
}

/// Returns whether fewer than half of these replies can be read.
pub fn is_unreadable(turns: &[Turn]) -> bool {
    2 * read(turns) < turns.len()
}

/// Returns the settings that make replies readable, as advice.
pub fn cures(config: &Config) -> String {
    // It has learned to say one word, and no other form.
    let is_built_in = matches!(config.model.source(), Ok(ModelSource::BuiltIn));
    if is_built_in && config.policy.reply != ReplyForm::Word {
        return "the built-in model replies with action words only (--set policy.reply=word)"
            .to_owned();
    }
    let imitate = match (config.train.weights, config.warmup.updates) {
        (Weights::All, _) => {
            "let the model imitate recorded episodes first (`lapwing pretrain --from`)".to_owned()
        }
        (_, 0) => "let the model imitate a few episodes first (--warmup)".to_owned(),
        (_, updates) => format!("use more than {updates} updates (--warmup=N)"),
    };
    let word = match config.policy.reply {
        ReplyForm::Word => "",
        _ => " --set policy.reply=word",
    };
    format!(
        "{imitate}, or restrict replies to the action words (--set policy.constrain=true{word})"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use insta::assert_snapshot;

    use super::*;
    use lapwing_learn::config::{LearnerKind, Ratio};
    use lapwing_learn::metrics::UpdateMetrics;
    use lapwing_play::metrics::{PlayMetrics, ReplyMetrics};
    use lapwing_play::{Episode, Turn};

    /// A step of a healthy run.
    fn good(step: usize) -> StepMetrics {
        StepMetrics {
            step,
            play: PlayMetrics {
                valid_action_rate: 1.0,
                success_rate: 0.25,
                top_action: "right".to_owned(),
                top_action_share: 0.4,
                replies: Some(ReplyMetrics {
                    entropy: 1.0,
                    reply_length_mean: 9.0,
                    reply_cut_rate: 0.0,
                }),
                ..PlayMetrics::default()
            },
            learned: Some(UpdateMetrics {
                kl: Some(0.05),
                clip_fraction: 0.1,
                ..UpdateMetrics::default()
            }),
            ..StepMetrics::default()
        }
    }

    /// Returns the warnings of a run with this many good steps followed by this many bad ones.
    fn told(steps: usize, bad: impl Fn(&mut StepMetrics)) -> Vec<Warning> {
        told_of(Config::default(), steps, bad)
    }

    fn told_of(config: Config, steps: usize, bad: impl Fn(&mut StepMetrics)) -> Vec<Warning> {
        let turn = Turn {
            text: "I go\nright".to_owned(),
            unread: (config.policy.reply == ReplyForm::Word).then_some(UnreadReason::UnknownWord),
            ..Turn::default()
        };
        let episode = Episode {
            turns: vec![turn],
            ..Episode::default()
        };
        let group = Group {
            episodes: vec![episode],
            ..Group::default()
        };
        let mut checks = HealthChecks {
            actions: vec!["left".to_owned(), "right".to_owned()],
            ..HealthChecks::default()
        };
        let mut said = Vec::new();
        for number in 1..=2 * steps {
            let mut step = good(number);
            if number > steps {
                bad(&mut step);
            }
            said.extend(checks.look(&step, std::slice::from_ref(&group), &config));
            assert!(number > steps || said.is_empty(), "{said:?}");
        }
        said
    }

    fn replies(step: &mut StepMetrics) -> &mut ReplyMetrics {
        step.play.replies.as_mut().expect("of a model")
    }

    fn update(step: &mut StepMetrics) -> &mut UpdateMetrics {
        step.learned.as_mut().expect("something")
    }

    /// Each check fires once, when it should, and the page has a paragraph for each.
    #[test]
    fn each_sees_what_it_is_there_for() {
        let mut twice = Config::default();
        (twice.train.passes, twice.train.ratio) = (2, Ratio::Turn);
        let mut word = Config::default();
        word.policy.reply = ReplyForm::Word;
        let all = [
            told(20, |step| step.updates_dropped = 1),
            told(20, |step| step.play.valid_action_rate = 0.25),
            told_of(word, 20, |step| step.play.valid_action_rate = 0.25),
            told(20, |step| step.play.valid_action_rate = 0.625),
            told(20, |step| replies(step).reply_cut_rate = 0.5),
            told(20, |step| step.learned = None),
            told(20, |step| step.play.top_action_share = 1.0),
            told(20, |step| replies(step).entropy = 0.01),
            told(20, |step| update(step).kl = Some(5.0)),
            told(20, |step| update(step).first_ratio_error = 0.5),
            told_of(twice, 25, |step| update(step).clip_fraction = 0.0),
        ];
        let said: Vec<&Warning> = all.iter().flatten().collect();
        let lines: Vec<String> = said
            .iter()
            .map(|w| format!("step {} {} {}: {}", w.step, w.check, w.value, w.text))
            .collect();
        assert_snapshot!(lines.join("\n"));
        let page = include_str!("../../../docs/health-checks.md");
        let titles: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        let titles: HashSet<&str> = titles.into_iter().collect();
        let names: HashSet<&str> = said.iter().map(|warning| &*warning.check).collect();
        assert_eq!(titles, names);
    }

    /// In a solved game there is nothing left to learn or to explore.
    #[test]
    fn a_solved_game_is_no_trouble() {
        let solved = |step: &mut StepMetrics| {
            step.play.success_rate = 1.0;
            step.play.top_action_share = 1.0;
            replies(step).entropy = 0.0;
            step.learned = None;
        };
        assert_eq!(told(60, solved).len(), 0);
    }

    /// Checks fire again after a while, and a resumed run has the same warnings as an uninterrupted one.
    #[test]
    fn they_go_on_as_if_nothing_had_happened() {
        let step = |number: usize| {
            let mut step = good(number);
            step.learned = None;
            step
        };
        let config = Config::default();
        let whole = |checks: &mut HealthChecks, from: usize| -> Vec<(usize, f64)> {
            let seen = (from..=120).flat_map(|n| checks.look(&step(n), &[], &config));
            seen.map(|warning| (warning.step, warning.value)).collect()
        };
        let all = whole(&mut HealthChecks::default(), 1);
        assert_eq!(all, [(10, 10.0), (60, 10.0), (110, 10.0)]);
        // The warnings in metrics.jsonl after 80 steps.
        let mut again = HealthChecks::default();
        (1..=80).for_each(|number| again.recall(&Record::Step(step(number))));
        again.recall(&Record::Warning(Warning {
            step: 60,
            check: "no-variance".to_owned(),
            ..Warning::default()
        }));
        assert_eq!(whole(&mut again, 81), [(110, 10.0)]);
    }

    #[test]
    fn update_after_update_that_is_dropped_ends_a_run() {
        let (mut checks, config) = (HealthChecks::default(), Config::default());
        let mut bad = good(1);
        (bad.learned, bad.updates_dropped) = (None, 1);
        for _ in 0..3 {
            for _ in 0..4 {
                checks.look(&bad, &[], &config);
                checks.verdict().unwrap();
            }
            checks.look(&good(2), &[], &config);
        }
        // One of several updates of a step.
        let mut partly = good(3);
        partly.updates_dropped = 1;
        for _ in 0..9 {
            checks.look(&partly, &[], &config);
            checks.verdict().unwrap();
        }
        // Value learners have this check, too.
        let pqn = Config {
            learner: LearnerKind::Pqn,
            ..Config::default()
        };
        let warnings = HealthChecks::default().look(&bad, &[], &pqn);
        assert_eq!(warnings[0].check, "dropped-update");
        for _ in 0..5 {
            checks.look(&bad, &[], &config);
        }
        assert_snapshot!(checks.verdict().unwrap_err(), @"training has diverged: the last 5 updates were dropped because loss or gradient was not finite; start from an earlier state (--adapter, --model if all weights were trained, or value.network for dqn and pqn) with a smaller train.lr");
    }

    #[test]
    fn advice_suits_the_config() {
        let of = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|it| (*it).to_owned()).collect();
            cures(&Config::load("frozen-lake", &settings).unwrap())
        };
        let word = ", or restrict replies to the action words (--set policy.constrain=true)";
        let first = "let the model imitate a few episodes first (--warmup)";
        assert_eq!(of(&[]), format!("{first}{word}"));
        let tags = ", or restrict replies to the action words (--set policy.constrain=true --set policy.reply=word)";
        let other = ["policy.reply=tags", "model.dir=mine"];
        assert_eq!(of(&other), format!("{first}{tags}"));
        assert_eq!(
            of(&["policy.reply=tags"]),
            "the built-in model replies with action words only (--set policy.reply=word)"
        );
        let more = "use more than 7 updates (--warmup=N)";
        assert_eq!(of(&["warmup.updates=7"]), format!("{more}{word}"));
        assert!(
            of(&["train.weights=all"]).starts_with("let the model imitate recorded episodes first")
        );
    }
}
