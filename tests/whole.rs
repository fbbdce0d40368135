//! Training all weights of a model instead of an adapter: `train.weights = "all"`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use lapwing_learn::batch::{Group, selected};
use lapwing_learn::config::TrainConfig;
use lapwing_learn::metrics::{StepMetrics, UpdateMetrics};
use lapwing_model::{Adapter, Model, Tokens};
use lapwing_play::Sampled;
use lapwing_play::players::model::Reference;
use lapwing_tensor::{Indices, NamedValues, ParameterState, Parameters, Tensor, check::gpu};
use lapwing_train::Config;
use lapwing_train::base::files::Files;
use lapwing_train::learner::Learner;
use lapwing_train::record::directory::{RunDirectory, Trained, model, trained};
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::trainer::train;

use crate::training::{config, seats, state};

const SMALL: [&str; 11] = [
    "train.weights=all",
    "train.optimiser=adamw",
    "train.lr=0.0003",
    "train.lr_end=1",
    "train.sampling=aaw",
    "train.entropy_band=[0.0, 100.0]",
    "train.groups=4",
    "train.group_size=8",
    "train.learn=4",
    "train.beta=0.5",
    "eval.episodes=6",
];

fn small(changes: &[&str]) -> Config {
    config(&[&SMALL[..], changes].concat())
}

/// A step with its inputs.
fn step(state: &mut State) -> (StepMetrics, Vec<Group>) {
    let (metrics, groups) = state.learner.step(&state.config, state.step, &()).unwrap();
    state.step += 1;
    (metrics, groups)
}

fn learned(metrics: &StepMetrics) -> UpdateMetrics {
    metrics.learned.expect("returns that differ")
}

/// Returns the log-prob of each token of a reply, from one plain sequence.
fn log_probs(model: &Model, reply: &Sampled) -> Tensor {
    let whole = [&reply.prompt[..], &reply.ids[..reply.ids.len() - 1]].concat();
    let first = reply.prompt.len() as u32 - 1;
    let rows: Vec<u32> = (first..first + reply.ids.len() as u32).collect();
    let hidden = model.forward(&Tokens::sequence(&gpu(), &whole), None);
    let (rows, targets) = (
        Indices::new(&gpu(), &rows),
        Indices::new(&gpu(), &reply.ids),
    );
    hidden
        .log_probs(&model.head(None), &rows, &targets, &[], 1.0)
        .log_probs
}

type PromptAndReply<'a> = (&'a [u32], &'a [u32]);

/// Returns the gradient of a step's loss at these weights, computed as in pretraining: a model over parameters of its
/// own, each reply a sequence of its own, and the loss's slope by hand. The ratio is 1, so the slope of a token's loss
/// is `beta (1 - exp(-d)) - A` over the number of tokens, with d the difference of its log-prob from the reference's.
fn by_hand(weights: &[NamedValues], reference: &Model, groups: &[Group], beta: f64) -> Gradient {
    let mut parameters = Parameters::new(&gpu(), weights);
    let model = Model::over(&gpu(), reference.config().clone(), &parameters);
    let all = selected(groups);
    let tokens: usize = all.iter().map(|c| c.episode.reply_tokens()).sum();
    // Equal replies to equal prompts are one sequence, with the sum of their advantages.
    let mut replies: BTreeMap<PromptAndReply<'_>, (&Sampled, f64, f64)> = BTreeMap::new();
    for one in &all {
        for (reply, advantage) in one.episode.sampled().zip(one.advantages) {
            let same = replies.entry((&reply.prompt, &reply.ids));
            let (_, count, sum) = same.or_insert((reply, 0.0, 0.0));
            (*count, *sum) = (*count + 1.0, *sum + advantage);
        }
    }
    for (reply, count, advantage) in replies.into_values() {
        let now = log_probs(&model, reply);
        let (l, l_ref) = (
            now.to_vec().unwrap(),
            log_probs(reference, reply).to_vec().unwrap(),
        );
        let slope = |(l, l_ref): (&f32, &f32)| {
            let d = f64::from(l - l_ref);
            ((count * beta * (1.0 - (-d).exp()) - advantage) / tokens as f64) as f32
        };
        let slopes: Vec<f32> = l.iter().zip(&l_ref).map(slope).collect();
        let slopes = Tensor::from_slice(&gpu(), &slopes, &[slopes.len()]);
        parameters.accumulate(&now.mul(&slopes).sum().backward());
    }
    // A step that moves nothing, and leaves a tenth of the gradient in its first moment.
    parameters.step(lapwing_tensor::AdamW {
        lr: 0.0,
        ..Default::default()
    });
    let state = parameters.state().unwrap();
    let gradient =
        |p: &ParameterState| p.first_moment.iter().map(|m| f64::from(*m) / 0.1).collect();
    state
        .iter()
        .map(|p| (p.name.clone(), gradient(p)))
        .collect()
}

