//! What must hold of training as a whole, on the embedded base.

use std::path::Path;

use lapwing::batch::{Chosen, pack};
use lapwing::config::Aggregation;
use lapwing::ms_grpo::train;
use lapwing::pretrain::{Pretraining, pretrain};
use lapwing::progress::Progress;
use lapwing::report::{Report, StepMetrics};
use lapwing::rollout::Seat;
use lapwing::run::{Purpose, Run};
use lapwing::run_dir::RunDir;
use lapwing::{Config, Error};
use lapwing_model::Tokens;
use lapwing_tensor::{Indices, testing::gpu};
use serde_json::Value;

fn config(changes: &[&str]) -> Config {
    let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
    Config::load("frozen-lake", &changes).unwrap()
}

/// Trains and returns the lines of `metrics.jsonl`.
fn lines(config: Config) -> Result<Vec<String>, Error> {
    run_in(tempfile::tempdir().unwrap().path(), config)
}

/// The same, keeping the run in this directory.
fn run_in(dir: &Path, config: Config) -> Result<Vec<String>, Error> {
    let steps = config.train.steps;
    let run_dir = RunDir::create(dir, &config)?;
    let mut report = Report::new(run_dir, Progress::hidden(), steps);
    let mut run = Run::new(&gpu(), config, Purpose::Train, &Progress::hidden())?;
    train(&mut run, &mut report)?;
    let text = std::fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    assert!(dir.join("adapter/adapter_model.safetensors").exists());
    Ok(text.lines().map(str::to_owned).collect())
}

fn without_times(line: &str) -> Value {
    let mut value: Value = serde_json::from_str(line).unwrap();
    value
        .as_object_mut()
        .unwrap()
        .retain(|key, _| !key.starts_with("seconds_"));
    value
}

const SMALL: [&str; 5] = [
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
    // three steps, evaluations before step 0 and step 2 and at the end
    assert_eq!(first.len(), 6, "{first:#?}");
    for (a, b) in first.iter().zip(&again) {
        assert_eq!(without_times(a), without_times(b));
    }
}

#[test]
fn another_seed_gives_another_run() {
    let first = lines(config(&SMALL)).unwrap();
    let other = lines(config(&[&SMALL[..], &["train.seed=2"]].concat())).unwrap();
    assert_ne!(without_times(&first[1]), without_times(&other[1]));
}

