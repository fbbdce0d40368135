//! Turn-level PPO, on the base model.

use std::collections::HashMap;

use lapwing_tensor::ParameterState;

use super::*;
use crate::testing::TestSettings;

struct Run {
    learner: LanguageLearner,
    settings: TestSettings,
    step: usize,
}

fn run(changes: &[&str]) -> Run {
    let own = [
        "credit.method=critic",
        "train.groups=2",
        "train.group_size=12",
    ];
    let settings = TestSettings::load("frozen-lake", &[&own, changes].concat());
    Run {
        learner: settings.language(),
        settings,
        step: 0,
    }
}

impl Run {
    fn advance(&mut self) -> (StepMetrics, Vec<Group>) {
        let options = self.settings.options();
        self.step += 1;
        step(&mut self.learner, &options, self.step - 1, &()).unwrap()
    }

    fn weights(&self) -> Vec<ParameterState> {
        self.learner.parameters.as_ref().unwrap().state().unwrap()
    }

    fn critic_weights(&self) -> Vec<ParameterState> {
        let critic = self.learner.critic.as_ref().unwrap();
        critic.parameters.state().unwrap()
    }
}

fn explained(metrics: &StepMetrics) -> f64 {
    let critic = metrics.critic.expect("a critic");
    critic.explained_variance.expect("returns differ")
}

/// The explained variance of a table: the mean return to go in each state. No function of the state explains more of these
/// turns.
fn explained_by_a_table(groups: &[Group], gamma: f64) -> f64 {
    let mut states: HashMap<&[u32], Vec<f64>> = HashMap::new();
    for episode in groups.iter().flat_map(|group| &group.episodes) {
        let mut to_go = 0.0;
        for turn in episode.turns.iter().rev() {
            to_go = turn.reward + turn.shaping + gamma * to_go;
            let sampled = turn.sampled.as_ref().expect("a model's turn");
            states.entry(&sampled.prompt).or_default().push(to_go);
        }
    }
    let square = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
    };
    let all: Vec<f64> = states.values().flatten().copied().collect();
    1.0 - states.values().map(|of| square(of)).sum::<f64>() / square(&all)
}

/// The policy stays as it is, on one map, but its random actions decide most. A critic that was trained on twenty times as
/// many turns as a step has should explain half of what a table of the step's own turns explains.
#[test]
fn the_critic_learns_the_returns() {
    let mut run = run(&[
        "critic.warmup=30",
        "train.groups=4",
        "train.group_size=40",
        "critic.lr=0.003",
        "credit.lambda=1",
        "game.options.map=[\"SFF\", \"FFH\", \"HFG\"]",
    ]);
    let mut all = Vec::new();
    for _ in 0..20 {
        let (metrics, groups) = run.advance();
        let table = explained_by_a_table(&groups, run.settings.credit.gamma);
        all.push((explained(&metrics), table));
    }
    assert_eq!(all[0].0, 0.0, "all values are equal at first");
    let mean = |of: fn(&(f64, f64)) -> f64| all[16..].iter().map(of).sum::<f64>() / 4.0;
    let (critic, table) = (mean(|both| both.0), mean(|both| both.1));
    assert!(critic > 0.5 * table && table > 0.05, "{all:?}");
}

#[test]
fn during_the_warmup_of_the_critic_the_policy_is_not_trained() {
    let mut run = run(&["critic.warmup=2", "train.entropy_band=[2, 3]"]);
    let before = run.weights();
    for _ in 0..2 {
        let known = run.critic_weights();
        let (metrics, _) = run.advance();
        assert!(metrics.is_warmup());
        assert_eq!((metrics.learned, metrics.groups_skipped), (None, Some(0)));
        // It was not used.
        assert_eq!(metrics.entropy_weight, None);
        assert_ne!(run.critic_weights(), known);
    }
    // Including the moments.
    assert_eq!(run.weights(), before);
    assert_eq!(run.learner.parameters.as_ref().unwrap().steps(), 0);
    assert_eq!(run.learner.updates(), 20);
    let (metrics, _) = run.advance();
    assert!(metrics.learned.is_some() && !metrics.is_warmup());
    assert_ne!(run.weights(), before);
    assert_eq!(run.learner.updates(), 31);
}

/// With equal advantages the policy gets the same update as in MS-GRPO.
#[test]
fn the_policy_is_updated_as_in_ms_grpo() {
    // V = 0, no discount, lambda 1: the return to go of the first turn is the return of the episode.
    let settings = [
        "critic.warmup=0",
        "critic.lr=0",
        "credit.gamma=1",
        "credit.lambda=1",
        "credit.normalise=mean",
        "train.sampling=all",
    ];
    let mut ours = run(&settings);
    let (_, groups) = ours.advance();
    for (episode, advantage) in groups
        .iter()
        .flat_map(|g| g.episodes.iter().zip(&g.advantages))
    {
        let whole = episode.composite_return();
        assert!((advantage.turns[0] - whole).abs() < 1e-9);
    }

    // The same groups, with the update alone.
    let mut theirs = run(&settings);
    let (learner, options) = (&mut theirs.learner, theirs.settings.options());
    let mut played = rollout(learner, &options, 0, &()).unwrap().groups;
    for (own, group) in groups.iter().zip(&mut played) {
        assert_eq!(own.episodes, group.episodes);
        group.advantages.clone_from(&own.advantages);
        group.entropy_weight = own.entropy_weight;
    }
    select(&mut played, options.train, 0);
    update(learner, &options, 0, &played, &()).unwrap();
    assert_eq!(theirs.weights(), ours.weights());
}
