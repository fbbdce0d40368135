//! Tests of training as a whole, with the built-in model.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use lapwing_env::{Game, GameError, Scenario};
use lapwing_lab::pretrain::{PretrainOptions, pretrain};
use lapwing_learn::batch;
use lapwing_learn::batch::{SelectedEpisode, pack, pack_all};
use lapwing_learn::config::Aggregation;
use lapwing_learn::metrics::{StepMetrics, UpdateMetrics};
use lapwing_model::Tokens;
use lapwing_play::evaluate::baselines;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::players::scripted::word;
use lapwing_play::{ActionRequest, PlayError, Player, Referee, Reply, Seat};
use lapwing_tensor::{Indices, check::gpu};
use lapwing_train::learner::Learner;
use lapwing_train::record::directory::RunDirectory;
use lapwing_train::record::{Record, RecordError, Sink};
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::trainer::{TrainingEnd, train};
use lapwing_train::{Config, Error};
use serde_json::Value;

pub(crate) fn config(changes: &[&str]) -> Config {
    preset("frozen-lake", changes)
}

fn preset(name: &str, changes: &[&str]) -> Config {
    let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
    Config::load(name, &changes).unwrap()
}

pub(crate) fn state(config: Config) -> State {
    State::new(&gpu(), None, config, RunPurpose::Train, &()).unwrap()
}

/// Trains and returns the lines of `metrics.jsonl`.
fn lines(config: Config) -> Result<Vec<String>, Error> {
    run_in(tempfile::tempdir().unwrap().path(), config)
}

/// Does the same, keeping the run in this directory.
fn run_in(dir: &Path, config: Config) -> Result<Vec<String>, Error> {
    train_in(dir, &mut state(config), &mut [])?;
    let text = std::fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    assert!(dir.join("adapter/adapter_model.safetensors").exists());
    Ok(text.lines().map(str::to_owned).collect())
}

fn train_in(
    dir: &Path,
    state: &mut State,
    sinks: &mut [&mut dyn Sink],
) -> Result<TrainingEnd, Error> {
    let mut run = RunDirectory::create(dir, &state.config)?;
    train(state, &mut run, sinks, &(), &AtomicBool::new(false))
}

/// Returns the training steps among these lines, with their updates.
fn steps(lines: &[String]) -> Vec<(StepMetrics, UpdateMetrics)> {
    let step = |line: &String| match serde_json::from_str(line).unwrap() {
        Record::Step(step) => Some((step.learned.expect("something was learned"), step)),
        _ => None,
    };
    lines
        .iter()
        .filter_map(step)
        .map(|(learned, step)| (step, learned))
        .collect()
}

pub(crate) fn seats(count: u64) -> Vec<Seat> {
    (0..count).map(Seat::of).collect()
}

fn without_times(line: &str) -> Value {
    let mut value: Value = serde_json::from_str(line).unwrap();
    value
        .as_object_mut()
        .unwrap()
        .retain(|key, _| !key.starts_with("seconds_") && key != "time");
    value
}

/// Lakes with few holes, so that returns differ in each step.
const SMALL: [&str; 6] = [
    "game.options.frozen=0.95",
    "train.steps=3",
    "train.groups=2",
    "train.group_size=12",
    "eval.episodes=10",
    "eval.every=2",
];

#[test]
fn two_runs_with_one_seed_are_the_same_to_the_last_digit() {
    let first = lines(config(&SMALL)).unwrap();
    let again = lines(config(&SMALL)).unwrap();
    // the baselines, three steps, evaluations before step 0 and step 2 and at the end
    assert_eq!(first.len(), 7, "{first:#?}");
    for (a, b) in first.iter().zip(&again) {
        assert_eq!(without_times(a), without_times(b));
    }
}

#[test]
fn another_seed_gives_another_run() {
    let first = lines(config(&SMALL)).unwrap();
    let other = lines(config(&[&SMALL[..], &["train.seed=2"]].concat())).unwrap();
    assert_ne!(without_times(&first[2]), without_times(&other[2]));
}

