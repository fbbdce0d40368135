//! Makes a small base model from nothing: all weights are trained to imitate a noisy scripted player.
//!
//! The player plays a game's own good moves with a chance of `skill` and any move otherwise. The model learns the
//! player's distribution over moves in every state that the player meets, so it ends up able to play, but playing
//! badly: what reinforcement learning can then bring out. It never meets a scene that is kept for the evaluation.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use lapwing_env::Scenario;
use lapwing_env::rng::Stream;
use lapwing_model::{
    ChatTemplate, Config, Model, Shape, TextFiles, TokenTree, Tokenizer, Tokens, initial,
};
use lapwing_tensor::{AdamW, Gpu, Indices, Parameters, Tensor, WeightFormat};

use super::vocabulary;
use crate::Error;
use crate::play::players::scripted::{Chances, best_actions, word};
use crate::play::prompt::Prompts;
use crate::play::scenes::Scenes;
use crate::play::{Ask, Form, Framing, Player, Referee, Reply, Seat, Seen};
use crate::record::{RecordError, directory, write_error};
use crate::run::config;
use crate::run::seeds;

/// The presets for the embedded base, whose games it knows.
const EMBEDDED: [&str; 4] = [
    "frozen-lake",
    "frozen-lake-slippery",
    "frozen-lake-large",
    "snake",
];

fn preset(name: &str) -> config::Game {
    config::Config::load(name, &[]).expect("a preset").game
}

/// How a base model is made.
#[derive(Debug, Clone)]
pub struct Pretraining {
    /// the games whose players are imitated, all in every update and each with the same share of the loss
    pub games: Vec<config::Game>,
    /// chance that the player makes one of the game's good moves; otherwise any move
    pub skill: f64,
    /// optimiser updates
    pub steps: usize,
    /// scenes of each game played for each update
    pub scenes: usize,
    /// peak learning rate; it rises over the first twentieth of the steps and falls along a cosine to a twentieth
    pub lr: f64,
    /// width of the residual stream
    pub width: usize,
    /// blocks
    pub layers: usize,
    /// attention heads
    pub heads: usize,
    /// width inside the MLP
    pub mlp_width: usize,
    /// everything random follows from it
    pub seed: u64,
}

impl Default for Pretraining {
    /// What made the embedded base.
    fn default() -> Pretraining {
        Pretraining {
            games: EMBEDDED.iter().map(|name| preset(name)).collect(),
            skill: 0.15,
            steps: 1600,
            scenes: 6,
            lr: 3e-3,
            width: 64,
            layers: 4,
            heads: 4,
            mlp_width: 192,
            seed: 1,
        }
    }
}

/// What one update learned from.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// updates done
    pub step: usize,
    /// cross-entropy against the player's distribution, nats a move
    pub loss: f64,
    /// the player's own entropy on the same states: the least that the loss can be
    pub floor: f64,
}

/// Trains a base and writes it to `dir`, which must be new or empty, as a Hugging Face directory. `progress` is told now and then.
///
/// # Errors
/// If the game is unknown, the device fails, or the directory holds files already or cannot be written.
pub fn pretrain(
    gpu: &Gpu,
    how: &Pretraining,
    dir: &Path,
    progress: impl FnMut(Progress),
) -> Result<(), Error> {
    let games = how.games.iter().map(config::Game::scenario);
    let games: Vec<Box<dyn Scenario>> = games.collect::<Result<_, _>>()?;
    directory::check_free(dir)?;
    let is_new = !dir.exists();
    write_aside(dir, |aside| make(gpu, how, &games, aside, progress)).inspect_err(|_| {
        if is_new {
            // Fails if others have put something there, which is then theirs to keep.
            let _ = fs::remove_dir(dir);
        }
    })
}

/// Lets `make` fill a directory inside of `dir`, and moves its files up if all went well: a failure leaves `dir` as it was,
/// and a place that cannot be written is known before the work begins.
fn write_aside(dir: &Path, make: impl FnOnce(&Path) -> Result<(), Error>) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(write_error(dir))?;
    let aside = tempfile::tempdir_in(dir).map_err(write_error(dir))?;
    make(aside.path())?;
    for entry in fs::read_dir(aside.path()).map_err(write_error(dir))? {
        let entry = entry.map_err(write_error(dir))?;
        let file = dir.join(entry.file_name());
        if file.exists() {
            // Somebody was quicker.
            return Err(RecordError::Occupied {
                path: dir.to_owned(),
            }
            .into());
        }
        fs::rename(entry.path(), &file).map_err(write_error(&file))?;
    }
    Ok(())
}

