//! `lapwing play`: one episode on the terminal, by a model or by hand.

use std::io::{self, BufRead, Write};

use anyhow::Result;
use lapwing::progress::Progress;
use lapwing::rollout::{Episode, Seat};
use lapwing::run::{Purpose, Run};
use lapwing_env::Scenario;
use lapwing_tensor::{Gpu, GpuError};

use crate::cli;

/// Lets the model play, and shows what it saw, said and got.
pub fn by_model(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &cli::Play,
) -> Result<()> {
    let mut config = arguments.config()?;
    // Nothing is held out, and one episode is all that is played.
    config.eval.episodes = 1;
    let progress = Progress::new();
    let mut run = Run::new(&open_gpu()?, config, Purpose::Play, &progress)?;
    let seat = Seat {
        scene: arguments.seed,
        luck: arguments.seed,
        reply: arguments.seed,
    };
    progress.phase("play", 1, "episodes");
    let temperature = run.config.eval.temperature;
    let episodes = run.play(&[seat], temperature, |over| progress.progress(over))?;
    drop(progress);
    let transcript = Transcript::new(&run, &episodes[0])?;
    transcript.write(&mut io::stdout().lock())?;
    Ok(())
}

/// An episode as a person reads it.
struct Transcript {
    /// The whole prompt of the first turn; the later ones differ in the observation only.
    prompt: String,
    turns: Vec<Turn>,
    success: bool,
}

struct Turn {
    observation: String,
    reply: String,
    action: Option<&'static str>,
    reward: f64,
    shaping: f64,
}

impl Transcript {
    fn new(run: &Run, episode: &Episode) -> Result<Transcript> {
        let actions = run.scenario.actions();
        let turns = episode.steps.iter().map(|step| {
            Ok(Turn {
                observation: step.observation.clone(),
                reply: run.agent.tokenizer.decode(&step.reply)?,
                action: step.action.map(|action| actions[action]),
                reward: step.reward,
                shaping: step.shaping,
            })
        });
        let first = episode.steps.first().map_or("", |step| &step.observation);
        Ok(Transcript {
            prompt: run.prompts.text(&run.agent.template, first)?,
            turns: turns.collect::<Result<_>>()?,
            success: episode.success,
        })
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut total = 0.0;
        for (number, turn) in (1..).zip(&self.turns) {
            let seen = if number == 1 {
                &self.prompt
            } else {
                &turn.observation
            };
            writeln!(out, "--- turn {number}\n{seen}\n> {}", turn.reply.trim())?;
            match turn.action {
                Some(action) => write!(out, "{action}: reward {}", turn.reward)?,
                None => write!(out, "cannot be read, does not move: reward {}", turn.reward)?,
            }
            if turn.shaping != 0.0 {
                write!(out, ", shaping {}", turn.shaping)?;
            }
            writeln!(out, "\n")?;
            total += turn.reward;
        }
        writeln!(out, "{}", ending(self.success, self.turns.len(), total))
    }
}

/// Lets the person at the terminal play.
pub fn by_hand(arguments: &cli::Play) -> Result<()> {
    let game = arguments.config()?.game;
    let scenario = (lapwing_env::find(&game.name)?.configure)(&game.options())?;
    hand(
        &*scenario,
        arguments.seed,
        &mut io::stdin().lock(),
        &mut io::stdout().lock(),
    )?;
    Ok(())
}

/// An episode in which every action is a line of input. Ends with the input, too.
fn hand(
    scenario: &dyn Scenario,
    seed: u64,
    input: &mut impl BufRead,
    out: &mut impl Write,
) -> io::Result<()> {
    let (actions, limit) = (scenario.actions(), scenario.step_limit());
    let words = actions.join(", ");
    writeln!(out, "{}\n", scenario.rules())?;
    writeln!(
        out,
        "You have {limit} turns. Say {words}, or their first letters; quit ends the game."
    )?;

    let mut game = scenario.start(seed, seed);
    let (mut total, mut turns) = (0.0, 0);
    while turns < limit {
        writeln!(out, "\n{}", game.observe())?;
        let Some(action) = ask(actions, turns + 1, limit, input, out)? else {
            let (turns, total) = (counted(turns), rounded(total));
            writeln!(out, "\nleft after {turns}, return {total}")?;
            return Ok(());
        };
        let turn = game.play(Some(action));
        total += turn.reward;
        turns += 1;
        writeln!(out, "{}: reward {}", actions[action], turn.reward)?;
        if turn.over {
            break;
        }
    }
    writeln!(out, "\n{}", game.observe())?;
    writeln!(out, "{}", ending(game.succeeded(), turns, total))
}

/// Asks until the answer is an action; `None` is to leave.
fn ask(
    actions: &[&str],
    turn: usize,
    limit: usize,
    input: &mut impl BufRead,
    out: &mut impl Write,
) -> io::Result<Option<usize>> {
    loop {
        write!(out, "turn {turn}/{limit}> ")?;
        out.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let word = line.trim().to_lowercase();
        if word == "quit" {
            return Ok(None);
        }
        // A whole word before what begins like it.
        let whole = actions.iter().position(|action| *action == word);
        let begins = || -> Vec<usize> {
            (0..actions.len())
                .filter(|&i| actions[i].starts_with(&word))
                .collect()
        };
        match (whole, &begins()[..]) {
            (Some(action), _) => return Ok(Some(action)),
            (None, [action]) if !word.is_empty() => return Ok(Some(*action)),
            _ => writeln!(
                out,
                "`{word}` is none of {} (quit leaves)",
                actions.join(", ")
            )?,
        }
    }
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

/// Without the last digits, in which a sum of decimal fractions is off.
fn rounded(total: f64) -> f64 {
    (total * 1e9).round() / 1e9
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
        hand(&*lake(), 1, &mut input.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_game_by_hand_reads_so() {
        assert_snapshot!(played("jump\n\nRight\nd\n"), @"
        You walk on a frozen lake. P is you, _ is ice, O is a hole, G is the goal. Reach the goal. A hole ends the game. Each move goes one cell; the edge stops you.

        You have 3 turns. Say left, down, right, up, or their first letters; quit ends the game.

        P _
        O G
        turn 1/3> `jump` is none of left, down, right, up (quit leaves)
        turn 1/3> `` is none of left, down, right, up (quit leaves)
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
        let turn = |observation: &str, reply: &str, action, reward, shaping| Turn {
            observation: observation.to_owned(),
            reply: reply.to_owned(),
            action,
            reward,
            shaping,
        };
        let transcript = Transcript {
            prompt: "<system>The rules.<user>P _<assistant>".to_owned(),
            turns: vec![
                turn("P _", "right", Some("right"), 0.0, 0.0),
                turn("_ P", "up up", None, 0.0, -0.1),
                turn("_ P", "down", Some("down"), 1.0, 0.0),
            ],
            success: true,
        };
        let mut out = Vec::new();
        transcript.write(&mut out).unwrap();
        assert_snapshot!(String::from_utf8(out).unwrap(), @"
        --- turn 1
        <system>The rules.<user>P _<assistant>
        > right
        right: reward 0

        --- turn 2
        _ P
        > up up
        cannot be read, does not move: reward 0, shaping -0.1

        --- turn 3
        _ P
        > down
        down: reward 1

        over after 3 turns: success, return 1
        ");
    }
}