/// The rollout reads keys and values from an arena that grew step by step; the update runs one packed tree. Both must
/// give bit-identical log-probs, so that the ratio of the first update is exactly 1.
#[test]
fn the_ratio_of_the_first_update_is_one() {
    // Two tokens a reply, so that replies are in the tree, too.
    let config = config(&[
        "train.groups=3",
        "train.group_size=8",
        "policy.max_new_tokens=2",
    ]);
    let mut state = state(config);
    let seat = |i| Seat {
        scene: i / 8,
        luck: i,
        reply: i,
    };
    let seats: Vec<Seat> = (0..24).map(seat).collect();
    let episodes = state
        .learner
        .play(&state.config.policy, 0, &seats, 1.0, &())
        .unwrap();
    let ones = [1.0; 20];
    let chosen: Vec<_> = episodes
        .iter()
        .map(|episode| SelectedEpisode {
            episode,
            advantages: &ones,
            entropy_weight: 0.0,
        })
        .collect();
    let over = batch::count(episodes.iter(), Aggregation::Token);
    for limit in [8192, 300] {
        for batch in pack(&chosen, Aggregation::Token, over, limit) {
            let (model, adapter) = (
                &state.learner.policy.model,
                state.learner.policy.adapter.as_ref(),
            );
            let hidden = model.forward(&Tokens::new(&gpu(), &batch.tree), adapter);
            let (rows, targets) = (
                Indices::new(&gpu(), &batch.rows),
                Indices::new(&gpu(), &batch.targets),
            );
            let new = hidden
                .log_probs(&model.head(adapter), &rows, &targets, &[], 1.0)
                .log_probs
                .to_vec()
                .unwrap();
            for token in &batch.tokens {
                assert_eq!(
                    new[token.pair as usize].to_bits(),
                    token.old.to_bits(),
                    "limit {limit}"
                );
            }
        }
    }
}

/// The lake with longer words, one of which begins another.
#[derive(Debug)]
pub(crate) struct WordyLake(Box<dyn Scenario>, [String; 4]);

impl WordyLake {
    pub(crate) fn new() -> WordyLake {
        let lake = config(&["game.options.frozen=0.95"]).game.scenario();
        let words = ["left", "left up down", "down left", "up up"];
        WordyLake(lake.unwrap(), words.map(str::to_owned))
    }
}

impl Scenario for WordyLake {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn rules(&self) -> String {
        self.0.rules()
    }

    fn actions(&self) -> &[String] {
        &self.1
    }

    fn start(&self, scene: u64, luck: u64) -> Result<Box<dyn Game>, GameError> {
        self.0.start(scene, luck)
    }

    fn step_limit(&self) -> usize {
        self.0.step_limit()
    }

    fn options(&self) -> Value {
        self.0.options()
    }
}

fn wordy(changes: &[&str]) -> Result<State, Error> {
    let all = ["policy.constrain=true", "policy.max_new_tokens=3"];
    let config = config(&[&all[..], &SMALL[..], changes].concat());
    let game = Box::new(WordyLake::new());
    State::with_games(&gpu(), None, vec![game], config, RunPurpose::Train, &())
}