type Gradient = HashMap<String, Vec<f64>>;

fn values(state: &[ParameterState]) -> Vec<NamedValues> {
    let value = |p: &ParameterState| (p.name.clone(), p.shape.clone(), p.values.clone());
    state.iter().map(value).collect()
}

/// Two steps, each compared with a gradient and AdamW computed by hand. In the second the policy has left its
/// reference, so the penalty has an effect.
#[test]
fn a_step_is_the_update_by_hand() {
    let mut state = state(small(&["train.max_grad_norm=1e9"]));
    let reference = Files::open(None, None).unwrap();
    let reference = reference.load_reference(&gpu()).unwrap();
    let TrainConfig {
        lr, beta, betas, ..
    } = state.config.train.clone();
    let mut before = state.snapshot().unwrap().parameters;
    assert!(
        before
            .iter()
            .all(|p| p.first_moment.iter().all(|m| *m == 0.0))
    );
    for number in 1..=2 {
        let (metrics, groups) = step(&mut state);
        let learned = learned(&metrics);
        assert_eq!(learned.first_ratio_error, 0.0);
        assert_eq!(learned.kl.unwrap() > 1e-9, number == 2, "{learned:?}");
        let wanted = by_hand(&values(&before), &reference, &groups, beta);
        let after = state.snapshot().unwrap().parameters;
        let (mut apart, mut norm) = (0.0, 0.0);
        for (before, after) in before.iter().zip(&after) {
            let wanted = &wanted[&before.name];
            assert_eq!(wanted.len(), after.values.len());
            for (i, wanted) in wanted.iter().enumerate() {
                let moments = [before, after]
                    .map(|p| [f64::from(p.first_moment[i]), f64::from(p.second_moment[i])]);
                // m = beta1 m + (1 - beta1) g, read backwards.
                let got = (moments[1][0] - betas[0] * moments[0][0]) / (1.0 - betas[0]);
                apart += (got - wanted).powi(2);
                norm += wanted.powi(2);
                let of = |moment: usize| moments[1][moment] / (1.0 - betas[moment].powi(number));
                let moved = f64::from(before.values[i]) - lr * of(0) / (of(1).sqrt() + 1e-8);
                // A rounding of the value, and some of a move of at most lr.
                let rounding = 1e-7 * moved.abs() + 1e-5 * lr;
                assert!(
                    (f64::from(after.values[i]) - moved).abs() <= rounding,
                    "{}",
                    before.name
                );
            }
        }
        let (apart, norm) = (apart.sqrt(), norm.sqrt());
        // Sums of some thousand f32 terms in another order, and moments of 24 bits.
        assert!(apart < 1e-4 * norm, "step {number}: {apart} of {norm}");
        assert!(
            (learned.grad_norm / norm - 1.0).abs() < 1e-4,
            "{} and {norm}",
            learned.grad_norm
        );
        // Every tensor of the model moves, the embedding and the norms among them.
        for (before, after) in before.iter().zip(&after) {
            assert_ne!(before.values, after.values, "{}", before.name);
        }
        before = after;
    }
}

