//! `lapwing play`: games on the terminal, played by a model or another player. `by_hand.rs` is for people.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::prompt::Prompts;
use lapwing_play::sample::{EpisodeOrigin, EpisodePurpose, KeptEpisode};
use lapwing_play::scenes::Scenes;
use lapwing_play::{
    ActionRequest, AgentView, Episode, EpisodeEnd, PlayError, Player, Progress, PromptWriter,
    Referee, Seat, Turn,
};
use lapwing_train::Config;
use lapwing_train::record::{NewFile, episode_file};
use lapwing_train::state::{RunPurpose, State};

use super::eval::refuse_for_network;
use super::opponent::OpponentPlayer;
use super::other_player;
use crate::args::{DeviceArgs, PlayArgs};
use crate::board::painted;
use crate::hub::hub;
use crate::interrupt::Stopped;
use crate::progress::Terminal;
use crate::screen::{counted, rounded};
use crate::{interrupt, out};

pub fn play(device: DeviceArgs, arguments: &PlayArgs) -> Result<()> {
    let config = arguments.config()?;
    interrupt::listen("what was played so far is kept")?;
    let keep = arguments.keep.as_deref();
    let keep = keep.map(|path| NewFile::at(path, "--keep")).transpose()?;
    match arguments.player.player.is_none() && config.learner.has_language() {
        true => by_model(device, arguments, config, keep),
        false => by_other_player(device, arguments, &config, keep),
    }
}

fn by_model(
    device: DeviceArgs,
    arguments: &PlayArgs,
    mut config: Config,
    keep: Option<NewFile>,
) -> Result<()> {
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
    let prompts = world.prompts.clone();
    let mut opponent = opponent.as_mut().map(|o| o.player(temperature));
    let (scenario, referee, mut player) = state.seated(0, temperature);
    let games = Games {
        arguments,
        scenario,
        framing: &prompts.framing,
        prompts: Some(&prompts),
        seats: &seats,
    };
    let transcript = RefCell::new(Transcript::new(&games));
    let mut watch = |ask: &ActionRequest<'_>, ids: &[u32]| {
        transcript.borrow_mut().stream(ask, ids);
        !interrupt::is_asked()
    };
    player.watch = Some(&mut watch);
    let mut players: Vec<&mut dyn Player> = vec![&mut player];
    players.extend(opponent.iter_mut().map(|o| &mut **o as &mut dyn Player));
    let episodes = games.play(&referee, &mut players, &transcript, terminal)?;
    games.conclude(&episodes, keep)
}

/// Lets the selected player play, or else the config's value network.
fn by_other_player(
    device: DeviceArgs,
    arguments: &PlayArgs,
    config: &Config,
    keep: Option<NewFile>,
) -> Result<()> {
    refuse_for_network(config, arguments.opponent.is_some(), "--opponent")?;
    let scenario = &*config.game.scenario()?;
    let framing = PromptWriter::new(scenario, &config.policy)?;
    let mut player = other_player::load(&arguments.player, device, scenario, &framing, config)?;
    let games = Games {
        arguments,
        scenario,
        framing: &framing,
        prompts: None,
        seats: &seats(arguments, scenario, &Scenes::of(scenario)?)?,
    };
    let referee = Referee::of(scenario, config.policy.format_penalty);
    let transcript = RefCell::new(Transcript::new(&games));
    let episodes = games.play(&referee, &mut [&mut player], &transcript, Terminal::new());
    // The cost is printed even after an error.
    if let Some(account) = player.account() {
        out::status(&format!("API: {account}"));
    }
    games.conclude(&episodes?, keep)
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
        seats.push(Seat::of(next));
        next = next.wrapping_add(1);
    }
    Ok(seats)
}

/// The games to play: one for each seat.
struct Games<'a> {
    arguments: &'a PlayArgs,
    scenario: &'a dyn Scenario,
    framing: &'a PromptWriter,
    prompts: Option<&'a Prompts>,
    seats: &'a [Seat],
}

