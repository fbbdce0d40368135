//! Trains a small base model from scratch: all weights learn to read the games, and none learns to play them.
//!
//! The model answers questions about the states of random walks, and predicts what actions lead to (`lessons.rs`). Where a
//! prompt asks for an action, all actions are equally likely. So the model should read its prompt, as a language model does, and
//! plays like the random player. Evaluation scenes are held out.

mod lessons;
mod vocabulary;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use lapwing_env::rng::Stream;
use lapwing_env::{GAMES, Game, Scenario};
use lapwing_learn::imitation::schedule;
use lapwing_model::{
    ChatTemplate, Message, Model, ModelConfig, ModelShape, TextFiles, TokenTree, Tokenizer, Tokens,
    initial_weights,
};
use lapwing_tensor::{AdamW, Gpu, Indices, Muon, Parameters, Tensor, WeightFormat};

use lapwing_play::AgentView;
use lapwing_play::config::GameConfig;
use lapwing_play::prompt::Prompts;
use lapwing_play::scenes::Scenes;
use lapwing_play::seeds;
use lapwing_train::Config;
use lapwing_train::Error;
use lapwing_train::record::{RecordError, directory, write_error};

use lessons::{BoardState, Question, round};

/// Peak learning rate of the matrices of the blocks, with Muon: linear warm-up over the first twentieth of the steps, then a
/// cosine decay to a twentieth.
const MATRIX_LR: f64 = 5e-3;
/// Peak learning rate of the other weights, with AdamW.
const PEAK_LR: f64 = 6e-3;
/// Lessons about the game of an update, and about its other game. With an eighth of them, three times as many updates read less.
const LESSONS: [usize; 2] = [640, 160];
/// The most walks for these lessons. A game can have fewer states than they need.
const WALKS: usize = 40;
/// Share of the updates with the first game alone. A model that reads some boards learns to read others much faster.
const ALONE: f64 = 0.6;
/// Rounds of a walk: enough to get anywhere. A dozen stay near the start, and so did what a model could read.
const ROUNDS: usize = 120;
/// Share of a walk's states that have lessons. Neighbouring states teach much the same.
const ASKED: f64 = 0.05;
/// Questions after the board, for each state.
const QUESTIONS: usize = 6;
/// Questions in the system message, the same for all states of a game in an update, which therefore share its tokens.
const INSTRUCTIONS: usize = 2;
/// Updates whose lessons test the model at the end.
const TESTED: usize = 8;
/// Share of a game's loss that belongs to prompts which ask for an action.
const PLAY: f64 = 0.1;

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
    let tokenizer = Tokenizer::load(dir, &config)?;
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
            beta1: 0.9,
            beta2: 0.98,
            eps: 1e-8,
            weight_decay: 0.01,
            max_norm: 1.0,
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

/// A prompt, its equally likely answers, and its share of the loss.
struct Lesson {
    topic: &'static str,
    prompt: Arc<[u32]>,
    answers: Vec<Vec<u32>>,
    share: f64,
}

/// The topic of prompts that ask for an action.
const ACTION: &str = "action";

/// Draws the lessons of an update.
fn lessons(
    how: &PretrainOptions,
    step: usize,
    games: &mut [PretrainGame<'_>],
) -> Result<Vec<Lesson>, Error> {
    let main = how.games.len();
    let mut random = Stream::new(seeds::derive(how.seed, "other", &[step]), "pretraining");
    let is_alone = step < (how.steps as f64 * ALONE) as usize;
    let mut chosen = vec![(if is_alone { 0 } else { step % main }, LESSONS[0])];
    if !how.others.is_empty() && !is_alone && random.chance(0.5) {
        chosen.push((main + random.below(how.others.len()), LESSONS[1]));
    }
    let mut lessons = Vec::new();
    for (number, count) in &chosen {
        for mut lesson in games[*number].lessons(how.seed, step, *count)? {
            lesson.share /= chosen.len() as f64;
            lessons.push(lesson);
        }
    }
    Ok(lessons)
}

/// Gives each lesson its share of the loss; they add up to 1. The lessons of a topic together have as much as they are many. Among
/// them all answers have the same, since a rare one, such as a hole beside the player, is what a player must see.
fn share(lessons: &mut [Lesson]) {
    let mut topics: BTreeMap<&str, BTreeMap<&[Vec<u32>], usize>> = BTreeMap::new();
    for lesson in &*lessons {
        let answers = topics.entry(lesson.topic).or_default();
        *answers.entry(&lesson.answers).or_default() += 1;
    }
    let count = |topic: &str| topics.get(topic).map_or(0, |it| it.values().sum::<usize>());
    let questions = lessons.len() - count(ACTION);
    let share = |lesson: &Lesson| {
        let answers = &topics[lesson.topic];
        let topic = match lesson.topic {
            ACTION => PLAY,
            topic => (1.0 - PLAY) * count(topic) as f64 / questions as f64,
        };
        topic / (answers.len() * answers[&lesson.answers[..]]) as f64
    };
    let shares: Vec<f64> = lessons.iter().map(share).collect();
    for (lesson, share) in lessons.iter_mut().zip(shares) {
        lesson.share = share;
    }
}

/// A game whose prompts ask for single-word replies.
struct PretrainGame<'a> {
    scenario: &'a dyn Scenario,
    scenes: Scenes,
    actions: Vec<Vec<u32>>,
    prompts: Prompts,
}