/// Also at a temperature at which any token is nearly as likely as any other, as in an untrained model. Without the
/// constraint the same replies are unreadable.
#[test]
fn a_constrained_policy_replies_with_actions_only() {
    let mut state = wordy(&[]).unwrap();
    let seats = seats(16);
    let (mut ended, mut complete, mut forced) = (0, 0, 0);
    for temperature in [0.0, 0.5, 1000.0] {
        let episodes = state
            .learner
            .play(&state.config.policy, 0, &seats, temperature, &())
            .unwrap();
        for turn in episodes.iter().flat_map(|episode| &episode.turns) {
            assert!(turn.action.is_some(), "{turn:?}");
            let reply = turn.sampled.as_ref().unwrap();
            let allowed = reply.allowed.as_ref().unwrap();
            for (place, id) in reply.ids.iter().enumerate() {
                let set = allowed.after(&reply.ids[..place]);
                assert!(set.contains(id), "{turn:?}");
                if set.len() == 1 {
                    forced += 1;
                    assert_eq!(reply.log_probs[place], 0.0);
                    assert!(reply.entropies[place].abs() < 1e-6, "{reply:?}");
                }
            }
            assert!(!reply.cut && allowed.after(&reply.ids).is_empty());
            match turn.action {
                // The word alone, so it was ended with a token.
                Some(0) => ended += 1,
                _ => complete += 1,
            }
        }
        if temperature == 0.0 {
            continue;
        }
        let policy = &state.learner.policy;
        for batch in pack_all(episodes.iter(), 300) {
            let packed = batch.on(&gpu());
            let now = packed.log_probs(&policy.model, policy.adapter.as_ref(), temperature as f32);
            let now = now.to_vec().unwrap();
            for token in &batch.tokens {
                assert_eq!(now[token.pair as usize].to_bits(), token.old.to_bits());
            }
        }
    }
    assert!(
        ended.min(complete).min(forced) > 10,
        "{ended} {complete} {forced}"
    );

    let mut free = wordy(&["policy.constrain=false"]).unwrap();
    let episodes = free
        .learner
        .play(&free.config.policy, 0, &seats, 1000.0, &())
        .unwrap();
    let mut turns = episodes.iter().flat_map(|episode| &episode.turns);
    assert!(turns.all(|turn| turn.action.is_none()));
}

/// With several updates in a step, ratios and the KL penalty belong to the restricted distribution, too.
#[test]
fn a_constrained_policy_learns() {
    let more = [
        "train.passes=2",
        "train.minibatches=2",
        "train.beta=0.05",
        // At 1 no episode of these steps succeeds.
        "policy.temperature=10",
    ];
    let mut state = wordy(&more).unwrap();
    for step in 0..2 {
        let (metrics, _) = state.learner.step(&state.config, step, &()).unwrap();
        let learned = metrics.learned.expect("returns that differ");
        assert_eq!(learned.first_ratio_error, 0.0);
        let kl = learned.kl.unwrap();
        assert!(
            (0.0..0.5).contains(&kl) && learned.grad_norm > 0.0,
            "{learned:?}"
        );
        assert_eq!(metrics.play.valid_action_rate, 1.0);
    }
}

#[test]
fn a_constraint_that_cannot_be_kept_is_refused() {
    let error = |changes: &[&str]| wordy(changes).err().unwrap().to_string();
    insta::assert_snapshot!(error(&["policy.max_new_tokens=2"]), @r#"key `policy.max_new_tokens`: found 2, wanted at least 3, because the reply "left up down" takes as many tokens of this model: --set policy.max_new_tokens=3"#);
}

#[test]
fn merging_pays_at_the_default_preset() {
    let lines = lines(config(&["train.steps=2", "eval.episodes=4"])).unwrap();
    let steps = steps(&lines);
    assert_eq!(steps.len(), 2);
    for (step, learned) in steps {
        let (played, computed) = (step.tokens_played.unwrap(), step.tokens_computed.unwrap());
        assert!(4 * computed <= played, "{step:?}");
        assert_eq!(
            learned.clip_fraction, 0.0,
            "nothing is clipped at a ratio of 1"
        );
    }
}

/// The reference is the model without its adapter, so the KL is zero before the first update and positive after it.
#[test]
fn the_kl_is_that_against_the_model_without_its_adapter() {
    let lines = lines(config(&SMALL)).unwrap();
    let kl: Vec<f64> = steps(&lines)
        .iter()
        .map(|(_, learned)| learned.kl.unwrap())
        .collect();
    assert_eq!(kl[0], 0.0, "{kl:?}");
    assert!(kl[1] > 1e-6 && kl[2] > kl[1], "{kl:?}");
}

/// Smaller micro-batches change an update by rounding only.
#[test]
fn an_update_in_small_batches_is_the_update_in_one() {
    let norm = |tokens: &str| {
        let limit = format!("train.tokens_per_batch={tokens}");
        let lines = lines(config(&[&SMALL[..], &["train.steps=1", &limit]].concat())).unwrap();
        let (_, learned) = steps(&lines)[0];
        (learned.grad_norm, learned.loss)
    };
    let (whole, parts) = (norm("8192"), norm("200"));
    assert!(whole.0 > 0.0);
    // A gradient summed in other groups: f32 rounding over a few hundred terms.
    assert!(
        (whole.0 / parts.0 - 1.0).abs() < 1e-4,
        "{whole:?} against {parts:?}"
    );
    assert!(
        (whole.1 - parts.1).abs() < 1e-5,
        "{whole:?} against {parts:?}"
    );
}

/// The same command makes the same built-in model again.
#[test]
fn pretraining_twice_gives_the_same_files() {
    let make = || {
        let dir = tempfile::tempdir().unwrap();
        let how = PretrainOptions {
            steps: 2,
            ..PretrainOptions::default()
        };
        let mut losses = Vec::new();
        pretrain(&gpu(), &how, dir.path(), |progress| {
            losses.push(progress.loss)
        })
        .unwrap();
        assert!(losses.iter().all(|loss| loss.is_finite()));
        let mut files: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (
                    path.file_name().unwrap().to_owned(),
                    std::fs::read(&path).unwrap(),
                )
            })
            .collect();
        files.sort();
        files
    };
    let (first, again) = (make(), make());
    assert_eq!(first.len(), 6);
    // Everything but the weights matches the built-in model; a change of the games' texts means that it must be made
    // again.
    let base = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/base"));
    for (name, made) in &first {
        if name != "model.safetensors" {
            let built_in = std::fs::read(base.join(name)).unwrap();
            assert!(
                *made == built_in,
                "fixtures/base: {} is out of date",
                name.display()
            );
        }
    }
    for ((name, a), (other, b)) in first.iter().zip(&again) {
        assert_eq!(name, other);
        assert!(a == b, "{} differs", name.display());
    }
}