impl Games<'_> {
    /// Plays them, or until the first signal.
    fn play(
        &self,
        referee: &Referee,
        players: &mut [&mut dyn Player],
        transcript: &RefCell<Transcript<'_>>,
        terminal: Terminal,
    ) -> Result<Vec<Episode>> {
        // Its bars would overwrite a transcript on the terminal.
        let is_covered = transcript.borrow().is_written && io::stdout().is_terminal();
        let terminal = (!is_covered).then_some(terminal);
        let count = self.seats.len() * self.scenario.agents();
        if let Some(terminal) = &terminal {
            terminal.phase("playing", count, "episodes");
        }
        let mut watch = |episodes: &[Episode]| {
            if let Some(terminal) = &terminal {
                terminal.done(Episode::played(episodes, referee.step_limit));
            }
            transcript.borrow_mut().follow(episodes);
        };
        let episodes = referee.play(self.scenario, self.seats, players, &mut watch)?;
        drop(terminal);
        transcript.borrow_mut().end(&episodes)?;
        let accidents = Episode::accidents(&episodes);
        accidents.iter().for_each(|text| out::note(text));
        Ok(episodes)
    }

    /// Returns the records of the episodes that are over.
    fn samples(
        &self,
        episodes: &[Episode],
        purpose: EpisodePurpose,
    ) -> Result<Vec<KeptEpisode>, PlayError> {
        let agents = self.scenario.agents();
        let over = episodes.iter().enumerate();
        let over = over.filter(|(_, episode)| episode.ending.is_some());
        let sample = |(i, episode): (usize, &Episode)| {
            let place = EpisodeOrigin {
                step: 0,
                purpose,
                game: None,
                scene: self.seats[i / agents].scene,
                agent: i % agents,
            };
            let actions = self.scenario.actions();
            KeptEpisode::of(episode, place, actions, self.prompts)
        };
        over.map(sample).collect()
    }

    fn prompt(&self, seen: &AgentView<'_>) -> Result<String, PlayError> {
        if let Some(prompts) = self.prompts {
            return prompts.text(seen);
        }
        // A network gets no prompt.
        if self.arguments.player.player.is_none() {
            return Ok(seen.observation.to_owned());
        }
        let messages = self.framing.messages(seen)?.into_iter();
        let lines = messages.map(|m| format!("{}: {}", m.role, m.content));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Prints or writes what is left to print after the last turn.
    fn conclude(&self, episodes: &[Episode], keep: Option<NewFile>) -> Result<()> {
        let over = episodes.iter().filter(|e| e.ending.is_some());
        let over: Vec<Episode> = over.cloned().collect();
        let (count, arguments) = (over.len(), self.arguments);
        let keep = keep.filter(|_| count > 0);
        if let Some(file) = &keep {
            let samples = self
                .samples(episodes, EpisodePurpose::Training)?
                .into_iter();
            let samples = samples.zip(&over);
            let samples = samples.map(|(sample, episode)| sample.told(episode, self.framing));
            episode_file::write(file, &samples.collect::<Result<Vec<_>, _>>()?)?;
        }
        let mut out = out::raw();
        if arguments.json {
            for sample in self.samples(episodes, EpisodePurpose::Play)? {
                writeln!(out, "{}", serde_json::to_string(&sample)?)?;
            }
        } else if let Some(file) = &keep {
            let (path, kept) = (file.path().display(), counted(count, "episode"));
            writeln!(out::shown(), "Kept {kept} in {path}.")?;
        }
        if count > 1 && !arguments.json {
            let play = PlayMetrics::of(self.scenario.actions(), &over);
            let (success, mean) = (play.success_rate, play.return_mean);
            let scores = format!("success {success:.3}, return {mean:.3}");
            writeln!(out, "{count} episodes: {scores}")?;
        }
        if count == episodes.len() {
            return Ok(());
        }
        // They are played together.
        let bias = match count {
            0 => "",
            _ => ", the shortest ones",
        };
        let all = episodes.len();
        Err(Stopped(format!(": {count} of {all} episodes are over{bias}")).into())
    }
}

