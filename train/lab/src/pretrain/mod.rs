//! Trains a small base model from scratch: all weights learn to imitate a noisy scripted player.
//!
//! With probability `skill` the player makes one of the game's best moves, and otherwise a random move. The model
//! learns the player's distribution over moves in every state of its episodes. It plays badly, which leaves room for
//! reinforcement learning. Evaluation scenes are held out.

mod vocabulary;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use lapwing_env::Scenario;
use lapwing_env::rng::Stream;
use lapwing_learn::imitation::schedule;
use lapwing_model::{
    ChatTemplate, Model, ModelConfig, ModelShape, TextFiles, TokenTree, Tokenizer, Tokens,
    initial_weights,
};
use lapwing_tensor::{AdamW, Gpu, Indices, Parameters, Tensor, WeightFormat};

use lapwing_play::config::GameConfig;
use lapwing_play::players::scripted::{EpisodeStreams, best_actions, word};
use lapwing_play::prompt::Prompts;
use lapwing_play::scenes::Scenes;
use lapwing_play::seeds;
use lapwing_play::{ActionRequest, AgentView, PlayError, Player, Referee, Reply, Seat};
use lapwing_train::Config;
use lapwing_train::Error;
use lapwing_train::record::{RecordError, directory, write_error};

/// Peak learning rate: linear warm-up over the first twentieth of the steps, then a cosine decay to a twentieth.
const PEAK_LR: f64 = 3e-3;

/// Settings of pretraining.
#[derive(Debug, Clone)]
pub struct PretrainOptions {
    /// The games. Every update contains all of them, each with the same share of the loss.
    pub games: Vec<GameConfig>,
    /// Probability that the player makes one of the game's best moves.
    pub skill: f64,
    /// Optimizer updates.
    pub steps: usize,
    /// Scenes of each game per update.
    pub scenes: usize,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Default for PretrainOptions {
    /// The settings of the embedded base.
    fn default() -> PretrainOptions {
        let presets = [
            "frozen-lake",
            "frozen-lake-slippery",
            "frozen-lake-large",
            "snake",
        ];
        let game = |name| Config::load(name, &[]).expect("a preset").game;
        PretrainOptions {
            games: presets.map(game).to_vec(),
            skill: 0.15,
            steps: 1600,
            scenes: 6,
            seed: 1,
        }
    }
}

/// The metrics of an update.
#[derive(Debug, Clone, Copy)]
pub struct PretrainUpdate {
    /// Updates done.
    pub step: usize,
    /// Cross-entropy with the player's distribution, in nats per move.
    pub loss: f64,
    /// The player's entropy on the same states: the lower bound of the loss.
    pub floor: f64,
}

/// Trains a base model and writes it as a Hugging Face directory to `dir`, which must be new or empty. Calls `progress`
/// after every 20th update.
///
/// # Errors
/// If a game is unknown, the device fails, or the directory is not empty or cannot be written.
pub fn pretrain(
    gpu: &Gpu,
    how: &PretrainOptions,
    dir: &Path,
    progress: impl FnMut(PretrainUpdate),
) -> Result<(), Error> {
    let games = how.games.iter().map(GameConfig::scenario);
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

/// Calls `make` with a temporary directory inside `dir`, and moves its files to `dir` on success. A failure leaves
/// `dir` unchanged. An unwritable directory is found before training.
fn write_aside(dir: &Path, make: impl FnOnce(&Path) -> Result<(), Error>) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(write_error(dir))?;
    let aside = tempfile::tempdir_in(dir).map_err(write_error(dir))?;
    make(aside.path())?;
    for entry in fs::read_dir(aside.path()).map_err(write_error(dir))? {
        let entry = entry.map_err(write_error(dir))?;
        let file = dir.join(entry.file_name());
        if file.exists() {
            // Another program has written it in the meantime.
            return Err(RecordError::Occupied(dir.to_owned()).into());
        }
        fs::rename(entry.path(), &file).map_err(write_error(&file))?;
    }
    Ok(())
}

fn make(
    gpu: &Gpu,
    how: &PretrainOptions,
    games: &[Box<dyn Scenario>],
    dir: &Path,
    mut progress: impl FnMut(PretrainUpdate),
) -> Result<(), Error> {
    let (vocab, end) = vocabulary::write(dir, games)?;
    let mut config = ModelConfig::qwen2(ModelShape {
        vocab,
        width: 64,
        layers: 4,
        heads: 4,
        kv_heads: 4,
        mlp_width: 192,
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
        let (loss, floor) = loss(&model, how, step, &mut games, end)?;
        parameters.accumulate(&loss.backward());
        parameters.step(AdamW {
            lr: PEAK_LR * schedule(step, how.steps),
            beta1: 0.9,
            beta2: 0.98,
            eps: 1e-8,
            weight_decay: 0.01,
            max_norm: 1.0,
        });
        if step % 20 == 0 || step + 1 == how.steps {
            progress(PretrainUpdate {
                step: step + 1,
                loss: f64::from(loss.to_vec()?[0]),
                floor,
            });
        }
    }
    Ok(model.save(dir, WeightFormat::F16)?)
}

/// A game whose prompts ask for single-word replies.
struct PretrainGame<'a> {
    scenario: &'a dyn Scenario,
    scenes: Scenes,
    actions: Vec<u32>,
    prompts: Prompts,
}

/// Makes a best move with probability `skill`, and records its distribution in each state.
struct NoisyPlayer {
    skill: f64,
    chances: EpisodeStreams,
    turns: Vec<Vec<RecordedTurn>>,
}

/// The observation, the probability of each move, and the move.
type RecordedTurn = (String, Vec<f64>, usize);

impl Player for NoisyPlayer {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        let mut replies = Vec::with_capacity(asks.len());
        for ask in asks {
            let moves = distribution(&best_actions(ask)?, ask.actions.len(), self.skill);
            let chosen = pick(&moves, self.chances.of(ask, "player"));
            replies.push(word(ask, chosen));
            self.turns[ask.episode].push((ask.seen.observation.to_owned(), moves, chosen));
        }
        Ok(replies)
    }
}

