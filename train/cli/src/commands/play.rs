//! `lapwing play`: one game on the terminal, by a model or by hand.

use std::cell::RefCell;
use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Result;
use console::Term;
use lapwing_env::Scenario;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::play::players::human::{Human, help, in_lines};
use lapwing_train::play::players::scripted::Scripted;
use lapwing_train::play::scenes::Scenes;
use lapwing_train::play::{Ask, Episode, Framing, Player, Referee, Seat, Seen};
use lapwing_train::record::kept;
use lapwing_train::record::sample::{Place, Purpose as Kind, Sample};
use lapwing_train::run::config::Learner;
use lapwing_train::run::state::{Purpose, State};
use lapwing_train::value::state::Trained;
use lapwing_train::{Config, Error, Progress};

use super::eval::alone;
use super::keys::{self, Keys};
use super::opponent::Opponent;
use super::{api, human};
use crate::board::Painted;
use crate::progress::Terminal;
use crate::screen::{OTHERS, Screen, rounded};
use crate::{args, interrupt, out};

/// Lets the model play, and shows what it saw, said and got.
pub fn by_model(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Play,
) -> Result<()> {
    let mut config = arguments.config()?;
    interrupt::end_with_children(&[&config.game.name])?;
    check_keep(arguments)?;
    if config.learner != Learner::MsGrpo {
        return by_network(open_gpu, arguments, &config);
    }
    // Nothing is held out: these are all that is played.
    config.eval.episodes = arguments.episodes;
    let temperature = config.eval.temperature;
    let terminal = Terminal::new();
    let gpu = open_gpu()?;
    let mut state = State::new(&gpu, config.clone(), Purpose::Play, &terminal)?;
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
        |episode, place, actions| Sample::of(episode, place, actions, prompts),
        |episode| prompts.text(&Seen::turn(episode, 0)),
    )
}

/// The same with a network that reads no words.
fn by_network(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Play,
    config: &Config,
) -> Result<()> {
    alone(config, arguments.opponent.is_some(), "--opponent")?;
    let trained = Trained::load(&open_gpu()?, config)?;
    let scenario = &*trained.scenario;
    let framing = Framing::new(scenario, &config.policy)?;
    let seats = seats(arguments, scenario, &Scenes::of(scenario)?)?;
    let referee = Referee {
        step_limit: scenario.step_limit(),
        format_penalty: 0.0,
    };
    let mut player = trained.player();
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
    Ok(arguments.keep.as_deref().map_or(Ok(()), kept::check_free)?)
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
            kept::write(path, &told.collect::<Result<Vec<_>, _>>()?)?;
        }
        if arguments.json {
            let mut out = out::raw();
            for sample in samples(Kind::Evaluation)? {
                writeln!(out, "{}", serde_json::to_string(&sample)?)?;
            }
            return Ok(());
        }
        let colours = console::colors_enabled();
        let mut out = Painted::new(out::raw(), self.scenario.name(), colours);
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

fn seat(seed: u64) -> Seat {
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

/// Lets the person at the terminal play: by keys on a board that is drawn in place, or, where the input is no terminal or
/// the terminal knows no more, by lines.
pub fn by_hand(arguments: &args::Play) -> Result<()> {
    let game = arguments.config()?.game;
    interrupt::end_with_children(&[&game.name])?;
    let scenario = game.scenario()?;
    let seed = arguments.seed;
    let played = if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        hand(&*scenario, seed, io::stdin().lock(), out::shown(), None)?
    } else {
        in_terminal(&*scenario, seed)?
    };
    match played {
        Some(episode) => score(&*scenario, seed, &episode, &mut out::shown()),
        None => Ok(()),
    }
}

/// By keys; where any text will do, by lines, which the terminal itself knows best how to edit.
fn in_terminal(scenario: &dyn Scenario, seed: u64) -> Result<Option<Episode>> {
    let term = Term::stdout();
    let shown = out::Shown(term.clone());
    let how = match scenario.takes_text() {
        true => "Type what you say, then Enter; Ctrl-D leaves.".to_owned(),
        false => keys::help(scenario.actions()),
    };
    let screen = Screen::new(scenario, how, record(scenario));
    let screen = (!console::is_dumb()).then_some((&screen, &term));
    if scenario.takes_text() {
        return hand(scenario, seed, io::stdin().lock(), shown, screen);
    }
    // Ctrl-C is a key, too, so that the game ends in one way.
    let key = || term.read_key_raw();
    let keys = Keys::new(key, term.clone(), scenario.actions());
    hand(scenario, seed, keys, shown, screen)
}

/// How the person has done at this game so far, for the end of a line; empty if they have not played it.
fn record(scenario: &dyn Scenario) -> String {
    human::of(scenario).map_or_else(String::new, |human| {
        let (games, mean) = (in_games(human.episodes), rounded(human.return_mean));
        format!("; mean of {games} {mean}")
    })
}

fn in_games(games: usize) -> String {
    format!("{games} {}", if games == 1 { "game" } else { "games" })
}

/// Writes to what others write to as well.
struct Shared<'a, W>(&'a RefCell<W>);

impl<W: Write> Write for Shared<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

