//! `lapwing play --human`: a game played by a person, on a board that is redrawn in place or line by line.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use console::Term;
use lapwing_env::Scenario;
use lapwing_play::players::human::{HumanPlayer, help};
use lapwing_play::players::scripted::ScriptedPlayer;
use lapwing_play::{ActionRequest, Episode, Player, Referee, Seat, Turn};

use super::human_scores;
use super::play::ending;
use crate::keys::{self, ActionKeys};
use crate::screen::{OTHERS, Screen, counted, rounded};
use crate::{args, interrupt, out};

pub fn play(arguments: &args::PlayArgs) -> Result<()> {
    let game = arguments.config()?.game;
    interrupt::end_with_children(&[&game.name])?;
    let scenario = &*game.scenario()?;
    let seed = arguments.seed;
    let played = match io::stdin().is_terminal() && io::stdout().is_terminal() {
        true => in_terminal(scenario, seed)?,
        false => in_turns(scenario, seed, typed, out::shown(), None)?,
    };
    match played {
        Some(episode) => record(scenario, seed, &episode, &mut out::shown()),
        None => Ok(()),
    }
}

/// Plays by keys, or in lines if the game takes any text.
fn in_terminal(scenario: &dyn Scenario, seed: u64) -> Result<Option<Episode>> {
    let term = Term::stdout();
    let shown = out::Escaping(term.clone());
    let keys = match scenario.takes_text() {
        true => "Type a reply, then Enter; Ctrl-D leaves.".to_owned(),
        false => keys::help(scenario.actions()),
    };
    let scores = human_scores::of(scenario).map(|scores| {
        let mean = rounded(scores.return_mean);
        format!("; mean of {} {mean}", counted(scores.episodes, "game"))
    });
    let screen = Screen::new(scenario, keys, scores.unwrap_or_default());
    let screen = (!console::is_dumb()).then_some((&screen, &term));
    if scenario.takes_text() {
        return in_turns(scenario, seed, typed, shown, screen);
    }
    // Raw, so that Ctrl-C is a key that ends the game like q.
    let mut keys = ActionKeys::new(|| term.read_key_raw(), term.clone(), scenario.actions());
    in_turns(scenario, seed, || keys.next_line(), shown, screen)
}

/// Returns a line of standard input.
fn typed() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).map(|_| line)
}

/// Plays a game in which every line of input is an action. Returns its episode, or `None` if the person left. Without a
/// screen, everything is written in lines.
fn in_turns<W: Write>(
    scenario: &dyn Scenario,
    seed: u64,
    read_line: impl FnMut() -> io::Result<String>,
    mut out: W,
    screen: Option<(&Screen<'_>, &Term)>,
) -> Result<Option<Episode>> {
    let limit = scenario.step_limit();
    if screen.is_none() {
        let how = match scenario.takes_text() {
            true => "Type any text; the end of the input leaves.".to_owned(),
            false => help(scenario.actions()),
        };
        let rules = scenario.rules();
        writeln!(out, "{rules}\n\nYou have {limit} turns. {how}")?;
        if scenario.agents() > 1 {
            writeln!(out, "{OTHERS}")?;
        }
    }

    let show = |out: &mut &mut W, ask: &ActionRequest<'_>| match screen {
        Some((screen, term)) => screen.draw(term, ask.seen.observation, ask.seen.past),
        None => {
            tell(out, ask.seen.past)?;
            writeln!(out, "\n{}", ask.seen.observation)
        }
    };
    let mut human = HumanPlayer {
        scenario,
        read_line,
        out: &mut out,
        show,
    };
    let mut others: Vec<ScriptedPlayer> = Vec::new();
    others.resize_with(scenario.agents() - 1, ScriptedPlayer::default);
    let mut players: Vec<&mut dyn Player> = vec![&mut human];
    players.extend(others.iter_mut().map(|other| other as &mut dyn Player));
    // The person repeats an invalid reply, so it costs nothing.
    let referee = Referee::of(scenario, 0.0);
    let episode = referee.play(scenario, &[Seat::of(seed)], &mut players, &mut |_| ())?;
    let episode = episode.into_iter().next().expect("one for each agent");
    let is_over = episode.ending.is_some();
    match screen {
        _ if !is_over => writeln!(out)?,
        Some((screen, term)) => screen.draw(term, &episode.last, &episode.turns)?,
        None => {
            tell(&mut out, &episode.turns)?;
            writeln!(out, "\n{}", episode.last)?;
        }
    }
    writeln!(out, "{}", ending(&episode))?;
    Ok(is_over.then_some(episode))
}

fn tell(out: &mut impl Write, past: &[Turn]) -> io::Result<()> {
    past.last().map_or(Ok(()), |turn| {
        writeln!(out, "{}: reward {}", turn.text, turn.reward)
    })
}

/// Records the score of a game, and prints the person's mean.
fn record(
    scenario: &dyn Scenario,
    seed: u64,
    episode: &Episode,
    out: &mut impl Write,
) -> Result<()> {
    if let Err(error) = human_scores::keep(scenario, seed, episode) {
        writeln!(out, "cannot record the score: {error}")?;
        return Ok(());
    }
    if let (Some(scores), Some(file)) = (human_scores::of(scenario), human_scores::file()) {
        let games = counted(scores.episodes, "game");
        let (mean, file) = (rounded(scores.return_mean), file.display());
        writeln!(
            out,
            "in {games} of this kind: mean return {mean} (recorded in {file}, shown by lapwing eval)"
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
        let mut lines = input.split_inclusive('\n').map(str::to_owned);
        let read_line = || Ok(lines.next().unwrap_or_default());
        in_turns(&*lake(), 1, read_line, &mut out, None).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_game_is_played_in_lines() {
        assert_snapshot!(played("jump\n\nRight\nd\n"), @"
        You walk on a frozen lake. P is you, _ is ice, O is a hole, G is the goal. Reach the goal. A hole ends the game. Each move goes one cell; the edge stops you.

        You have 3 turns. Enter left, down, right, up, or their first letters; ? shows this, q quits.

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
        over after 2 turns (reached the goal): success, return 1
        ");
    }

    #[test]
    fn the_end_of_the_input_ends_the_game() {
        assert!(played("r\n").ends_with("\nstopped after 1 turn, return 0\n"));
        assert!(played("quit\n").ends_with("\nstopped after 0 turns, return 0\n"));
    }

    #[test]
    fn the_step_limit_ends_the_game() {
        assert!(
            played("l\nl\nl\nr\n")
                .ends_with("over after 3 turns (step limit): no success, return 0\n")
        );
    }
}
