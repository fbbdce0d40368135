//! `lapwing play`: games on the terminal, played by a model or another player. `by_hand.rs` is for people.

use std::io::Write;

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::prompt::Prompts;
use lapwing_play::sample::{EpisodeOrigin, EpisodePurpose, KeptEpisode};
use lapwing_play::scenes::Scenes;
use lapwing_play::{AgentView, Episode, PlayError, Player, Progress, PromptWriter, Referee, Seat};
use lapwing_train::Config;
use lapwing_train::record::episode_file;
use lapwing_train::state::{RunPurpose, State};

use super::eval::refuse_for_network;
use super::opponent::OpponentPlayer;
use super::other_player;
use crate::args::{DeviceArgs, PlayArgs};
use crate::board::painted;
use crate::hub::hub;
use crate::progress::Terminal;
use crate::screen::{counted, rounded};
use crate::{interrupt, out};

pub fn play(device: DeviceArgs, arguments: &PlayArgs) -> Result<()> {
    let config = arguments.config()?;
    interrupt::end_with_children(&[&config.game.name])?;
    if let Some(path) = &arguments.keep {
        episode_file::check_free(path)?;
    }
    match arguments.player.player.is_none() && config.learner.has_language() {
        true => by_model(device, arguments, config),
        false => by_other_player(device, arguments, &config),
    }
}

fn by_model(device: DeviceArgs, arguments: &PlayArgs, mut config: Config) -> Result<()> {
    // No scene is held out: these episodes are all that is played.
    config.eval.episodes = arguments.episodes;
    let temperature = config.eval.temperature;
    let terminal = Terminal::new();
    let gpu = device.open()?;
    let mut state = State::new(&gpu, hub(), config.clone(), RunPurpose::Play, &terminal)?;
    let world = state.world();
    let load =
        |name: &String| OpponentPlayer::load(name, &gpu, &*world.scenario, &config, &terminal);
    let mut opponent = arguments.opponent.as_ref().map(load).transpose()?;
    let seats = seats(arguments, &*world.scenario, &world.scenes)?;
    let mut opponent = opponent.as_mut().map(|o| o.player(temperature));
    let (scenario, referee, mut player) = state.seated(0, temperature);
    let mut players: Vec<&mut dyn Player> = vec![&mut player];
    players.extend(opponent.iter_mut().map(|o| &mut **o as &mut dyn Player));
    let episodes = played(scenario, &referee, &seats, &mut players, terminal)?;
    let games = Games {
        scenario: &*state.world().scenario,
        framing: &state.world().prompts.framing,
        prompts: Some(&state.world().prompts),
        seats: &seats,
        episodes: &episodes,
    };
    games.print_or_keep(arguments)
}

/// Lets the selected player play, or else the config's value network.
fn by_other_player(device: DeviceArgs, arguments: &PlayArgs, config: &Config) -> Result<()> {
    refuse_for_network(config, arguments.opponent.is_some(), "--opponent")?;
    let scenario = &*config.game.scenario()?;
    let framing = PromptWriter::new(scenario, &config.policy)?;
    let mut player = other_player::load(&arguments.player, device, scenario, &framing, config)?;
    let seats = seats(arguments, scenario, &Scenes::of(scenario)?)?;
    let referee = Referee {
        step_limit: scenario.step_limit(),
        format_penalty: config.policy.format_penalty,
    };
    let terminal = Terminal::new();
    let episodes = played(scenario, &referee, &seats, &mut [&mut player], terminal);
    // The cost is printed even after an error.
    if let Some(account) = player.account() {
        out::status(&format!("API: {account}"));
    }
    let games = Games {
        scenario,
        framing: &framing,
        prompts: None,
        seats: &seats,
        episodes: &episodes?,
    };
    games.print_or_keep(arguments)
}

