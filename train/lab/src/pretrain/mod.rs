//! Trains a small base model from scratch: all weights learn to read the games, and none learns to play them.
//!
//! The model answers questions about the states of random walks, and predicts what actions lead to (`questions.rs`). Where a
//! prompt asks for an action, all actions are equally likely. So the model should read its prompt, as a language model does, and
//! plays like the random player. Evaluation scenes are held out.

mod lessons;
mod questions;
mod vocabulary;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use lapwing_env::{GAMES, Scenario};
use lapwing_learn::imitation::schedule;
use lapwing_model::{
    Model, ModelConfig, ModelShape, TextFiles, TokenTree, Tokens, initial_weights,
};
use lapwing_tensor::{AdamW, Gpu, Indices, Muon, Parameters, Tensor, WeightFormat};

use lapwing_play::config::GameConfig;
use lapwing_play::seeds;
use lapwing_train::Config;
use lapwing_train::Error;
use lapwing_train::record::{RecordError, directory, write_error};

use lessons::{Lesson, PretrainGame, lessons};

/// Peak learning rate of the matrices of the blocks, with Muon: linear warm-up over the first twentieth of the steps, then a
/// cosine decay to a twentieth.
const MATRIX_LR: f64 = 5e-3;
/// Peak learning rate of the other weights, with AdamW.
const PEAK_LR: f64 = 6e-3;
/// Updates whose lessons test the model at the end.
const TESTED: usize = 8;
/// Settings of pretraining.
#[derive(Debug, Clone)]
pub struct PretrainOptions {
    /// The games: the first alone at first, then one in each update, in turn.
    pub games: Vec<GameConfig>,
    /// Games of which every other update contains one, at random.
    pub others: Vec<GameConfig>,
    /// Width of the model: a multiple of 16.
    pub width: usize,
    /// Optimizer updates.
    pub steps: usize,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Default for PretrainOptions {
    /// The settings of the embedded base.
    fn default() -> PretrainOptions {
        let game = |name, changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|it| (*it).to_owned()).collect();
            Config::load(name, &changes).expect("a preset").game
        };
        // The first has lakes of many sizes, whose columns are near to each other in the text, or far.
        let games = vec![
            game("frozen-lake-large", &["game.options.size=4"]),
            game("frozen-lake", &[]),
            game("snake", &[]),
            game("frozen-lake-large", &[]),
            game("frozen-lake-slippery", &[]),
            game("snake-standard", &[]),
        ];
        PretrainOptions {
            games,
            others: every_game(),
            width: 64,
            steps: 1200,
            seed: 1,
        }
    }
}

/// Returns every built-in game, variant and probe.
fn every_game() -> Vec<GameConfig> {
    let game = |name: &str, probe: Option<&str>| GameConfig {
        name: name.into(),
        probe: probe.map(str::to_owned),
        ..GameConfig::default()
    };
    let of = |kind: &lapwing_env::Kind| {
        let plain = std::iter::once(game(kind.name, None));
        let variants = kind.variants.iter().map(|it| game(it.name, None));
        let probes = kind.probes.iter().map(|it| game(kind.name, Some(it.name)));
        plain.chain(variants).chain(probes).collect::<Vec<_>>()
    };
    GAMES.iter().flat_map(of).collect()
}

/// The metrics of an update.
#[derive(Debug, Clone, Copy)]
pub struct PretrainUpdate {
    /// Updates done.
    pub step: usize,
    /// Cross-entropy of the answers, in nats per answer.
    pub loss: f64,
    /// The entropy of the actions where a prompt asks for one: a lower bound of the loss.
    pub floor: f64,
}

/// How well a model answers the questions about a topic, on walks that it was not trained on.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The topic.
    pub topic: &'static str,
    /// The mean probability of the right answer.
    pub mean: f64,
    /// The same if every answer were as frequent as the others. Most neighbours, say, are edges or empty cells, and a model
    /// that knows no other has a high mean.
    pub by_answer: f64,
}

/// Trains a base model and writes it as a Hugging Face directory to `dir`, which must be new or empty. Calls `progress`
/// after every fifth update. Returns how well the model reads, by topic.
///
/// # Errors
/// If a game is unknown, the device fails, or the directory is not empty or cannot be written.
pub fn pretrain(
    gpu: &Gpu,
    how: &PretrainOptions,
    dir: &Path,
    progress: impl FnMut(PretrainUpdate),
) -> Result<Vec<Reading>, Error> {
    let games = how
        .games
        .iter()
        .chain(&how.others)
        .map(GameConfig::scenario);
    let games: Vec<Box<dyn Scenario>> = games.collect::<Result<_, _>>()?;
    directory::check_free(dir)?;
    let is_new = !dir.exists();
    write_aside(dir, |aside| make(gpu, how, &games, aside, progress)).inspect_err(|_| {
        if is_new {
            // This fails if the directory is not empty.
            let _ = fs::remove_dir(dir);
        }
    })
}