/// Always makes the same move.
struct BlindPlayer(usize);

impl Player for BlindPlayer {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        Ok(asks.iter().map(|ask| word(ask, self.0)).collect())
    }
}

/// The built-in model can read and cannot play: sampled and greedy, it is no better on any preset than the random player, or than the
/// best of the players that always make the same move. (To go right only succeeds in a fifth of the slippery lakes.)
#[test]
fn the_built_in_model_does_not_play() {
    let lakes = ["frozen-lake", "frozen-lake-slippery", "frozen-lake-large"];
    for name in lakes.into_iter().chain(["snake", "snake-standard"]) {
        let is_lake = lakes.contains(&name);
        let mut state = state(preset(name, &["eval.episodes=200"]));
        let seats = state.evaluation_seats().unwrap();
        let mut play = |temperature| {
            let (learner, policy) = (&mut state.learner, &state.config.policy);
            let played = learner.play(policy, 0, &seats, temperature, &());
            (temperature, played.unwrap())
        };
        let played = [1.0, 0.0].map(&mut play);
        let scenario = &*state.world().scenario;
        let referee = Referee::of(scenario, 0.0);
        let random = baselines(scenario, &referee, &seats, 1)
            .unwrap()
            .random
            .unwrap();
        let actions = scenario.actions().to_vec();
        let blind: Vec<PlayMetrics> = (0..actions.len())
            .map(|action| {
                let mut players: [&mut dyn Player; 1] = [&mut BlindPlayer(action)];
                let played = referee.play(scenario, &seats, &mut players, &mut |_| ());
                PlayMetrics::of(&actions, &played.unwrap())
            })
            .collect();
        for (temperature, episodes) in played {
            let played = PlayMetrics::of(&actions, &episodes);
            let told =
                format!("{name} at temperature {temperature}: {played:?}; random: {random:?}");
            assert!(played.valid_action_rate > 0.99, "{told}");
            let told = format!("{told}; blind: {blind:?}");
            let is_no_better = |score: fn(&PlayMetrics) -> f64, by: f64| {
                let best = blind.iter().map(score).fold(score(&random), f64::max);
                assert!(score(&played) <= best + by, "{told}");
            };
            match is_lake {
                true => is_no_better(|it| it.success_rate, 0.05),
                // Four standard errors of the difference between two means of 200 returns.
                false => is_no_better(|it| it.return_mean, 0.4),
            }
        }
    }
}