fn played(
    scenario: &dyn Scenario,
    referee: &Referee,
    seats: &[Seat],
    players: &mut [&mut dyn Player],
    terminal: Terminal,
) -> Result<Vec<Episode>, PlayError> {
    terminal.phase("playing", seats.len() * scenario.agents(), "episodes");
    let mut watch = |episodes: &[Episode]| terminal.done(Episode::over(episodes));
    let episodes = referee.play(scenario, seats, players, &mut watch)?;
    drop(terminal);
    let accidents = Episode::accidents(&episodes);
    accidents.iter().for_each(|text| out::note(text));
    Ok(episodes)
}

/// Returns a seat for each seed from the given one on. Episodes to keep are for training, so they skip held-out scenes.
fn seats(arguments: &PlayArgs, scenario: &dyn Scenario, scenes: &Scenes) -> Result<Vec<Seat>> {
    let mut seats = Vec::with_capacity(arguments.episodes);
    let mut next = arguments.seed;
    for _ in 0..arguments.episodes {
        if arguments.keep.is_some() {
            let from = next;
            next = scenes.training(scenario, |attempt| from.wrapping_add(attempt as u64))?;
        }
        seats.push(seat(next));
        next = next.wrapping_add(1);
    }
    Ok(seats)
}

/// Episodes, `scenario.agents()` for each seat.
struct Games<'a> {
    scenario: &'a dyn Scenario,
    framing: &'a PromptWriter,
    /// The prompts of a model.
    prompts: Option<&'a Prompts>,
    seats: &'a [Seat],
    episodes: &'a [Episode],
}

impl Games<'_> {
    /// Returns the episodes with their seeds and agents.
    fn played(&self) -> impl Iterator<Item = (u64, usize, &Episode)> {
        let (episodes, agents) = (self.episodes.iter().enumerate(), self.scenario.agents());
        episodes.map(move |(i, episode)| (self.seats[i / agents].scene, i % agents, episode))
    }

    fn samples(&self, purpose: EpisodePurpose) -> Result<Vec<KeptEpisode>, PlayError> {
        let sample = |(scene, agent, episode)| {
            let place = EpisodeOrigin {
                step: 0,
                purpose,
                game: None,
                scene,
                agent,
            };
            let actions = self.scenario.actions();
            match self.prompts {
                Some(prompts) => KeptEpisode::of(episode, place, actions, prompts),
                None => Ok(KeptEpisode::played(episode, place, actions)),
            }
        };
        self.played().map(sample).collect()
    }

    /// Returns the first prompt of an episode.
    fn prompt(&self, episode: &Episode, is_network: bool) -> Result<String, PlayError> {
        // A network gets no prompt.
        if is_network || episode.turns.is_empty() {
            let first = episode.turns.first();
            return Ok(first.map_or(String::new(), |turn| turn.observation.clone()));
        }
        let seen = AgentView::turn(episode, 0);
        if let Some(prompts) = self.prompts {
            return prompts.text(&seen);
        }
        let messages = self.framing.messages(&seen)?.into_iter();
        let lines = messages.map(|m| format!("{}: {}", m.role, m.content));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    fn print_or_keep(&self, arguments: &PlayArgs) -> Result<()> {
        if let Some(path) = &arguments.keep {
            let samples = self.samples(EpisodePurpose::Training)?.into_iter();
            let samples = samples.zip(self.episodes);
            let samples = samples.map(|(sample, episode)| sample.told(episode, self.framing));
            episode_file::write(path, &samples.collect::<Result<Vec<_>, _>>()?)?;
        }
        let (mut out, count) = (out::raw(), self.episodes.len());
        if arguments.json {
            for sample in self.samples(EpisodePurpose::Evaluation)? {
                writeln!(out, "{}", serde_json::to_string(&sample)?)?;
            }
            return Ok(());
        }
        if let Some(path) = &arguments.keep {
            let path = path.display();
            writeln!(out::shown(), "{count} episodes are kept in {path}.")?;
        } else {
            let (colours, agents) = (console::colors_enabled(), self.scenario.agents());
            for (seed, agent, episode) in self.played() {
                match (self.seats.len(), agents) {
                    (1, 1) => (),
                    (_, 1) => writeln!(out, "=== seed {seed}")?,
                    _ => writeln!(out, "=== seed {seed}, agent {} of {agents}", agent + 1)?,
                }
                let is_network = self.prompts.is_none() && arguments.player.player.is_none();
                let prompt = self.prompt(episode, is_network)?;
                let text = transcript(&prompt, self.scenario.actions(), episode);
                write!(out, "{}", painted(self.scenario.legend(), &text, colours))?;
            }
        }
        if count > 1 {
            let play = PlayMetrics::of(self.scenario.actions(), self.episodes);
            let (success, mean) = (play.success_rate, play.return_mean);
            let scores = format!("success {success:.3}, return {mean:.3}");
            writeln!(out, "{count} episodes: {scores}")?;
        }
        Ok(())
    }
}