/// Writes episodes while they are played, one after the other: each turn when it has been played, and on a terminal each
/// token of its reply.
struct Transcript<'a> {
    games: &'a Games<'a>,
    is_written: bool,
    is_streamed: bool,
    /// The index of the episode that is written.
    episode: usize,
    /// The number of its turns that are written.
    turns: usize,
    /// The written part of the reply in the next turn, if the observation before it is written.
    reply: Option<String>,
    error: Option<PlayError>,
}

impl<'a> Transcript<'a> {
    fn new(games: &'a Games<'a>) -> Transcript<'a> {
        let is_written = !games.arguments.json && games.arguments.keep.is_none();
        Transcript {
            games,
            is_written,
            is_streamed: is_written && io::stdout().is_terminal(),
            episode: 0,
            turns: 0,
            reply: None,
            error: None,
        }
    }

    /// Writes the reply so far, if it is of this episode.
    fn stream(&mut self, ask: &ActionRequest<'_>, ids: &[u32]) {
        if !self.is_streamed || ask.episode != self.episode || self.error.is_some() {
            return;
        }
        let mut write = || {
            self.begin(&ask.seen)?;
            if let Some(prompts) = self.games.prompts {
                let text = prompts.tokenizer().decode(ids)?;
                // A character that is not complete yet.
                self.say(text.trim_end_matches('\u{fffd}'))?;
            }
            Ok(())
        };
        self.error = write().err();
    }

    /// Writes the turns that have been played.
    fn follow(&mut self, episodes: &[Episode]) {
        if self.is_written && self.error.is_none() {
            self.error = self.write(episodes, false).err();
        }
    }

    /// Writes the rest after the last turn.
    fn end(&mut self, episodes: &[Episode]) -> Result<(), PlayError> {
        if self.is_written && self.error.is_none() {
            self.write(episodes, true)?;
        }
        self.error.take().map_or(Ok(()), Err)
    }

    fn write(&mut self, episodes: &[Episode], is_end: bool) -> Result<(), PlayError> {
        while let Some(episode) = episodes.get(self.episode) {
            if episode.ending == Some(EpisodeEnd::Failed) && !is_end {
                // It is played again from its start when the others are over.
                (self.turns, self.is_streamed) = (0, false);
                return Ok(());
            }
            while self.turns < episode.turns.len() {
                self.begin(&AgentView::turn(episode, self.turns))?;
                let turn = &episode.turns[self.turns];
                self.say(&turn.text)?;
                let outcome = outcome(turn, self.games.scenario.actions());
                writeln!(out::shown(), "\n{outcome}\n")?;
                (self.reply, self.turns) = (None, self.turns + 1);
            }
            if episode.ending.is_none() && !is_end {
                return Ok(());
            }
            if self.reply.take().is_some() {
                writeln!(out::raw(), "\n")?;
            }
            if !episode.last.is_empty() {
                self.paint(&format!("{}\n", episode.last))?;
            }
            writeln!(out::raw(), "{}", ending(episode))?;
            (self.episode, self.turns) = (self.episode + 1, 0);
        }
        Ok(())
    }

    /// Writes what the agent reads in the next turn: the whole prompt in the first. Later prompts differ only in the
    /// observation.
    fn begin(&mut self, seen: &AgentView<'_>) -> Result<(), PlayError> {
        if self.reply.is_some() {
            return Ok(());
        }
        let (games, agents) = (self.games, self.games.scenario.agents());
        let seed = games.seats[self.episode / agents].scene;
        let head = match (self.turns, games.seats.len(), agents) {
            (1.., ..) | (_, 1, 1) => String::new(),
            (_, _, 1) => format!("=== seed {seed}\n"),
            _ => format!(
                "=== seed {seed}, agent {} of {agents}\n",
                self.episode % agents + 1
            ),
        };
        let text = match self.turns {
            0 => games.prompt(seen)?,
            _ => seen.observation.to_owned(),
        };
        self.paint(&format!("{head}--- turn {}\n{text}\n> ", self.turns + 1))?;
        self.reply = Some(String::new());
        Ok(())
    }

    fn say(&mut self, reply: &str) -> io::Result<()> {
        let reply = reply.trim();
        let written = self.reply.get_or_insert_default();
        let mut out = out::shown();
        match reply.strip_prefix(&**written) {
            Some(new) => write!(out, "{new}")?,
            None => write!(out, "\n> {reply}")?,
        }
        out.flush()?;
        reply.clone_into(written);
        Ok(())
    }

    fn paint(&self, text: &str) -> io::Result<()> {
        let legend = self.games.scenario.legend();
        let mut out = out::raw();
        write!(out, "{}", painted(legend, text, console::colors_enabled()))?;
        out.flush()
    }
}

