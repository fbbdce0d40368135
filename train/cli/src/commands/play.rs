//! `lapwing play`: games on the terminal, by a model or by somebody else; `by_hand.rs` has them by a person.

use std::io::{self, Write};

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_learn::config::LearnerKind;
use lapwing_learn::value::learner::NetworkLearner;
use lapwing_play::Progress;
use lapwing_play::sample::{Place, Purpose as Kind, Sample};
use lapwing_play::scenes::Scenes;
use lapwing_play::{Episode, Framing, Player, Referee, Seat, Seen};
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::record::episode_file;
use lapwing_train::state::{Purpose, State};
use lapwing_train::{Config, Error};

use super::api;
use super::eval::alone;
use super::opponent::Opponent;
use crate::board::Painted;
use crate::hub::hub;
use crate::progress::Terminal;
use crate::screen::rounded;
use crate::{args, interrupt, out};

/// Lets the model play, and shows what it saw, said and got.
pub fn by_model(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Play,
) -> Result<()> {
    let mut config = arguments.config()?;
    interrupt::end_with_children(&[&config.game.name])?;
    check_keep(arguments)?;
    if config.learner != LearnerKind::MsGrpo {
        return by_network(open_gpu, arguments, &config);
    }
    // Nothing is held out: these are all that is played.
    config.eval.episodes = arguments.episodes;
    let temperature = config.eval.temperature;
    let terminal = Terminal::new();
    let gpu = open_gpu()?;
    let mut state = State::new(&gpu, hub(), config.clone(), Purpose::Play, &terminal)?;
    let world = state.world();
    let load = |who: &String| Opponent::load(who, &gpu, &*world.scenario, &config, &terminal);
    let mut opponent = arguments.opponent.as_ref().map(load).transpose()?;
    let seats = seats(arguments, &*world.scenario, &world.scenes)?;
    terminal.phase("playing", seats.len(), "episodes");
    let mut other = opponent
        .as_mut()
        .map(|opponent| opponent.player(temperature));
    let (scenario, referee, mut player) = state.seated(0, temperature);
    let mut players: Vec<&mut dyn Player> = vec![&mut player];
    if let Some(other) = &mut other {
        players.push(&mut **other);
    }
    let episodes = referee.play(scenario, &seats, &mut players, &mut |episodes| {
        terminal.done(Episode::over(episodes));
    })?;
    drop(terminal);
    Episode::accidents(&episodes)
        .iter()
        .for_each(|told| out::note(told));
    let prompts = &state.world().prompts;
    let played = Played {
        scenario: &*state.world().scenario,
        framing: &prompts.framing,
        seats: &seats,
        episodes: &episodes,
    };
    played.tell(
        arguments,
        |episode, place, actions| Ok(Sample::of(episode, place, actions, prompts)?),
        |episode| Ok(prompts.text(&Seen::turn(episode, 0))?),
    )
}

/// The same with a network that reads no words.
fn by_network(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Play,
    config: &Config,
) -> Result<()> {
    alone(config, arguments.opponent.is_some(), "--opponent")?;
    let trained =
        NetworkLearner::trained(&open_gpu()?, config.game.scenario()?, &config.network())?;
    let scenario = &*trained.scenario;
    let framing = Framing::new(scenario, &config.policy)?;
    let seats = seats(arguments, scenario, &Scenes::of(scenario)?)?;
    let referee = Referee {
        step_limit: scenario.step_limit(),
        format_penalty: 0.0,
    };
    let mut player = trained.greedy_player();
    let episodes = referee.play(scenario, &seats, &mut [&mut player], &mut |_| ())?;
    let played = Played {
        scenario,
        framing: &framing,
        seats: &seats,
        episodes: &episodes,
    };
    played.tell(
        arguments,
        |episode, place, actions| Ok(Sample::played(episode, place, actions)),
        // It is shown no prompt: the board is all.
        |episode| Ok(episode.turns[0].observation.clone()),
    )
}

/// The same with somebody else than a model of ours.
pub fn by_another(arguments: &args::Play) -> Result<()> {
    let config = arguments.config()?;
    interrupt::end_with_children(&[&config.game.name])?;
    check_keep(arguments)?;
    let scenario = config.game.scenario()?;
    let framing = Framing::new(&*scenario, &config.policy)?;
    let mut player = api::player(&arguments.player, framing.clone(), &config)?;
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
    // What was paid for is told even if it was for nothing.
    if let Some(account) = player.account() {
        out::note(&format!("API: {account}"));
    }
    let played = Played {
        scenario: &*scenario,
        framing: &framing,
        seats: &seats,
        episodes: &episodes?,
    };
    played.tell(
        arguments,
        |episode, place, actions| Ok(Sample::played(episode, place, actions)),
        |episode| {
            let messages = framing.messages(&Seen::turn(episode, 0))?;
            let told = messages
                .iter()
                .map(|message| format!("{}: {}", message.role, message.content));
            Ok(told.collect::<Vec<_>>().join("\n"))
        },
    )
}