/// A game in which every action is a line of input: how it went, if it was played to its end. It may end with the input,
/// too. Without a screen, all is shown in lines.
fn hand(
    scenario: &dyn Scenario,
    seed: u64,
    input: impl BufRead,
    out: impl Write,
    screen: Option<(&Screen, &Term)>,
) -> Result<Option<Episode>> {
    let out = RefCell::new(out);
    let limit = scenario.step_limit();
    if screen.is_none() {
        let how = match scenario.takes_text() {
            true => "Say what you like; the end of the input leaves.".to_owned(),
            false => help(scenario.actions()),
        };
        let rules = scenario.rules();
        writeln!(out.borrow_mut(), "{rules}\n\nYou have {limit} turns. {how}")?;
        if scenario.agents() > 1 {
            writeln!(out.borrow_mut(), "{OTHERS}")?;
        }
    }

    let show = |out: &mut Shared<'_, _>, ask: &Ask<'_>| match screen {
        Some((screen, term)) => screen.draw(term, ask),
        None => in_lines(out, ask),
    };
    let mut human = Human::new(scenario, input, Shared(&out), show);
    let mut others: Vec<Scripted> = (1..scenario.agents())
        .map(|_| Scripted::default())
        .collect();
    let mut players: Vec<&mut dyn Player> = vec![&mut human];
    players.extend(others.iter_mut().map(|other| other as &mut dyn Player));
    let (mut turns, mut total) = (0, 0.0);
    let mut shown = Ok(());
    // A reply that cannot be read is asked for again, so there is nothing to take off.
    let referee = Referee {
        step_limit: limit,
        format_penalty: 0.0,
    };
    let played = referee.play(scenario, &[seat(seed)], &mut players, &mut |episodes| {
        let of_first = &episodes[0];
        let Some(turn) = of_first
            .turns
            .last()
            .filter(|_| of_first.turns.len() > turns)
        else {
            return;
        };
        (turns, total) = (of_first.turns.len(), of_first.game_return());
        if screen.is_some() {
            return;
        }
        let said = writeln!(out.borrow_mut(), "{}: reward {}", turn.text, turn.reward);
        if shown.is_ok() {
            shown = said;
        }
    });
    shown?;
    match played {
        Ok(mut episodes) => {
            let episode = episodes.swap_remove(0);
            let ending = ending(episode.success, turns, total);
            match screen {
                Some((screen, term)) => {
                    screen.end(term, &episode.last, &episode.turns)?;
                    writeln!(out.borrow_mut(), "{ending}")?;
                }
                None => writeln!(out.borrow_mut(), "\n{}\n{ending}", episode.last)?,
            }
            Ok(Some(episode))
        }
        Err(Error::Left) => {
            let (turns, total) = (counted(turns), rounded(total));
            writeln!(out.borrow_mut(), "\nleft after {turns}, return {total}")?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Keeps the score of a game that a person played, and tells how they do in all.
fn score(
    scenario: &dyn Scenario,
    seed: u64,
    episode: &Episode,
    out: &mut impl Write,
) -> Result<()> {
    if let Err(error) = human::keep(scenario, seed, episode) {
        writeln!(out, "the score could not be kept: {error}")?;
        return Ok(());
    }
    if let (Some(human), Some(file)) = (human::of(scenario), human::file()) {
        let (games, mean) = (human.episodes, rounded(human.return_mean));
        let games = in_games(games);
        let file = file.display();
        writeln!(
            out,
            "in {games} of this kind: mean return {mean} (kept in {file}, shown by lapwing eval)"
        )?;
    }
    Ok(())
}

/// The last line of an episode.
fn ending(success: bool, turns: usize, total: f64) -> String {
    let verdict = if success { "success" } else { "no success" };
    let (turns, total) = (counted(turns), rounded(total));
    format!("over after {turns}: {verdict}, return {total}")
}

fn counted(turns: usize) -> String {
    format!("{turns} {}", if turns == 1 { "turn" } else { "turns" })
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use lapwing_train::play::{Ending, Turn, Unread};

    use super::*;

    fn lake() -> Box<dyn Scenario> {
        let options = serde_json::json!({ "map": ["SF", "HG"], "step_limit": 3 });
        (lapwing_env::find("frozen-lake").unwrap().configure)(&options).unwrap()
    }

    fn played(input: &str) -> String {
        let mut out = Vec::new();
        hand(&*lake(), 1, input.as_bytes(), &mut out, None).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_game_by_hand_reads_so() {
        assert_snapshot!(played("jump\n\nRight\nd\n"), @"
        You walk on a frozen lake. P is you, _ is ice, O is a hole, G is the goal. Reach the goal. A hole ends the game. Each move goes one cell; the edge stops you.

        You have 3 turns. Say left, down, right, up, or their first letters; ? shows this, q quits.

        P _
        O G
        turn 1/3> `jump` is none of left, down, right, up (? helps, q quits)
        turn 1/3> `` is none of left, down, right, up (? helps, q quits)
        turn 1/3> right: reward 0

        _ P
        O G
        turn 2/3> down: reward 1

        _ _
        O P
        over after 2 turns: success, return 1
        ");
    }

    #[test]
    fn the_end_of_the_input_ends_the_game() {
        assert!(played("r\n").ends_with("\nleft after 1 turn, return 0\n"));
        assert!(played("quit\n").ends_with("\nleft after 0 turns, return 0\n"));
    }

    #[test]
    fn a_sum_of_fractions_reads_as_on_paper() {
        let total: f64 = (0..6).map(|_| -0.01).sum();
        assert_eq!(
            ending(false, 6, total),
            "over after 6 turns: no success, return -0.06"
        );
    }

    #[test]
    fn the_step_limit_ends_the_game() {
        assert!(played("l\nl\nl\nr\n").ends_with("over after 3 turns: no success, return 0\n"));
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
        transcript(prompt, lake().actions(), &episode, &mut out).unwrap();
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