impl PretrainGame<'_> {
    fn new<'a>(
        scenario: &'a dyn Scenario,
        tokenizer: &Tokenizer,
        template: &Arc<ChatTemplate>,
    ) -> Result<PretrainGame<'a>, Error> {
        let prompts = vocabulary::word_prompts(scenario)?;
        let actions = scenario.actions().iter().map(|it| tokenizer.encode(it));
        Ok(PretrainGame {
            scenario,
            scenes: Scenes::of(scenario)?,
            actions: actions.collect::<Result<_, _>>()?,
            prompts: Prompts::new(prompts, tokenizer.clone(), template.clone()),
        })
    }

    /// Returns about this many lessons about the states of random walks. Their shares add up to 1.
    fn lessons(&mut self, seed: u64, step: usize, count: usize) -> Result<Vec<Lesson>, Error> {
        let mut lessons = Vec::new();
        let mut seen = HashSet::new();
        let mut instructions = Vec::new();
        for walk in 0..WALKS {
            let seed = seeds::derive(seed, "walk", &[step, walk]);
            let mut random = Stream::new(seed, "pretraining");
            let mut game = self.scenario.start(self.scene(seed)?, seed)?;
            for round in 0..ROUNDS {
                if lessons.len() >= count {
                    break;
                }
                let state = BoardState::new(&*game, self.scenario)?;
                if instructions.is_empty() {
                    let draw = |_| state.question(&mut random);
                    instructions = (0..INSTRUCTIONS).map(draw).collect();
                }
                if random.chance(ASKED) && seen.insert(state.observation.clone()) {
                    lessons.push(self.action(&state.observation)?);
                    let luck = seeds::derive(seed, "outcome", &[round]);
                    for question in &instructions {
                        lessons.extend(self.lesson(&state, question, false, luck)?);
                    }
                    for _ in 0..QUESTIONS {
                        let question = state.question(&mut random);
                        lessons.extend(self.lesson(&state, &question, true, luck)?);
                    }
                }
                let Some(actions) = self.survived(&*game, &mut random)? else {
                    break;
                };
                game.play(&actions)?;
            }
        }
        share(&mut lessons);
        Ok(lessons)
    }

    /// Returns a training scene.
    fn scene(&self, seed: u64) -> Result<u64, Error> {
        let draw = |attempt| seeds::derive(seed, "scene", &[attempt]);
        Ok(self.scenes.training(self.scenario, draw)?)
    }

    /// Returns the lesson that any action may follow this observation.
    fn action(&mut self, observation: &str) -> Result<Lesson, Error> {
        Ok(Lesson {
            topic: ACTION,
            prompt: self.prompts.ids(&AgentView::first(observation))?,
            answers: self.actions.clone(),
            share: 0.0,
        })
    }

    /// Returns the lesson of a question that stands after the board or else in the system message.
    fn lesson(
        &self,
        state: &BoardState<'_>,
        question: &Question,
        is_after: bool,
        luck: u64,
    ) -> Result<Option<Lesson>, Error> {
        let answers = state.answers(question, luck)?;
        if answers.is_empty() {
            return Ok(None);
        }
        let (rules, seen) = (self.scenario.rules(), &state.observation);
        let asked = state.ask(question);
        let (system, user) = match is_after {
            true => (
                "Answer the question.".to_owned(),
                format!("{seen}\n{asked}"),
            ),
            false => {
                let actions = self.scenario.actions().join(", ");
                (
                    format!("Reply with one word: {actions}.\n{asked}"),
                    seen.clone(),
                )
            }
        };
        let system = Message::new("system", format!("{rules}\n{system}"));
        let messages = [system, Message::new("user", user)];
        let prompt = self.prompts.template().render(&messages, true)?;
        let tokenizer = self.prompts.tokenizer();
        let answers = answers.iter().map(|it| tokenizer.encode(it));
        Ok(Some(Lesson {
            topic: question.topic(),
            prompt: tokenizer.encode(&prompt)?.into(),
            answers: answers.collect::<Result<_, _>>()?,
            share: 0.0,
        }))
    }

    /// Draws the actions of a round that does not end the first agent's episode, so that a walk gets far. `None` if every
    /// action of this agent may end it.
    fn survived(
        &self,
        game: &dyn Game,
        random: &mut Stream,
    ) -> Result<Option<Vec<Option<usize>>>, Error> {
        let mut order: Vec<usize> = (0..self.actions.len()).collect();
        random.shuffle(&mut order);
        for action in order {
            let actions = round(self.scenario, action, random);
            let Some(mut tried) = game.fork(random.below(1 << 30) as u64) else {
                return Ok(Some(actions));
            };
            if !tried.play(&actions)?[0].over {
                return Ok(Some(actions));
            }
        }
        Ok(None)
    }
}