/// Training starts from an adapter: its first evaluation equals the last one before, and the reference is that adapter,
/// so the KL starts at zero again.
#[test]
fn training_goes_on_from_an_adapter() {
    let home = tempfile::tempdir().unwrap();
    let small = [&SMALL[..], &["train.lr=0.003"]].concat();
    let first = run_in(&home.path().join("first"), config(&small)).unwrap();
    let adapter = home.path().join("first/adapter");
    let on = format!("model.adapter={:?}", adapter.to_str().unwrap());
    // Then [lora] has no effect.
    let config = config(&[&small[..], &[&on, "lora.rank=3"]].concat());
    let second = run_in(&home.path().join("second"), config.clone()).unwrap();
    let evaluation = |line: &str| {
        let mut value = without_times(line);
        assert_eq!(value["kind"], "evaluation");
        value.as_object_mut().unwrap().remove("step");
        value
    };
    // The first line has the baselines.
    assert_eq!(evaluation(&second[1]), evaluation(first.last().unwrap()));
    let kl = |lines: &[String], step: usize| steps(lines)[step].1.kl.unwrap();
    assert!(kl(&first, 2) > 1e-4);
    assert_eq!(kl(&second, 0), 0.0);
    assert!(kl(&second, 2) > 0.0);

    let rank = |run: &str| {
        let path = home.path().join(run).join("adapter/adapter_config.json");
        serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap()["r"].clone()
    };
    assert_eq!(rank("second"), rank("first"));
    // It plays with the adapter.
    let state = State::new(&gpu(), None, config, RunPurpose::Play, &()).unwrap();
    assert!(state.learner.parameters.is_none() && state.learner.policy.adapter.is_some());
}

/// A snapshot that is restored in another state continues identically.
#[test]
fn a_state_put_together_again_goes_on_the_same() {
    let lora = ["train.lr=0.003", "train.weights=lora"];
    let all = [
        "train.lr=0.0003",
        "train.weights=all",
        "train.optimiser=adamw",
    ];
    restored_in_another(&lora);
    restored_in_another(&all);
}

fn restored_in_another(changes: &[&str]) {
    let config = |seed| config(&[&SMALL[..], changes, &[seed]].concat());
    let steps = |state: &mut State, count: usize| -> Vec<StepMetrics> {
        let step = |_| {
            let (metrics, _) = state.learner.step(&state.config, state.step, &()).unwrap();
            state.step += 1;
            assert!(metrics.learned.is_some());
            StepMetrics {
                time: 0.0,
                seconds_rollout: 0.0,
                seconds_update: 0.0,
                ..metrics
            }
        };
        (0..count).map(step).collect()
    };
    let mut whole = state(config("train.seed=1"));
    steps(&mut whole, 2);
    let snapshot = whole.snapshot().unwrap();
    let after = steps(&mut whole, 2);

    // Another state, with other weights, at another step.
    let mut other = state(config("train.seed=9"));
    steps(&mut other, 1);
    other.config = config("train.seed=1");
    other.restore(&snapshot);
    assert_eq!(after, steps(&mut other, 2));
    assert_eq!(other.snapshot().unwrap(), whole.snapshot().unwrap());
}

/// Keeps nothing, and returns this error after this many steps.
struct Failing(usize, fn() -> RecordError);

impl Sink for Failing {
    fn record(&mut self, record: &Record) -> Result<(), RecordError> {
        if record.step() < self.0 {
            Ok(())
        } else {
            Err(self.1())
        }
    }
}

fn full_disk() -> RecordError {
    let reason = std::io::ErrorKind::StorageFull.into();
    RecordError::Write {
        path: "metrics.jsonl".into(),
        reason,
    }
}

fn diverged() -> RecordError {
    RecordError::NotFinite {
        step: 3,
        metric: "kl".to_owned(),
    }
}

fn weights(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join("adapter_model.safetensors")).unwrap()
}