impl PretrainGame<'_> {
    fn new<'a>(
        scenario: &'a dyn Scenario,
        tokenizer: &Tokenizer,
        template: &Arc<ChatTemplate>,
    ) -> Result<PretrainGame<'a>, Error> {
        let prompts = vocabulary::word_prompts(scenario)?;
        let token = |word: &String| Ok(tokenizer.encode(word)?[0]);
        let actions = scenario.actions().iter().map(token);
        Ok(PretrainGame {
            scenario,
            scenes: Scenes::of(scenario)?,
            actions: actions.collect::<Result<_, Error>>()?,
            prompts: Prompts::new(prompts, tokenizer.clone(), template.clone()),
        })
    }

    /// Returns the scenes of an update, without evaluation scenes.
    fn seats(&self, how: &PretrainOptions, step: usize) -> Result<Vec<Seat>, Error> {
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

    /// Plays the episodes of an update.
    fn play(&self, how: &PretrainOptions, step: usize) -> Result<Vec<Vec<RecordedTurn>>, Error> {
        let seats = self.seats(how, step)?;
        let mut player = NoisyPlayer {
            skill: how.skill,
            chances: EpisodeStreams::default(),
            turns: vec![Vec::new(); seats.len() * self.scenario.agents()],
        };
        let referee = Referee::of(self.scenario, 0.0);
        referee.play(self.scenario, &seats, &mut [&mut player], &mut |_| ())?;
        Ok(player.turns)
    }
}

/// Plays some episodes. Returns the model's cross-entropy with the player's distribution in their states, and the player's
/// entropy.
fn loss(
    model: &Model,
    how: &PretrainOptions,
    step: usize,
    games: &mut [PretrainGame<'_>],
    end: u32,
) -> Result<(Tensor, f64), Error> {
    let mut tree = TokenTree::new();
    let mut states = Vec::new();
    for (number, game) in games.iter_mut().enumerate() {
        for turns in game.play(how, step)? {
            let mut seen = HashSet::new();
            for (observation, moves, chosen) in turns {
                if !seen.insert(observation.clone()) {
                    continue;
                }
                // The reply is the word and the end token; the end token is not an input of the model.
                let prompt = game.prompts.ids(&AgentView::first(&observation))?;
                let replied = tree.insert(&[&prompt[..], &[game.actions[chosen]]].concat());
                states.push((number, replied, prompt.len(), moves));
            }
        }
    }
    let packed = tree.pack();
    let mut counts = vec![0; games.len()];
    states.iter().for_each(|(number, ..)| counts[*number] += 1);
    // Each target with its row and its share of the loss.
    let (mut rows, mut targets, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let mut floor = 0.0;
    for (number, replied, prompt, moves) in states {
        let share = 1.0 / (games.len() * counts[number]) as f32;
        let path = packed.path(replied);
        for (action, chance) in games[number].actions.iter().zip(&moves) {
            rows.push(path[prompt - 1]);
            targets.push(*action);
            shares.push(share * *chance as f32);
            // 0 ln 0 = 0.
            if *chance > 0.0 {
                floor -= f64::from(share) * chance * chance.ln();
            }
        }
        rows.push(path[prompt]);
        targets.push(end);
        shares.push(share);
    }
    let gpu = model.gpu();
    let hidden = model.forward(&Tokens::new(gpu, &packed), None);
    let (rows, targets) = (Indices::new(gpu, &rows), Indices::new(gpu, &targets));
    let scored = hidden.log_probs(&model.head(None), &rows, &targets, 1.0);
    let shares = Tensor::from_slice(gpu, &shares, &[shares.len()]);
    Ok((scored.log_probs.mul(&shares).sum().neg(), floor))
}

/// Returns the noisy player's probability of each move.
fn distribution(best: &[usize], actions: usize, skill: f64) -> Vec<f64> {
    let mut moves = vec![(1.0 - skill) / actions as f64; actions];
    for action in best {
        moves[*action] += skill / best.len() as f64;
    }
    moves
}

fn pick(probabilities: &[f64], random: &mut Stream) -> usize {
    let mut left = random.unit();
    let found = probabilities.iter().position(|share| {
        left -= share;
        left < 0.0
    });
    found.unwrap_or(probabilities.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_no_files() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("base");
        let fails = |aside: &Path| {
            fs::write(aside.join("config.json"), "half").unwrap();
            Err(Error::Vocabulary("no words".to_owned()))
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
            let key = |seat: &Seat| scenario.start(seat.scene, 0).unwrap().key(0).unwrap();
            let evaluated = game.scenes.evaluation(&*scenario, 1, 200).unwrap();
            let evaluated: HashSet<String> = evaluated.iter().map(key).collect();
            for step in 0..100 {
                let seats = game.seats(&how, step).unwrap();
                assert!(
                    seats.iter().all(|seat| !evaluated.contains(&key(seat))),
                    "{}",
                    scenario.name()
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