/// Calls `make` with a directory in the system's temporary one, and copies its files to `dir` on success. A failure or
/// Ctrl-C leaves `dir` unchanged. An unwritable directory is found before training.
fn write_aside<T>(dir: &Path, make: impl FnOnce(&Path) -> Result<T, Error>) -> Result<T, Error> {
    fs::create_dir_all(dir).map_err(write_error(dir))?;
    let _removed_at_once = tempfile::tempfile_in(dir).map_err(write_error(dir))?;
    let made = tempfile::tempdir().map_err(write_error(&std::env::temp_dir()))?;
    let result = make(made.path())?;
    // The two directories may be on different disks. A rename afterwards leaves no half of a file.
    let aside = tempfile::tempdir_in(dir).map_err(write_error(dir))?;
    for entry in fs::read_dir(made.path()).map_err(write_error(dir))? {
        let entry = entry.map_err(write_error(dir))?;
        let copy = aside.path().join(entry.file_name());
        fs::copy(entry.path(), &copy).map_err(write_error(dir))?;
    }
    for entry in fs::read_dir(aside.path()).map_err(write_error(dir))? {
        let entry = entry.map_err(write_error(dir))?;
        let file = dir.join(entry.file_name());
        if file.exists() {
            // Another program has written it in the meantime.
            return Err(RecordError::Occupied(dir.to_owned()).into());
        }
        fs::rename(entry.path(), &file).map_err(write_error(&file))?;
    }
    Ok(result)
}