/// Returns a seat whose scene, luck and sampling follow from one seed.
pub(super) fn seat(seed: u64) -> Seat {
    Seat {
        scene: seed,
        luck: seed,
        reply: seed,
    }
}

/// Returns an episode with the whole prompt of its first turn. Later prompts differ only in the observation.
fn transcript(prompt: &str, actions: &[String], episode: &Episode) -> String {
    let mut text = String::new();
    let mut seen = prompt;
    for (at, turn) in episode.turns.iter().enumerate() {
        if at > 0 {
            seen = &turn.observation;
        }
        text += &format!("--- turn {}\n{seen}\n> {}\n", at + 1, turn.text.trim());
        let what = match (turn.action, turn.unread) {
            (Some(action), _) => actions[action].clone(),
            (None, Some(why)) => format!("invalid reply ({})", why.in_words()),
            (None, None) => "invalid reply".to_owned(),
        };
        text += &format!("{what}: reward {}", turn.reward);
        if turn.shaping != 0.0 {
            text += &format!(", shaping {}", turn.shaping);
        }
        text += "\n\n";
    }
    let (success, turns) = (episode.success, episode.turns.len());
    text + &ending(success, turns, episode.game_return()) + "\n"
}

/// Returns the last line of an episode.
pub(super) fn ending(success: bool, turns: usize, total: f64) -> String {
    let verdict = if success { "success" } else { "no success" };
    let (turns, total) = (counted(turns, "turn"), rounded(total));
    format!("over after {turns}: {verdict}, return {total}")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use lapwing_play::{EpisodeEnd, Turn, UnreadReason};

    use super::*;

    #[test]
    fn the_return_is_rounded() {
        let total: f64 = (0..6).map(|_| -0.01).sum();
        assert_eq!(
            ending(false, 6, total),
            "over after 6 turns: no success, return -0.06"
        );
    }

    #[test]
    fn a_transcript_is_written() {
        let turn = |observation: &str, text: &str, action: Option<usize>, reward, shaping| Turn {
            observation: observation.to_owned(),
            text: text.to_owned(),
            action,
            unread: action.is_none().then_some(UnreadReason::SeveralActions),
            reward,
            shaping,
            ..Turn::default()
        };
        let episode = Episode {
            turns: vec![
                turn("P _", "right", Some(2), 0.0, 0.0),
                turn("_ P", "up up", None, 0.0, -0.1),
                turn("_ P", "down", Some(1), 1.0, 0.0),
            ],
            success: true,
            ending: Some(EpisodeEnd::Terminated),
            ..Episode::default()
        };
        let prompt = "<system>The rules.<user>P _<assistant>";
        let actions = ["left", "down", "right", "up"].map(str::to_owned);
        assert_snapshot!(transcript(prompt, &actions, &episode), @"
        --- turn 1
        <system>The rules.<user>P _<assistant>
        > right
        right: reward 0

        --- turn 2
        _ P
        > up up
        invalid reply (it names several actions): reward 0, shaping -0.1

        --- turn 3
        _ P
        > down
        down: reward 1

        over after 3 turns: success, return 1
        ");
    }
}