/// The rollout reads keys and values from an arena that grew step by step, the update runs one packed tree. Both must
/// give the same log-prob for the same token, to the last bit: then the ratio of the first update is exactly 1.
#[test]
fn the_ratio_of_the_first_update_is_one() {
    // Two tokens a reply, so that replies are in the tree too.
    let config = config(&[
        "train.groups=3",
        "train.group_size=8",
        "policy.max_new_tokens=2",
    ]);
    let mut run = Run::new(&gpu(), config, Purpose::Train, &Progress::hidden()).unwrap();
    let seats: Vec<Seat> = (0..24)
        .map(|i| Seat {
            scene: i / 8,
            luck: i,
            reply: i,
        })
        .collect();
    let episodes = run.play(&seats, 1.0, |_| ()).unwrap();
    let chosen: Vec<_> = episodes
        .iter()
        .map(|episode| Chosen {
            episode,
            advantage: 1.0,
            importance: 1.0,
        })
        .collect();
    for limit in [8192, 300] {
        for batch in pack(&chosen, Aggregation::Token, limit) {
            let (model, adapter) = (&run.agent.model, run.agent.adapter.as_ref());
            let hidden = model.forward(&Tokens::new(&gpu(), &batch.tree), adapter);
            let (rows, targets) = (
                Indices::new(&gpu(), &batch.rows),
                Indices::new(&gpu(), &batch.targets),
            );
            let new = hidden
                .log_probs(&model.head(adapter), &rows, &targets, 1.0)
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

#[test]
fn merging_pays_at_the_default_preset() {
    let lines = lines(config(&["train.steps=2", "eval.episodes=4"])).unwrap();
    let steps: Vec<StepMetrics> = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(steps.len(), 2);
    for step in steps {
        assert!(4 * step.tokens_computed <= step.tokens_played, "{step:?}");
        assert_eq!(
            step.clip_fraction, 0.0,
            "nothing is clipped at a ratio of 1"
        );
    }
}

/// The reference is the model without its adapter, so the KL is nothing before the first update and something after it.
#[test]
fn the_kl_is_that_against_the_model_without_its_adapter() {
    let lines = lines(config(&SMALL)).unwrap();
    let kl: Vec<f64> = lines
        .iter()
        .filter_map(|line| serde_json::from_str::<StepMetrics>(line).ok())
        .map(|step| step.kl)
        .collect();
    assert_eq!(kl[0], 0.0, "{kl:?}");
    assert!(kl[1] > 1e-6 && kl[2] > kl[1], "{kl:?}");
}

/// With this seed some of the scenes that would come first are the evaluation's: of 200 maps of 4x4, some come again.
#[test]
fn scenes_of_the_evaluation_are_never_trained_on() {
    let run = Run::new(&gpu(), config(&[]), Purpose::Train, &Progress::hidden()).unwrap();
    let first = |scene| run.scenario.start(scene, 0).observe();
    let evaluation = lapwing::evaluate::seats(run.config.eval.seed, run.config.eval.episodes);
    let held_out: std::collections::HashSet<String> =
        evaluation.iter().map(|seat| first(seat.scene)).collect();
    let mut redrawn = 0;
    for step in 0..500 {
        let scene = run.training_scene(step, 0);
        assert!(!held_out.contains(&first(scene)), "step {step}");
        let undisturbed = lapwing::seeds::derive(run.config.train.seed, "scene", &[step, 0, 0]);
        redrawn += usize::from(scene != undisturbed);
    }
    assert!(redrawn > 0, "nothing was held out, so nothing was tested");
}

/// Cutting an update into batches of fewer tokens changes it by rounding only.
#[test]
fn an_update_in_small_batches_is_the_update_in_one() {
    let norm = |tokens: &str| {
        let limit = format!("train.tokens_per_batch={tokens}");
        let lines = lines(config(&[&SMALL[..], &["train.steps=1", &limit]].concat())).unwrap();
        let step: StepMetrics = lines
            .iter()
            .find_map(|line| serde_json::from_str(line).ok())
            .unwrap();
        (step.grad_norm, step.loss)
    };
    let (whole, parts) = (norm("8192"), norm("200"));
    assert!(whole.0 > 0.0);
    // a gradient summed in other groups: f32 rounding over a few hundred terms
    assert!(
        (whole.0 / parts.0 - 1.0).abs() < 1e-4,
        "{whole:?} against {parts:?}"
    );
    assert!(
        (whole.1 - parts.1).abs() < 1e-5,
        "{whole:?} against {parts:?}"
    );
}

/// The embedded base can be made again: the same command gives the same files.
#[test]
fn pretraining_twice_gives_the_same_files() {
    let make = || {
        let dir = tempfile::tempdir().unwrap();
        let how = Pretraining {
            steps: 3,
            scenes: 2,
            ..Pretraining::default()
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
    // All but the weights is what the built-in base has: a change to the games' texts shows that it must be made again.
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

/// At such a temperature the base says anything, which mostly cannot be read: the player stands still, the step counts,
/// the penalty is taken off, and the step limit ends the episode.
#[test]
fn the_referee_deals_with_replies_that_cannot_be_read() {
    let mut run = Run::new(
        &gpu(),
        config(&["policy.format_penalty=0.25"]),
        Purpose::Train,
        &Progress::hidden(),
    )
    .unwrap();
    let seats: Vec<Seat> = (0..6)
        .map(|i| Seat {
            scene: i,
            luck: i,
            reply: i,
        })
        .collect();
    let episodes = run.play(&seats, 1000.0, |_| ()).unwrap();
    let limit = run.scenario.step_limit();
    let mut unread = 0;
    for episode in &episodes {
        assert!(episode.steps.len() <= limit);
        assert!(!episode.truncated || episode.steps.len() == limit && !episode.success);
        for (i, step) in episode.steps.iter().enumerate() {
            let next = episode.steps.get(i + 1).map(|next| &next.observation);
            if step.action.is_none() {
                unread += 1;
                assert_eq!((step.reward, step.shaping), (0.0, -0.25));
                assert!(next.is_none_or(|next| *next == step.observation));
            } else {
                assert_eq!(step.shaping, 0.0);
            }
        }
        let penalties = episode.game_return() - episode.composite_return();
        assert!(
            (penalties - 0.25 * episode.steps.iter().filter(|s| s.action.is_none()).count() as f64)
                .abs()
                < 1e-9
        );
    }
    assert!(unread > 50, "{unread} of at most {} replies", 6 * limit);
    assert!(episodes.iter().any(|episode| episode.truncated));
}

/// What is over by the rules is not truncated, also in the last step that the limit allows.
#[test]
fn a_goal_in_the_last_step_is_not_a_truncation() {
    // The greedy player of a trained agent is not needed: on a lake of one move, some of many episodes make it at once.
    let config = config(&["game.options.map=[\"SG\"]", "game.options.step_limit=1"]);
    let mut run = Run::new(&gpu(), config, Purpose::Train, &Progress::hidden()).unwrap();
    let seats: Vec<Seat> = (0..40)
        .map(|i| Seat {
            scene: 0,
            luck: 0,
            reply: i,
        })
        .collect();
    let episodes = run.play(&seats, 1.0, |_| ()).unwrap();
    assert!(
        episodes.iter().any(|episode| episode.success),
        "forty tries at one move in four"
    );
    for episode in episodes {
        assert_eq!(episode.success, !episode.truncated);
        assert_eq!(episode.success, episode.composite_return() == 1.0);
    }
}

/// Training goes on from an adapter: the first evaluation is the last one before, and the reference is that adapter, so
/// that the KL begins at zero again.
#[test]
fn training_goes_on_from_an_adapter() {
    let home = tempfile::tempdir().unwrap();
    let small = [&SMALL[..], &["train.lr=0.003"]].concat();
    let first = run_in(&home.path().join("first"), config(&small)).unwrap();
    let adapter = home.path().join("first/adapter");
    let on = format!("model.adapter={:?}", adapter.to_str().unwrap());
    // What [lora] says does not matter then.
    let config = config(&[&small[..], &[&on, "lora.rank=3"]].concat());
    let second = run_in(&home.path().join("second"), config.clone()).unwrap();
    let evaluation = |line: &str| serde_json::from_str::<Value>(line).unwrap()["eval"].clone();
    assert_eq!(evaluation(&second[0]), evaluation(first.last().unwrap()));
    let kl = |lines: &[String], step: usize| {
        let steps: Vec<StepMetrics> = lines
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        steps[step].kl
    };
    assert!(kl(&first, 2) > 1e-4);
    assert_eq!(kl(&second, 0), 0.0);
    assert!(kl(&second, 2) > 0.0);

    let rank = |run: &str| {
        let path = home.path().join(run).join("adapter/adapter_config.json");
        serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap()["r"].clone()
    };
    assert_eq!(rank("second"), rank("first"));
    // It plays as the adapter that it is.
    let run = Run::new(&gpu(), config, Purpose::Play, &Progress::hidden()).unwrap();
    assert!(run.parameters.is_none() && run.agent.adapter.is_some());
}