fn make(
    gpu: &Gpu,
    how: &PretrainOptions,
    games: &[Box<dyn Scenario>],
    dir: &Path,
    mut progress: impl FnMut(PretrainUpdate),
) -> Result<Vec<Reading>, Error> {
    let (vocab, end) = vocabulary::write(dir, games)?;
    let heads = how.width / 16;
    let mut config = ModelConfig::qwen2(ModelShape {
        vocab,
        width: how.width,
        layers: 4,
        heads,
        kv_heads: heads,
        mlp_width: 3 * how.width,
    });
    config.eos = vec![end];
    let tokenizer = TextFiles::trusted(dir).tokenizer(&config)?;
    let template = Arc::new(TextFiles::trusted(dir).template()?);
    let games = games.iter();
    let games = games.map(|game| PretrainGame::new(&**game, &tokenizer, &template));
    let mut games: Vec<PretrainGame<'_>> = games.collect::<Result<_, _>>()?;

    let weights = initial_weights(&config, seeds::derive(how.seed, "weights", &[]));
    let mut parameters = Parameters::new(gpu, &weights);
    let model = Model::over(gpu, config, &parameters);

    for step in 0..how.steps {
        let lessons = lessons(how, step, &mut games)?;
        let (loss, floor) = loss(&model, &lessons, end);
        parameters.accumulate(&loss.backward());
        let rate = schedule(step, how.steps);
        let muon = Muon {
            lr: MATRIX_LR * rate,
            momentum: 0.95,
        };
        let adamw = AdamW {
            lr: PEAK_LR * rate,
            beta2: 0.98,
            weight_decay: 0.01,
            max_norm: 1.0,
            ..AdamW::default()
        };
        parameters.step_muon(muon, adamw, |name| name.ends_with("_proj.weight"));
        if step % 5 == 0 || step + 1 == how.steps {
            progress(PretrainUpdate {
                step: step + 1,
                loss: f64::from(loss.to_vec()?[0]),
                floor,
            });
        }
    }
    model.save(dir, WeightFormat::F16)?;
    let model = model.without_gradients();
    // By topic and answer.
    let mut chances: BTreeMap<&'static str, BTreeMap<Vec<u32>, Vec<f64>>> = BTreeMap::new();
    for step in how.steps..how.steps + TESTED {
        let lessons = lessons(how, step, &mut games)?;
        let results = answer_probabilities(&model, &lessons, end)?;
        for (lesson, chance) in lessons.into_iter().zip(results) {
            let [answer] = &lesson.answers[..] else {
                continue;
            };
            let topic = chances.entry(lesson.topic).or_default();
            topic.entry(answer.clone()).or_default().push(chance);
        }
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let reading = chances.into_iter().map(|(topic, answers)| {
        let means: Vec<f64> = answers.values().map(|of| mean(of)).collect();
        Reading {
            topic,
            mean: mean(&answers.into_values().flatten().collect::<Vec<_>>()),
            by_answer: mean(&means),
        }
    });
    Ok(reading.collect())
}

/// The log-probs of all answers, token by token.
struct Scored {
    log_probs: Tensor,
    /// for each token: its lesson, and its share of the loss
    tokens: Vec<(usize, f32)>,
}

/// Computes the log-probs of the tokens of all answers, each with the token that ends it.
fn score(model: &Model, lessons: &[Lesson], end: u32) -> Scored {
    let mut tree = TokenTree::default();
    // The end token is a target, not an input of the model.
    let mut whole = |prompt: &[u32], answer: &[u32]| tree.insert(&[prompt, answer].concat());
    let mut nodes = Vec::new();
    for lesson in lessons {
        let answers = lesson.answers.iter();
        nodes.extend(answers.map(|answer| whole(&lesson.prompt, answer)));
    }
    let packed = tree.pack();
    let (mut rows, mut targets, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    let mut nodes = nodes.into_iter();
    for (number, lesson) in lessons.iter().enumerate() {
        let share = lesson.share / lesson.answers.len() as f64;
        for answer in &lesson.answers {
            let path = packed.path(nodes.next().expect("one for each answer"));
            rows.extend(&path[lesson.prompt.len() - 1..]);
            targets.extend(answer.iter().chain([&end]));
            tokens.resize(targets.len(), (number, share as f32));
        }
    }
    let gpu = model.gpu();
    let hidden = model.forward(&Tokens::new(gpu, &packed), None);
    let (rows, targets) = (Indices::new(gpu, &rows), Indices::new(gpu, &targets));
    let scored = hidden.log_probs(&model.head(None), &rows, &targets, &[], 1.0);
    Scored {
        log_probs: scored.log_probs,
        tokens,
    }
}

/// Returns the model's cross-entropy with the answers, and its lower bound: the entropy of equally likely answers.
fn loss(model: &Model, lessons: &[Lesson], end: u32) -> (Tensor, f64) {
    let scored = score(model, lessons, end);
    let shares: Vec<f32> = scored.tokens.iter().map(|(_, share)| *share).collect();
    let shares = Tensor::from_slice(model.gpu(), &shares, &[shares.len()]);
    let entropy = |lesson: &Lesson| lesson.share * (lesson.answers.len() as f64).ln();
    let floor = lessons.iter().map(entropy).sum();
    (scored.log_probs.mul(&shares).sum().neg(), floor)
}

/// Returns the probability of the answers of each lesson.
fn answer_probabilities(model: &Model, lessons: &[Lesson], end: u32) -> Result<Vec<f64>, Error> {
    let scored = score(model, lessons, end);
    let mut sums = vec![0.0; lessons.len()];
    for ((lesson, _), log_prob) in scored.tokens.iter().zip(scored.log_probs.to_vec()?) {
        sums[*lesson] += f64::from(log_prob);
    }
    Ok(sums.into_iter().map(f64::exp).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_no_files() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("base");
        let fails = |aside: &Path| {
            // If the process ends here, the same command works again.
            let names = fs::read_dir(&dir)
                .unwrap()
                .map(|it| it.unwrap().file_name());
            let is_known = |name: std::ffi::OsString| name == "README.md" || name == "config.json";
            assert!(names.into_iter().all(is_known));
            fs::write(aside.join("config.json"), "half").unwrap();
            Err::<(), _>(Error::Vocabulary("no words".to_owned()))
        };
        write_aside(&dir, fails).unwrap_err();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);

        // Existing files are kept.
        fs::write(dir.join("README.md"), "kept").unwrap();
        fs::write(dir.join("config.json"), "old").unwrap();
        write_aside(&dir, fails).unwrap_err();
        assert_eq!(fs::read_to_string(dir.join("config.json")).unwrap(), "old");
        let works = |aside: &Path| {
            fs::write(aside.join("config.json"), "new").unwrap();
            Ok(())
        };
        write_aside(&dir, works).unwrap_err();
        assert_eq!(fs::read_to_string(dir.join("config.json")).unwrap(), "old");
        assert_eq!(fs::read_to_string(dir.join("README.md")).unwrap(), "kept");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        fs::remove_file(dir.join("config.json")).unwrap();
        write_aside(&dir, works).unwrap();
        assert_eq!(fs::read_to_string(dir.join("config.json")).unwrap(), "new");
    }
}