/// An error loses nothing that was learned before it.
#[test]
fn an_error_does_not_lose_what_was_learned() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("run");
    let mut run = state(config(&[&SMALL[..], &["train.lr=0.003"]].concat()));
    let error = train_in(&dir, &mut run, &mut [&mut Failing(3, full_disk)]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("metrics.jsonl: cannot be written"),
        "{error}"
    );
    assert_eq!(run.step, 3);
    let saved = weights(&dir.join("adapter"));
    run.save(&home.path().join("now")).unwrap();
    assert!(
        saved == weights(&home.path().join("now")),
        "not as it was after the third step"
    );
}

/// A diverged adapter is not saved: the adapter of the last evaluation stays, which came after the second step; or, if
/// the weights are not finite, the first one.
#[test]
fn a_diverged_adapter_does_not_replace_a_good_one() {
    let home = tempfile::tempdir().unwrap();
    let dir = |name: &str| home.path().join(name);
    let adapter = |name: &str| weights(&dir(name).join("adapter"));
    // The rate of a step does not depend on the number of steps.
    let changes = [&SMALL[..], &["train.lr_end=1"]].concat();
    let mut three = state(config(&changes));
    train_in(&dir("three"), &mut three, &mut [&mut Failing(3, diverged)]).unwrap_err();
    let mut two = state(config(&[&changes[..], &["train.steps=2"]].concat()));
    train_in(&dir("two"), &mut two, &mut []).unwrap();
    assert!(adapter("three") == adapter("two"));

    let mut run = state(config(
        &[&changes[..], &["train.lr=1e38", "train.steps=40"]].concat(),
    ));
    run.save(&home.path().join("fresh")).unwrap();
    let error = train_in(&dir("wild"), &mut run, &mut []).unwrap_err();
    assert!(run.step < 40 && error.is_divergence(), "{error}");
    assert!(
        adapter("wild") == weights(&home.path().join("fresh")),
        "{error}"
    );
}

/// Several passes in several minibatches: each is an update, and from the second on the policy differs from the one
/// that played.
#[test]
fn passes_and_minibatches_are_updates() {
    let more = [
        "train.passes=2",
        "train.minibatches=3",
        "train.lr=0.003",
        "train.steps=1",
    ];
    let mut run = state(config(&[&SMALL[..], &more].concat()));
    let learned = run
        .learner
        .step(&run.config, run.step, &())
        .unwrap()
        .0
        .learned
        .unwrap();
    assert_eq!(run.learner.parameters.as_ref().unwrap().steps(), 6);
    assert!(
        learned.kl > Some(0.0) && learned.clip_fraction > 0.0,
        "{learned:?}"
    );
    assert!(learned.grad_norm.is_finite() && learned.loss.is_finite());
}

/// If all replies are equally good, nothing is learned, and the metrics show it.
#[test]
fn a_step_that_learns_nothing_says_so() {
    // A goal that cannot be reached in one turn.
    let nothing = [
        "game.options.map=[\"SFG\"]",
        "game.options.step_limit=1",
        "policy.format_penalty=0",
    ];
    let lines = lines(config(&[&SMALL[1..], &nothing].concat())).unwrap();
    // After the baselines and an evaluation.
    let step: Value = serde_json::from_str(&lines[2]).unwrap();
    assert_eq!(step["groups_skipped"], 2);
    for key in ["kl", "loss", "grad_norm", "clip_fraction", "lr"] {
        assert!(step.get(key).is_none(), "{key} in {step}");
    }
}

/// Groups play the other game at about its share, and the metrics name it; a mixture that is never played changes
/// nothing.
#[test]
fn another_game_is_mixed_in_at_its_share() {
    let mixed = |steps: usize, mix: &str| {
        config(&[
            &format!("train.steps={steps}"),
            "train.groups=10",
            "train.group_size=2",
            "train.learn=1",
            "eval.episodes=2",
            "eval.every=0",
            mix,
        ])
    };
    let often = "mix=[{name=\"snake\", share=0.3, options={size=5, step_limit=3}}]";
    let all = lines(mixed(6, often)).unwrap();
    let mut counts = [0, 0];
    for (step, _) in steps(&all) {
        assert_eq!(
            step.games.iter().map(|game| game.episodes).sum::<usize>(),
            20
        );
        for game in &step.games {
            let place = ["frozen-lake", "snake with size = 5, step_limit = 3"]
                .iter()
                .position(|&name| name == game.game);
            counts[place.unwrap()] += game.episodes / 2;
        }
    }
    // 60 groups at 0.3: 18, with a standard deviation of 3.5.
    assert_eq!(counts[0] + counts[1], 60);
    assert!((8..=28).contains(&counts[1]), "{counts:?}");

    let without = lines(mixed(3, "mix=[]")).unwrap();
    let never = lines(mixed(3, "mix=[{name=\"snake\", share=1, from=100}]")).unwrap();
    for ((step, learned), (same, also)) in steps(&without).into_iter().zip(steps(&never)) {
        assert!(step.games.is_empty());
        assert_eq!((step.play, learned), (same.play, also));
    }
}