/// With Muon the matrices of an adapter, or of the model's blocks, make a step of the learning rate in each direction. The other
/// weights make AdamW's, at a tenth of the rate.
#[test]
fn muon_moves_matrices_and_adamw_the_rest() {
    for (weights, matrices) in [("all", "_proj.weight"), ("lora", ".lora_B.weight")] {
        let weights = format!("train.weights={weights}");
        let changes = ["train.optimiser=muon", "train.lr=0.01", &weights];
        let mut state = state(small(&changes));
        let lr = state.config.train.lr;
        let before = state.snapshot().unwrap().parameters;
        learned(&step(&mut state).0);
        let after = state.snapshot().unwrap().parameters;
        let mut count = 0;
        for (before, after) in before.iter().zip(&after) {
            let moves = before.values.iter().zip(&after.values);
            let moves = moves.map(|(a, b)| f64::from((a - b).abs()));
            if before.name.ends_with(matrices) {
                count += 1;
                let length = moves.map(|it| it * it).sum::<f64>().sqrt();
                let [rows, columns] = [0, 1].map(|axis| before.shape[axis] as f64);
                // An orthogonal matrix times the factor of tall ones. Muon's polynomials leave singular values of 0.68 to 1.13,
                // and smaller ones where the gradient has hardly any.
                let whole = lr * (rows / columns).max(1.0).sqrt() * rows.min(columns).sqrt();
                let share = length / whole;
                assert!((0.1..1.13).contains(&share), "{}: {share}", before.name);
                // Only AdamW uses it.
                assert!(after.second_moment.iter().all(|it| *it == 0.0));
            } else if before.name.ends_with(".lora_A.weight") {
                // The other matrix is 0, and so is this one's gradient.
                assert_eq!(before.values, after.values, "{}", before.name);
            } else {
                let longest = moves.fold(0.0, f64::max);
                // AdamW's first step is the rate itself, wherever the gradient is not tiny; f32 rounds values near 1.
                let share = longest / (lr / 10.0);
                assert!((0.9..1.001).contains(&share), "{}: {share}", before.name);
            }
        }
        // Seven linears in each of four blocks; an adapter has the head as well.
        assert!([28, 29].contains(&count), "{count}");
    }
}

/// Play uses every update, and the reference uses none: the ratio is 1 in each step, and the KL starts at zero and
/// grows.
#[test]
fn play_sees_every_update_and_the_reference_none() {
    // With two passes an update computes its log-probs, instead of using those of the rollout.
    for passes in [1, 2] {
        let setting = format!("train.passes={passes}");
        let mut state = state(small(&["train.lr=0.001", &setting]));
        let parameters = state.learner.parameters.as_ref().unwrap();
        assert_eq!(
            parameters.count(),
            state.learner.policy.model.report().parameters
        );
        assert!(state.learner.policy.adapter.is_none());
        let mut kl = Vec::new();
        for _ in 0..4 {
            let learned = learned(&step(&mut state).0);
            assert_eq!(learned.first_ratio_error, 0.0);
            kl.push(learned.kl.unwrap());
        }
        // The two may round differently if their matrices have other formats. The second pass is after an update.
        assert!(kl[0] < 1e-9 || passes == 2, "{kl:?}");
        assert!(kl[1] > 1e-6 && kl[3] > kl[1], "{kl:?}");
    }
}

/// Without a penalty there is no reference, and no second copy of the model: the KL is not measured, less passes through the
/// model, and the result is the same.
#[test]
fn without_a_penalty_there_is_no_reference() {
    for weights in ["all", "lora"] {
        no_reference(&format!("train.weights={weights}"));
    }
}

