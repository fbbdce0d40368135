//! `lapwing play`: games on the terminal, played by a model or another player. `by_hand.rs` is for people.

use std::io::{self, Write};

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_learn::value::learner::NetworkLearner;
use lapwing_play::Progress;
use lapwing_play::sample::{EpisodeOrigin, EpisodePurpose as SamplePurpose, KeptEpisode};
use lapwing_play::scenes::Scenes;
use lapwing_play::{AgentView, Episode, Player, PromptWriter, Referee, Seat};
use lapwing_train::record::episode_file;
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::{Config, Error};

use super::eval::refuse_for_network;
use super::opponent::OpponentPlayer;
use super::other_player;
use crate::args::{DeviceArgs, PlayArgs};
use crate::board::Painted;
use crate::hub::hub;
use crate::progress::Terminal;
use crate::screen::{counted, rounded};
use crate::{interrupt, out};

/// Plays the episodes, and prints or keeps them.
pub fn play(device: DeviceArgs, arguments: &PlayArgs) -> Result<()> {
    let config = arguments.config()?;
    interrupt::end_with_children(&[&config.game.name])?;
    if let Some(path) = &arguments.keep {
        episode_file::check_free(path)?;
    }
    if arguments.player.player.is_some() {
        by_other_player(arguments, &config)
    } else if !config.learner.has_language() {
        by_network(device, arguments, &config)
    } else {
        by_model(device, arguments, config)
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
    terminal.phase("playing", seats.len(), "episodes");
    let mut opponent = opponent.as_mut().map(|o| o.player(temperature));
    let (scenario, referee, mut player) = state.seated(0, temperature);
    let mut players: Vec<&mut dyn Player> = vec![&mut player];
    if let Some(opponent) = &mut opponent {
        players.push(&mut **opponent);
    }
    let episodes = referee.play(scenario, &seats, &mut players, &mut |episodes| {
        terminal.done(Episode::over(episodes));
    })?;
    drop(terminal);
    let accidents = Episode::accidents(&episodes);
    accidents.iter().for_each(|text| out::note(text));
    let prompts = &state.world().prompts;
    let games = Games {
        scenario: &*state.world().scenario,
        framing: &prompts.framing,
        seats: &seats,
        episodes: &episodes,
    };
    games.print_or_keep(
        arguments,
        |episode, place, actions| Ok(KeptEpisode::of(episode, place, actions, prompts)?),
        |episode| Ok(prompts.text(&AgentView::turn(episode, 0))?),
    )
}

fn by_network(device: DeviceArgs, arguments: &PlayArgs, config: &Config) -> Result<()> {
    refuse_for_network(config, arguments.opponent.is_some(), "--opponent")?;
    let trained =
        NetworkLearner::trained(&device.open()?, config.game.scenario()?, &config.network())?;
    let scenario = &*trained.scenario;
    let seats = seats(arguments, scenario, &Scenes::of(scenario)?)?;
    let referee = Referee {
        step_limit: scenario.step_limit(),
        format_penalty: 0.0,
    };
    let mut player = trained.greedy_player();
    let games = Games {
        scenario,
        framing: &PromptWriter::new(scenario, &config.policy)?,
        episodes: &referee.play(scenario, &seats, &mut [&mut player], &mut |_| ())?,
        seats: &seats,
    };
    games.print_or_keep(
        arguments,
        |episode, place, actions| Ok(KeptEpisode::played(episode, place, actions)),
        // A network gets no prompt.
        |episode| Ok(episode.turns[0].observation.clone()),
    )
}

fn by_other_player(arguments: &PlayArgs, config: &Config) -> Result<()> {
    let scenario = config.game.scenario()?;
    let framing = PromptWriter::new(&*scenario, &config.policy)?;
    let mut player = other_player::load(&arguments.player, framing.clone(), config)?;
    let seats = seats(arguments, &*scenario, &Scenes::of(&*scenario)?)?;
    let referee = Referee {
        step_limit: scenario.step_limit(),
        format_penalty: config.policy.format_penalty,
    };
    let terminal = Terminal::new();
    terminal.phase("playing", seats.len() * scenario.agents(), "episodes");
    let episodes = referee.play(&*scenario, &seats, &mut [&mut player], &mut |episodes| {
        terminal.done(Episode::over(episodes));
    });
    drop(terminal);
    // The cost is printed even after an error.
    if let Some(account) = player.account() {
        out::note(&format!("API: {account}"));
    }
    let games = Games {
        scenario: &*scenario,
        framing: &framing,
        seats: &seats,
        episodes: &episodes?,
    };
    games.print_or_keep(
        arguments,
        |episode, place, actions| Ok(KeptEpisode::played(episode, place, actions)),
        |episode| {
            let messages = framing.messages(&AgentView::turn(episode, 0))?;
            let lines = messages
                .iter()
                .map(|m| format!("{}: {}", m.role, m.content));
            Ok(lines.collect::<Vec<_>>().join("\n"))
        },
    )
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
    seats: &'a [Seat],
    episodes: &'a [Episode],
}

impl Games<'_> {
    /// Prints or keeps the episodes. `sample` returns an episode as it is kept, `prompt` its first prompt.
    fn print_or_keep(
        &self,
        arguments: &PlayArgs,
        sample: impl Fn(&Episode, EpisodeOrigin<'_>, &[String]) -> Result<KeptEpisode, Error>,
        prompt: impl Fn(&Episode) -> Result<String, Error>,
    ) -> Result<()> {
        let (agents, actions) = (self.scenario.agents(), self.scenario.actions());
        let played = || {
            let episodes = self.episodes.iter().enumerate();
            episodes.map(|(i, episode)| (self.seats[i / agents].scene, i % agents, episode))
        };
        let samples = |purpose| -> Result<Vec<KeptEpisode>, Error> {
            let sample = |(scene, agent, episode)| {
                let place = EpisodeOrigin {
                    step: 0,
                    purpose,
                    game: None,
                    scene,
                    agent,
                };
                sample(episode, place, actions)
            };
            played().map(sample).collect()
        };
        if let Some(path) = &arguments.keep {
            let samples = samples(SamplePurpose::Training)?.into_iter();
            let samples = samples.zip(self.episodes);
            let samples = samples.map(|(sample, episode)| sample.told(episode, self.framing));
            episode_file::write(path, &samples.collect::<Result<Vec<_>, _>>()?)?;
        }
        if arguments.json {
            let mut out = out::raw();
            for sample in samples(SamplePurpose::Evaluation)? {
                writeln!(out, "{}", serde_json::to_string(&sample)?)?;
            }
            return Ok(());
        }
        let colours = console::colors_enabled();
        let mut out = Painted::new(out::raw(), self.scenario.legend(), colours);
        if let Some(path) = &arguments.keep {
            let count = self.episodes.len();
            writeln!(out, "{count} episodes are kept in {}.", path.display())?;
        } else {
            for (seed, agent, episode) in played() {
                match (self.seats.len(), agents) {
                    (1, 1) => (),
                    (_, 1) => writeln!(out, "=== seed {seed}")?,
                    _ => writeln!(out, "=== seed {seed}, agent {} of {agents}", agent + 1)?,
                }
                let prompt = match episode.turns.is_empty() {
                    true => String::new(),
                    false => prompt(episode)?,
                };
                transcript(&prompt, actions, episode, &mut out)?;
            }
        }
        if self.episodes.len() > 1 {
            writeln!(out, "{}", summary(self.episodes))?;
        }
        Ok(())
    }
}

fn summary(episodes: &[Episode]) -> String {
    let count = episodes.len() as f64;
    let mean = |of: &dyn Fn(&Episode) -> f64| episodes.iter().map(of).sum::<f64>() / count;
    let success = mean(&|episode| f64::from(u8::from(episode.success)));
    let game_return = mean(&Episode::game_return);
    format!("{count} episodes: success {success:.3}, return {game_return:.3}")
}

/// Returns a seat whose scene, luck and sampling follow from one seed.
pub(super) fn seat(seed: u64) -> Seat {
    Seat {
        scene: seed,
        luck: seed,
        reply: seed,
    }
}

/// Writes an episode with the whole prompt of its first turn. Later prompts differ only in the observation.
fn transcript(
    prompt: &str,
    actions: &[String],
    episode: &Episode,
    out: &mut impl Write,
) -> io::Result<()> {
    for (number, turn) in (1..).zip(&episode.turns) {
        let seen = if number == 1 {
            prompt
        } else {
            &turn.observation
        };
        writeln!(out, "--- turn {number}\n{seen}\n> {}", turn.text.trim())?;
        match turn.action {
            Some(action) => write!(out, "{}: reward {}", actions[action], turn.reward)?,
            None => {
                let why = turn.unread.map(|why| format!(" ({})", why.in_words()));
                let why = why.unwrap_or_default();
                write!(out, "invalid reply{why}: reward {}", turn.reward)?;
            }
        }
        if turn.shaping != 0.0 {
            write!(out, ", shaping {}", turn.shaping)?;
        }
        writeln!(out, "\n")?;
    }
    let (success, turns) = (episode.success, episode.turns.len());
    writeln!(out, "{}", ending(success, turns, episode.game_return()))
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
        let mut out = Vec::new();
        let actions = ["left", "down", "right", "up"].map(str::to_owned);
        transcript(prompt, &actions, &episode, &mut out).unwrap();
        assert_snapshot!(String::from_utf8(out).unwrap(), @"
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