/// Returns the line below a reply: the action and its rewards.
fn outcome(turn: &Turn, actions: &[String]) -> String {
    let what = match (turn.action, turn.unread) {
        (Some(action), _) => actions[action].clone(),
        (None, Some(why)) => format!("invalid reply ({})", why.in_words()),
        (None, None) => "invalid reply".to_owned(),
    };
    let penalty = match turn.shaping {
        0.0 => String::new(),
        penalty => format!(", penalty {penalty}"),
    };
    format!("{what}: reward {}{penalty}", turn.reward)
}

/// Returns the last line of an episode.
pub(super) fn ending(episode: &Episode) -> String {
    let turns = counted(episode.turns.len(), "turn");
    let total = rounded(episode.game_return());
    let reason = match episode.ending {
        None => return format!("stopped after {turns}, return {total}"),
        Some(EpisodeEnd::Truncated) => Some("step limit"),
        Some(_) => episode.reason.as_deref(),
    };
    let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
    let verdict = match episode.success {
        true => "success",
        false => "no success",
    };
    format!("over after {turns}{reason}: {verdict}, return {total}")
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use lapwing_play::UnreadReason;

    use super::*;

    #[test]
    fn an_episode_ends_with_a_reason_and_a_rounded_return() {
        let turn = Turn {
            reward: -0.01,
            ..Turn::default()
        };
        let mut episode = Episode {
            turns: vec![turn; 6],
            ..Episode::default()
        };
        let mut told = |ended, reason: Option<&'static str>| {
            (episode.ending, episode.reason) = (ended, reason.map(Cow::Borrowed));
            ending(&episode)
        };
        assert_eq!(told(None, None), "stopped after 6 turns, return -0.06");
        assert_eq!(
            told(Some(EpisodeEnd::Truncated), None),
            "over after 6 turns (step limit): no success, return -0.06"
        );
        assert_eq!(
            told(Some(EpisodeEnd::Terminated), Some("fell into a hole")),
            "over after 6 turns (fell into a hole): no success, return -0.06"
        );
        assert_eq!(
            told(Some(EpisodeEnd::Terminated), None),
            "over after 6 turns: no success, return -0.06"
        );
    }

    #[test]
    fn a_reply_has_an_outcome() {
        let turn = |action: Option<usize>, reward, shaping| Turn {
            action,
            unread: action.is_none().then_some(UnreadReason::SeveralActions),
            reward,
            shaping,
            ..Turn::default()
        };
        let actions = ["left", "down"].map(str::to_owned);
        assert_eq!(
            outcome(&turn(Some(1), 1.0, 0.0), &actions),
            "down: reward 1"
        );
        assert_eq!(
            outcome(&turn(None, 0.0, -0.1), &actions),
            "invalid reply (it names several actions): reward 0, penalty -0.1"
        );
    }
}