fn make(
    gpu: &Gpu,
    how: &Pretraining,
    games: &[Box<dyn Scenario>],
    dir: &Path,
    mut progress: impl FnMut(Progress),
) -> Result<(), Error> {
    vocabulary::write(dir, games)?;
    let (vocab, end) = vocabulary::size_and_end(dir)?;
    let mut config = Config::qwen2(Shape {
        vocab,
        width: how.width,
        layers: how.layers,
        heads: how.heads,
        kv_heads: how.heads,
        mlp_width: how.mlp_width,
    });
    config.eos = vec![end];
    let tokenizer = Tokenizer::load(dir, &config)?;
    let mut lectures = Vec::new();
    for game in games {
        let word_id = |word: &String| Ok(tokenizer.encode(word)?[0]);
        let template = TextFiles::trusted(dir).template()?;
        lectures.push(Lecture {
            scenario: &**game,
            scenes: Scenes::of(&**game)?,
            actions: game
                .actions()
                .iter()
                .map(word_id)
                .collect::<Result<_, Error>>()?,
            prompts: prompts(&**game, tokenizer.clone(), template)?,
        });
    }

    let weights = initial(&config, seeds::derive(how.seed, "weights", &[]));
    let mut parameters = Parameters::new(gpu, &weights);
    let model = Model::over(gpu, config, &parameters);

    for step in 0..how.steps {
        let lesson = lesson(how, step, &mut lectures, end)?;
        let tokens = Tokens::new(gpu, &lesson.tree.pack());
        let (rows, targets) = (
            Indices::new(gpu, &lesson.rows),
            Indices::new(gpu, &lesson.targets),
        );
        let hidden = model.forward(&tokens, None);
        let log_probs = hidden
            .log_probs(&model.head(None), &rows, &targets, 1.0)
            .log_probs;
        let weights = Tensor::from_slice(gpu, &lesson.weights, &[lesson.weights.len()]);
        let loss = log_probs.mul(&weights).sum().neg();
        parameters.accumulate(&loss.backward());
        parameters.step(AdamW {
            lr: how.lr * schedule(step, how.steps),
            beta1: 0.9,
            beta2: 0.98,
            eps: 1e-8,
            weight_decay: 0.01,
            max_norm: 1.0,
        });
        if step % 20 == 0 || step + 1 == how.steps {
            progress(Progress {
                step: step + 1,
                loss: f64::from(loss.to_vec()?[0]),
                floor: lesson.floor,
            });
        }
    }
    Ok(model.save(dir, WeightFormat::F16)?)
}

/// Rises linearly, falls along a cosine.
pub(crate) fn schedule(step: usize, steps: usize) -> f64 {
    let (now, rise) = ((step + 1) as f64 / steps as f64, 0.05);
    if now < rise {
        now / rise
    } else {
        let fallen = (now - rise) / (1.0 - rise);
        0.05 + 0.95 * (1.0 + (std::f64::consts::PI * fallen).cos()) / 2.0
    }
}

/// The model is taught to reply with a word.
fn prompts(
    scenario: &dyn Scenario,
    tokenizer: Tokenizer,
    template: ChatTemplate,
) -> Result<Prompts, Error> {
    let policy = config::Policy {
        reply: Form::Word,
        ..config::Policy::default()
    };
    let framing = Framing::new(scenario, &policy)?;
    Ok(Prompts::new(framing, tokenizer, template))
}

/// A game that is taught.
struct Lecture<'a> {
    scenario: &'a dyn Scenario,
    scenes: Scenes,
    /// the token of each action
    actions: Vec<u32>,
    prompts: Prompts,
}

/// The states of some episodes and the player's moves in them.
struct Lesson {
    tree: TokenTree,
    rows: Vec<u32>,
    targets: Vec<u32>,
    /// the share of each target in the loss
    weights: Vec<f32>,
    floor: f64,
}

/// Plays with a good move now and then, and remembers what it thought in each state.
struct Teacher {
    skill: f64,
    chances: Chances,
    /// for each episode the states that it met
    met: Vec<Vec<Met>>,
}

/// What was seen, the chance of each move, and the move made.
type Met = (String, Vec<f64>, usize);

impl Player for Teacher {
    fn act(&mut self, asks: &[Ask<'_>]) -> Result<Vec<Reply>, Error> {
        let mut replies = Vec::with_capacity(asks.len());
        for ask in asks {
            let moves = distribution(&best_actions(ask)?, ask.actions.len(), self.skill);
            let chosen = pick(&moves, self.chances.of(ask, "player"));
            replies.push(word(ask, chosen));
            self.met[ask.episode].push((ask.observation.to_owned(), moves, chosen));
        }
        Ok(replies)
    }
}

impl Lecture<'_> {
    /// Where the player plays for an update, never where a policy is examined later.
    fn seats(&self, how: &Pretraining, step: usize) -> Result<Vec<Seat>, Error> {
        let seat = |number| {
            let seed = seeds::derive(how.seed, "pretraining", &[step, number]);
            let draw = |attempt| seeds::derive(seed, "scene", &[attempt]);
            let scene = self.scenes.training(self.scenario, draw)?;
            Ok(Seat {
                scene,
                luck: seed,
                reply: seed,
            })
        };
        (0..how.scenes).map(seat).collect()
    }

