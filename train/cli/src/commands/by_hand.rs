//! `lapwing play --human`: a game on the terminal by whoever sits there, by keys on a board that is drawn in place or by lines.

use std::cell::RefCell;
use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Result;
use console::Term;
use lapwing_env::Scenario;
use lapwing_play::PlayError;
use lapwing_play::players::human::{Human, help, in_lines};
use lapwing_play::players::scripted::Scripted;
use lapwing_play::{Ask, Episode, Player, Referee};

use super::human;
use super::keys::{self, Keys};
use super::play::{counted, ending, seat};
use crate::screen::{OTHERS, Screen, rounded};
use crate::{args, interrupt, out};

/// Lets the person at the terminal play: by keys on a board that is drawn in place, or, where the input is no terminal or
/// the terminal knows no more, by lines.
pub fn play(arguments: &args::Play) -> Result<()> {
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
        Err(PlayError::Left) => {
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

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

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
    fn the_step_limit_ends_the_game() {
        assert!(played("l\nl\nl\nr\n").ends_with("over after 3 turns: no success, return 0\n"));
    }
}