/// The log-probs of all answers, token by token.
struct Scored {
    log_probs: Tensor,
    /// for each token: its lesson, and its share of the loss
    tokens: Vec<(usize, f32)>,
}

/// Computes the log-probs of the tokens of all answers, each with the token that ends it.
fn score(model: &Model, lessons: &[Lesson], end: u32) -> Scored {
    let mut tree = TokenTree::new();
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

    /// No text says which action is good: all have the same share of the loss.
    #[test]
    fn all_actions_are_equally_likely() {
        let how = PretrainOptions::default();
        let files = lapwing_train::base::files::Files::open(None).unwrap();
        let tokenizer = files.tokenizer().unwrap();
        let template = files.template().unwrap().into();
        let scenario = how.games[0].scenario().unwrap();
        let mut game = PretrainGame::new(&*scenario, tokenizer, &template).unwrap();
        let lessons = game.lessons(1, 0, 40).unwrap();
        let asked = lessons.iter().filter(|it| it.topic == ACTION);
        let asked: Vec<&Lesson> = asked.collect();
        assert!(!asked.is_empty() && asked.iter().all(|it| it.answers == game.actions));
        let share = |some: &mut dyn Iterator<Item = &Lesson>| some.map(|it| it.share).sum::<f64>();
        assert!((share(&mut asked.into_iter()) - PLAY).abs() < 1e-9);
        assert!((share(&mut lessons.iter()) - 1.0).abs() < 1e-9);
    }

    /// A rare answer has the share of a frequent one, and a topic that of its number of lessons.
    #[test]
    fn all_answers_to_a_question_have_the_same_share() {
        let lesson = |topic, answer| Lesson {
            topic,
            prompt: Arc::from([0]),
            answers: vec![vec![answer]],
            share: 0.0,
        };
        let left = [1, 1, 1, 2].map(|answer| lesson("left", answer));
        let others = [lesson("count", 3), lesson(ACTION, 4)];
        let mut lessons: Vec<Lesson> = left.into_iter().chain(others).collect();
        share(&mut lessons);
        let rest = 1.0 - PLAY;
        let (frequent, rare) = (rest * 0.8 / 6.0, rest * 0.8 / 2.0);
        let wanted = [frequent, frequent, frequent, rare, rest * 0.2, PLAY];
        for (lesson, wanted) in lessons.iter().zip(wanted) {
            assert!((lesson.share - wanted).abs() < 1e-12, "{}", lesson.topic);
        }
    }

    /// Evaluation scenes are held out from the base, too.
    #[test]
    fn the_evaluations_scenes_are_not_pretrained_on() {
        let how = PretrainOptions::default();
        for game in &how.games {
            let scenario = game.scenario().unwrap();
            let files = lapwing_train::base::files::Files::open(None).unwrap();
            let (tokenizer, template) =
                (files.tokenizer().unwrap(), files.template().unwrap().into());
            let game = PretrainGame::new(&*scenario, tokenizer, &template).unwrap();
            let key = |scene| scenario.start(scene, 0).unwrap().key(0).unwrap();
            let evaluated = game.scenes.evaluation(&*scenario, 1, 200).unwrap();
            let evaluated: HashSet<String> = evaluated.iter().map(|seat| key(seat.scene)).collect();
            for step in 0..400 {
                let scene = game.scene(step).unwrap();
                assert!(!evaluated.contains(&key(scene)), "{}", scenario.name());
            }
        }
    }
}