fn no_reference(weights: &str) {
    let without = || small(&["train.beta=0", weights]);
    let (mut free, mut held) = (state(without()), state(without()));
    assert!(free.learner.policy.reference.is_none());
    let reference = Files::open(None, None)
        .unwrap()
        .load_reference(&gpu())
        .unwrap();
    held.learner.policy.reference = Some(Reference {
        model: reference,
        adapter: None::<Adapter>,
    });
    for number in 0..2 {
        let (a, _) = step(&mut free);
        let (b, _) = step(&mut held);
        assert_eq!(learned(&a).kl, None);
        assert_eq!(learned(&b).kl.unwrap() > 1e-9, number == 1);
        assert!(a.tokens_computed < b.tokens_computed);
        let line = serde_json::to_value(&a).unwrap();
        assert!(
            line.get("kl").is_none() && line.get("loss").is_some(),
            "{line}"
        );
        let read: StepMetrics = serde_json::from_value(line).unwrap();
        assert_eq!(learned(&read).kl, None);
    }
    assert_eq!(free.snapshot().unwrap(), held.snapshot().unwrap());
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The saved model plays the same games bit for bit, and training can start from it.
#[test]
fn what_is_kept_plays_the_same_games() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("run");
    let mut state = state(small(&["train.steps=2", "eval.every=1"]));
    let mut run = RunDirectory::create(&dir, &state.config).unwrap();
    train(&mut state, &mut run, &mut [], &(), &AtomicBool::new(false)).unwrap();
    drop(run);
    let wanted = [
        "best",
        "checkpoints",
        "config.toml",
        "episodes.jsonl",
        "lock",
        "metrics.jsonl",
        "model",
        "test.json",
    ];
    assert_eq!(names(&dir), wanted);
    let kept = model(&dir);
    let base = lapwing_train::base::files::built_in();
    let in_base = lapwing_model::entries(&base).unwrap();
    assert_eq!(
        in_base,
        names(&kept)
            .iter()
            .map(|name| base.join(name))
            .collect::<Vec<_>>()
    );
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        let read = |dir: &Path| lapwing_model::read_file(&dir.join(name), 1 << 20).unwrap();
        assert!(read(&kept) == read(&base), "{name}");
    }
    assert!(matches!(trained(&dir).unwrap(), Trained::Model(best) if best == dir.join("best")));

    let at = |dir: &Path| format!("model.dir={:?}", dir.to_str().unwrap());
    let again = config(&[&at(&kept)]);
    let mut again = State::new(&gpu(), None, again, RunPurpose::Play, &()).unwrap();
    let episodes = |state: &mut State| {
        state
            .learner
            .play(&state.config.policy, 0, &seats(20), 1.0, &())
            .unwrap()
    };
    let played = episodes(&mut state);
    assert_eq!(played, episodes(&mut again));
    let mut before = State::new(&gpu(), None, config(&[]), RunPurpose::Play, &()).unwrap();
    assert_ne!(played, episodes(&mut before));

    // Its weights are those of the run.
    let on = small(&[&at(&kept)]);
    let mut on = State::new(&gpu(), None, on, RunPurpose::Train, &()).unwrap();
    let weights = |state: &State| values(&state.snapshot().unwrap().parameters);
    assert_eq!(weights(&on), weights(&state));
    assert!(learned(&step(&mut on).0).kl.unwrap() < 1e-9);
}

/// An adapter beside a model that is trained itself would belong to no saved model.
#[test]
fn an_adapter_to_go_on_from_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let adapter = home.path().join("adapter");
    state(config(&[])).save(&adapter).unwrap();
    let on = small(&[&format!("model.adapter={:?}", adapter.to_str().unwrap())]);
    let refused = State::new(&gpu(), None, on.clone(), RunPurpose::Train, &());
    let error = refused.err().unwrap().to_string();
    let wanted = "key `train.weights`: found \"all\", wanted \"lora\" beside model.adapter; to train all weights from there \
                  on, work the adapter into them first (`lapwing merge --adapter ADAPTER --out MODEL`) and name that \
                  (--model MODEL)";
    assert_eq!(error.replace(adapter.to_str().unwrap(), "ADAPTER"), wanted);
    // It can play, though.
    State::new(&gpu(), None, on, RunPurpose::Play, &()).unwrap();
}