/// The recorded run.
fn trajectory() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/trajectory.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Its twenty steps, evaluated before and after: two tests use them.
fn twenty_steps() -> &'static [String] {
    static LINES: OnceLock<Vec<String>> = OnceLock::new();
    LINES.get_or_init(|| {
        let settings: Vec<String> =
            serde_json::from_value(trajectory()["settings"].clone()).unwrap();
        let mut changes = vec!["train.steps=20", "eval.episodes=100", "eval.every=0"];
        changes.extend(settings.iter().map(String::as_str));
        lines(config(&changes)).unwrap()
    })
}

/// The main method learns: success on held-out scenes rises by far more than chance allows (its standard error is at
/// most 0.05 each time; seed 1 rises by 0.45). It does not with the advantage negated. With the former built-in model it did not
/// with the adapter's gradient dropped, or with the first row of the packed tree in the place of each, either. It did with
/// rows that were off by one, because these contain the state, too; but then no ratio is 1 where it must be.
#[test]
fn a_trained_policy_is_worth_more_than_chance() {
    let evaluation = |line: &String| match serde_json::from_str(line).unwrap() {
        Record::Evaluation(evaluation) => evaluation.play,
        other => panic!("{other:?}"),
    };
    let lines = twenty_steps();
    let (before, after) = (evaluation(&lines[1]), evaluation(lines.last().unwrap()));
    assert!(
        after.success_rate > before.success_rate + 0.15,
        "{before:?} and {after:?}"
    );
    let (_, first) = steps(lines)[0];
    assert_eq!(
        first.clip_fraction, 0.0,
        "the policy that is learned from is the one that played"
    );
}

/// The returns and gradient norms of the recorded run, the default one with AdamW, because Muon enlarges rounding. Devices
/// round differently, and runs part once a token is drawn differently. So the device of the recorded run must agree to the end,
/// and any other in the first steps and in the final success.
#[test]
fn the_default_run_goes_as_it_went() {
    let known = trajectory();
    let is_same_adapter = known["adapter"] == gpu().caps().name.as_str();
    let known: Vec<[f64; 2]> = serde_json::from_value(known["return_and_norm"].clone()).unwrap();
    let steps = steps(twenty_steps());
    let went: Vec<[f64; 2]> = steps
        .iter()
        .map(|(step, learned)| [step.play.composite_return_mean, learned.grad_norm])
        .collect();
    let told = || format!("the run went {}", serde_json::to_string(&went).unwrap());
    assert_eq!((went.len(), known.len()), (20, 20), "{}", told());
    // Sums of some thousand f32 terms, which vary with their order and with fused products.
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b.abs().max(0.1);
    let follows = if is_same_adapter { 20 } else { 3 };
    println!("compared {follows} of 20 steps with the known run");
    for (number, (went, known)) in went.iter().zip(&known).enumerate().take(follows) {
        let same = near(went[0], known[0]) && near(went[1], known[1]);
        assert!(
            same,
            "step {}: {went:?} for {known:?}; {}",
            number + 1,
            told()
        );
    }
    let late = |run: &[[f64; 2]]| run[15..].iter().map(|step| step[0]).sum::<f64>() / 5.0;
    // Runs of other seeds end up to 0.09 apart.
    assert!((late(&went) - late(&known)).abs() < 0.2, "{}", told());
}