    /// What the player thought in each state that it met, episode by episode.
    fn play(&self, how: &Pretraining, step: usize) -> Result<Vec<Vec<Met>>, Error> {
        let seats = self.seats(how, step)?;
        let mut teacher = Teacher {
            skill: how.skill,
            chances: Chances::default(),
            met: vec![Vec::new(); seats.len() * self.scenario.agents()],
        };
        let referee = Referee {
            step_limit: self.scenario.step_limit(),
            format_penalty: 0.0,
        };
        referee.play(self.scenario, &seats, &mut [&mut teacher], &mut |_| ())?;
        Ok(teacher.met)
    }
}

fn lesson(
    how: &Pretraining,
    step: usize,
    lectures: &mut [Lecture<'_>],
    end: u32,
) -> Result<Lesson, Error> {
    let mut tree = TokenTree::new();
    let mut states = Vec::new();
    for (number, lecture) in lectures.iter_mut().enumerate() {
        for met in lecture.play(how, step)? {
            let mut seen = HashSet::new();
            for (observation, moves, chosen) in met {
                if !seen.insert(observation.clone()) {
                    continue;
                }
                // The reply is the word and the end; the end is not run through the model.
                let prompt = lecture.prompts.ids(&Seen::first(&observation))?;
                let replied = tree.insert(&[&prompt[..], &[lecture.actions[chosen]]].concat());
                states.push((number, replied, prompt.len(), moves));
            }
        }
    }
    let packed = tree.pack();
    let mut lesson = Lesson {
        tree,
        rows: vec![],
        targets: vec![],
        weights: vec![],
        floor: 0.0,
    };
    let mut counts = vec![0; lectures.len()];
    states.iter().for_each(|(number, ..)| counts[*number] += 1);
    for (number, replied, prompt, moves) in states {
        let share = 1.0 / (lectures.len() * counts[number]) as f32;
        let path = packed.path(replied);
        for (action, chance) in lectures[number].actions.iter().zip(&moves) {
            lesson.rows.push(path[prompt - 1]);
            lesson.targets.push(*action);
            lesson.weights.push(share * *chance as f32);
            // 0 ln 0 is 0.
            if *chance > 0.0 {
                lesson.floor -= f64::from(share) * chance * chance.ln();
            }
        }
        lesson.rows.push(path[prompt]);
        lesson.targets.push(end);
        lesson.weights.push(share);
    }
    Ok(lesson)
}

/// The noisy player's chance of each move.
fn distribution(best: &[usize], actions: usize, skill: f64) -> Vec<f64> {
    let mut moves = vec![(1.0 - skill) / actions as f64; actions];
    for action in best {
        moves[*action] += skill / best.len() as f64;
    }
    moves
}

fn pick(chances: &[f64], chance: &mut Stream) -> usize {
    let mut left = chance.unit();
    for (i, share) in chances.iter().enumerate() {
        left -= share;
        if left < 0.0 {
            return i;
        }
    }
    chances.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_leaves_nothing_behind() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("base");
        let fails = |aside: &Path| {
            fs::write(aside.join("config.json"), "half").unwrap();
            Err(Error::Vocabulary("no words".to_owned()))
        };
        write_aside(&dir, fails).unwrap_err();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);

        // What is there already stays.
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

    /// What a policy is examined on, its base has not seen either.
    #[test]
    fn the_evaluations_scenes_are_not_pretrained_on() {
        let how = Pretraining::default();
        for game in &how.games {
            let scenario = game.scenario().unwrap();
            let scenes = Scenes::of(&*scenario).unwrap();
            let key = |seat: &Seat| scenario.start(seat.scene, 0).unwrap().key(0).unwrap();
            let examined = scenes.evaluation(&*scenario, 1, 200).unwrap();
            let examined: HashSet<String> = examined.iter().map(key).collect();
            let files = crate::base::files::Files::open(None).unwrap();
            let (tokenizer, template) = (
                files.tokenizer().unwrap().clone(),
                files.template().unwrap(),
            );
            let prompts = prompts(&*scenario, tokenizer, template).unwrap();
            let lecture = Lecture {
                scenario: &*scenario,
                scenes,
                actions: vec![],
                prompts,
            };
            for step in 0..100 {
                let seats = lecture.seats(&how, step).unwrap();
                assert!(
                    seats.iter().all(|seat| !examined.contains(&key(seat))),
                    "{}",
                    game.name
                );
            }
        }
    }

    #[test]
    fn the_noisy_player_has_a_chance_for_every_move() {
        assert_eq!(distribution(&[1, 2], 4, 1.0), [0.0, 0.5, 0.5, 0.0]);
        assert_eq!(distribution(&[3], 4, 0.5), [0.125, 0.125, 0.125, 0.625]);
        let mut chance = Stream::new(1, "player");
        assert!((0..100).all(|_| pick(&[0.0, 0.0, 1.0, 0.0], &mut chance) == 2));
    }
}