/// Before anything is played: nobody pays for a refusal.
fn check_keep(arguments: &args::Play) -> Result<()> {
    Ok(arguments
        .keep
        .as_deref()
        .map_or(Ok(()), episode_file::check_free)?)
}

/// The seeds from the one asked for on. Episodes that are kept are there to be learned from, so they are of scenes that
/// no evaluation plays.
fn seats(arguments: &args::Play, scenario: &dyn Scenario, scenes: &Scenes) -> Result<Vec<Seat>> {
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

/// What was played.
struct Played<'a> {
    scenario: &'a dyn Scenario,
    framing: &'a Framing,
    seats: &'a [Seat],
    episodes: &'a [Episode],
}

impl Played<'_> {
    /// Keeps it and shows it, as was asked for. `sample` is an episode as it is kept, `prompt` the first prompt of one.
    fn tell(
        &self,
        arguments: &args::Play,
        sample: impl Fn(&Episode, Place<'_>, &[String]) -> Result<Sample, Error>,
        prompt: impl Fn(&Episode) -> Result<String, Error>,
    ) -> Result<()> {
        let (agents, actions) = (self.scenario.agents(), self.scenario.actions());
        let played = || {
            let played = self.episodes.iter().enumerate();
            played.map(|(i, episode)| (self.seats[i / agents].scene, i % agents, episode))
        };
        let samples = |purpose| -> Result<Vec<Sample>, Error> {
            let of = |(scene, agent, episode): (u64, usize, &Episode)| {
                let place = Place {
                    step: 0,
                    purpose,
                    game: None,
                    scene,
                    agent,
                };
                sample(episode, place, actions)
            };
            played().map(of).collect()
        };
        if let Some(path) = &arguments.keep {
            let samples = samples(Kind::Training)?.into_iter().zip(self.episodes);
            let told = samples.map(|(sample, episode)| sample.told(episode, self.framing));
            episode_file::write(path, &told.collect::<Result<Vec<_>, _>>()?)?;
        }
        if arguments.json {
            let mut out = out::raw();
            for sample in samples(Kind::Evaluation)? {
                writeln!(out, "{}", serde_json::to_string(&sample)?)?;
            }
            return Ok(());
        }
        let colours = console::colors_enabled();
        let mut out = Painted::new(out::raw(), self.scenario.legend(), colours);
        if let Some(path) = &arguments.keep {
            // Those who keep many do not want to read them all.
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
            writeln!(out, "{}", in_all(self.episodes))?;
        }
        Ok(())
    }
}

/// What many episodes come to.
fn in_all(episodes: &[Episode]) -> String {
    let mean =
        |of: &dyn Fn(&Episode) -> f64| episodes.iter().map(of).sum::<f64>() / episodes.len() as f64;
    let success = mean(&|episode| f64::from(u8::from(episode.success)));
    format!(
        "{} episodes: success {success:.3}, return {:.3}",
        episodes.len(),
        mean(&Episode::game_return)
    )
}

/// A scene by its number, and luck and dice that follow from it.
pub(super) fn seat(seed: u64) -> Seat {
    Seat {
        scene: seed,
        luck: seed,
        reply: seed,
    }
}

/// An episode as a person reads it. `prompt` is the whole prompt of the first turn; the later ones differ in the
/// observation only.
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
                write!(out, "cannot be read{why}: reward {}", turn.reward)?;
            }
        }
        if turn.shaping != 0.0 {
            write!(out, ", shaping {}", turn.shaping)?;
        }
        writeln!(out, "\n")?;
    }
    writeln!(
        out,
        "{}",
        ending(episode.success, episode.turns.len(), episode.game_return())
    )
}

/// The last line of an episode.
pub(super) fn ending(success: bool, turns: usize, total: f64) -> String {
    let verdict = if success { "success" } else { "no success" };
    let (turns, total) = (counted(turns), rounded(total));
    format!("over after {turns}: {verdict}, return {total}")
}

/// So many turns.
pub(super) fn counted(turns: usize) -> String {
    format!("{turns} {}", if turns == 1 { "turn" } else { "turns" })
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use lapwing_play::{Ending, Turn, Unread};

    use super::*;

    #[test]
    fn a_sum_of_fractions_reads_as_on_paper() {
        let total: f64 = (0..6).map(|_| -0.01).sum();
        assert_eq!(
            ending(false, 6, total),
            "over after 6 turns: no success, return -0.06"
        );
    }

    #[test]
    fn a_transcript_reads_so() {
        let turn = |observation: &str, text: &str, action: Option<usize>, reward, shaping| Turn {
            observation: observation.to_owned(),
            text: text.to_owned(),
            action,
            unread: action.is_none().then_some(Unread::SeveralActions),
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
            ending: Some(Ending::Terminated),
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
        cannot be read (it names several actions): reward 0, shaping -0.1

        --- turn 3
        _ P
        > down
        down: reward 1

        over after 3 turns: success, return 1
        ");
    }
}
