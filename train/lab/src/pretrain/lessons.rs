//! The texts that a base model learns from: boards, questions about them, and what actions lead to.
//!
//! No text says which action is good.

use lapwing_env::rng::Stream;
use lapwing_env::{Game, GameError, Legend, Role, Scenario};

/// The directions in which cells are compared, with their steps in rows and columns.
const DIRECTIONS: [(&str, isize, isize); 4] = [
    ("left", 0, -1),
    ("right", 0, 1),
    ("up", -1, 0),
    ("down", 1, 0),
];

/// The most actions in a question.
const ACTIONS: usize = 3;

/// The subject of a question. Directions are places in [`DIRECTIONS`], actions in [`Scenario::actions`]; rows and columns
/// count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Topic {
    /// What do actions lead to, one after the other?
    Outcome(Vec<usize>),
    /// Which sign is next to the player in this direction?
    Beside(usize),
    /// Where is the nearest of these signs, seen from the player?
    Where(char),
    /// How many steps away is it?
    Distance(char),
    /// Which sign is in this row and column?
    At(usize, usize),
    /// How many of these signs are there?
    Count(char),
}

/// A question about a state, in one of two wordings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    topic: Topic,
    reworded: bool,
}

impl Question {
    /// Returns what the question is about, in a word.
    pub fn topic(&self) -> &'static str {
        match self.topic {
            Topic::Outcome(_) => "outcome",
            Topic::Beside(_) => "beside",
            Topic::Where(_) => "where",
            Topic::Distance(_) => "distance",
            Topic::At(..) => "at",
            Topic::Count(_) => "count",
        }
    }
}

/// Row and column.
type Square = (usize, usize);

/// A state of a game, as its first agent sees it.
pub(super) struct BoardState<'a> {
    game: &'a dyn Game,
    scenario: &'a dyn Scenario,
    pub observation: String,
    board: Vec<Vec<char>>,
    /// the cell of the first agent, if the board shows it
    player: Option<Square>,
}

impl<'a> BoardState<'a> {
    /// # Errors
    /// If the game fails.
    pub fn new(
        game: &'a dyn Game,
        scenario: &'a dyn Scenario,
    ) -> Result<BoardState<'a>, GameError> {
        let observation = game.observe(0)?;
        let legend = scenario.legend();
        let board = board(&observation, legend);
        let is_player = |sign: char| legend(sign.encode_utf8(&mut [0; 4])) == Some(Role::Player);
        let player = cells(&board).find(|(_, sign)| is_player(*sign));
        Ok(BoardState {
            game,
            scenario,
            player: player.map(|(cell, _)| cell),
            observation,
            board,
        })
    }

    /// Draws a question. States without a board have questions about actions only.
    pub fn question(&self, random: &mut Stream) -> Question {
        let reworded = random.chance(0.5);
        let drawn = match (self.board.is_empty(), self.player) {
            (true, _) => 0,
            (false, None) => random.below(8),
            (false, Some(_)) => random.below(16),
        };
        let sign = |random: &mut Stream| {
            let signs = self.signs();
            signs[random.below(signs.len())]
        };
        let topic = match drawn {
            0..=5 => {
                let count = 1 + random.below(ACTIONS);
                let action = |_| random.below(self.scenario.actions().len());
                Topic::Outcome((0..count).map(action).collect())
            }
            6 => {
                let row = random.below(self.board.len());
                Topic::At(row, random.below(self.board[row].len()))
            }
            7 => Topic::Count(sign(random)),
            8 => Topic::Distance(sign(random)),
            9..=11 => Topic::Where(sign(random)),
            _ => Topic::Beside(random.below(DIRECTIONS.len())),
        };
        Question { topic, reworded }
    }

    /// Returns the signs on the board, each once.
    fn signs(&self) -> Vec<char> {
        let mut signs: Vec<char> = cells(&self.board).map(|(_, sign)| sign).collect();
        signs.sort_unstable();
        signs.dedup();
        signs
    }

    /// Returns the text of a question.
    pub fn ask(&self, question: &Question) -> String {
        let own = self
            .player
            .map_or('?', |(row, column)| self.board[row][column]);
        let named = |actions: &[usize]| {
            let names = actions.iter().map(|it| &*self.scenario.actions()[*it]);
            names.collect::<Vec<_>>().join(", ")
        };
        match (&question.topic, question.reworded) {
            (Topic::Outcome(actions), false) => format!("What follows {}?", named(actions)),
            (Topic::Outcome(actions), true) => format!("After {}?", named(actions)),
            (Topic::Beside(way), false) => format!("What is {} of {own}?", DIRECTIONS[*way].0),
            (Topic::Beside(way), true) => format!("Look {} from {own}.", DIRECTIONS[*way].0),
            (Topic::Where(sign), false) => format!("Where is {sign}?"),
            (Topic::Where(sign), true) => format!("Which way is {sign} from {own}?"),
            (Topic::Distance(sign), false) => format!("How far is {sign}?"),
            (Topic::Distance(sign), true) => format!("Steps from {own} to {sign}?"),
            (Topic::At(row, column), false) => {
                format!("What is in row {}, column {}?", row + 1, column + 1)
            }
            (Topic::At(row, column), true) => format!("Row {}, column {}?", row + 1, column + 1),
            (Topic::Count(sign), false) => format!("How many {sign}?"),
            (Topic::Count(sign), true) => format!("Count {sign}."),
        }
    }

    /// Returns the answer to a question. `luck` is the chance of the actions' outcome. `None` if the question does not fit this
    /// state.
    ///
    /// # Errors
    /// If the game fails.
    pub fn answer(&self, question: &Question, luck: u64) -> Result<Option<String>, GameError> {
        let at = |row: usize, column: usize| self.board.get(row)?.get(column).copied();
        let named = |sign: Option<char>| sign.map_or("edge".to_owned(), String::from);
        let same = |sign| cells(&self.board).filter(move |(_, other)| *other == sign);
        let away = |(row, column): Square, (y, x): Square| row.abs_diff(y) + column.abs_diff(x);
        let nearest = |sign, from| {
            let cells = same(sign).map(|(cell, _)| cell);
            cells.min_by_key(|cell| away(*cell, from))
        };
        Ok(match question.topic {
            Topic::Outcome(ref actions) => self.outcome(actions, luck)?,
            Topic::At(row, column) => Some(named(at(row, column))),
            Topic::Count(sign) => Some(same(sign).count().to_string()),
            Topic::Beside(way) => self.player.map(|(row, column)| {
                let (_, down, right) = DIRECTIONS[way];
                named(at(
                    row.wrapping_add_signed(down),
                    column.wrapping_add_signed(right),
                ))
            }),
            Topic::Where(sign) => self.player.map(|player| match nearest(sign, player) {
                Some(cell) => whereabouts(cell, player),
                None => "none".to_owned(),
            }),
            Topic::Distance(sign) => self.player.map(|player| match nearest(sign, player) {
                Some(cell) => away(cell, player).to_string(),
                None => "none".to_owned(),
            }),
        })
    }

    /// Returns whether actions change the state or end the episode, and their points. `None` if the game cannot be copied.
    fn outcome(&self, actions: &[usize], luck: u64) -> Result<Option<String>, GameError> {
        let Some(mut game) = self.game.fork(luck) else {
            return Ok(None);
        };
        let mut random = Stream::new(luck, "others");
        let (mut points, mut over) = (0.0, false);
        for action in actions {
            let result = game.play(&round(self.scenario, *action, &mut random))?[0];
            points += result.reward;
            over = result.over;
            if over {
                break;
            }
        }
        let what = match (over, game.observe(0)? == self.observation) {
            (true, _) => "end",
            (false, true) => "nothing",
            (false, false) => "change",
        };
        Ok(Some(match (points * 100.0).round() / 100.0 {
            0.0 => what.to_owned(),
            points => format!("{what}, {points}"),
        }))
    }
}

/// Returns the actions of a round: this one of the first agent, and random ones of the others.
pub(super) fn round(
    scenario: &dyn Scenario,
    action: usize,
    random: &mut Stream,
) -> Vec<Option<usize>> {
    let count = scenario.actions().len();
    let others = (1..scenario.agents()).map(|_| Some(random.below(count)));
    [Some(action)].into_iter().chain(others).collect()
}

/// Returns the last lines of an observation that are rows of cells.
fn board(observation: &str, legend: Legend) -> Vec<Vec<char>> {
    let sign = |cell: &str| {
        let mut signs = cell.chars();
        let sign = signs.next().filter(|_| signs.next().is_none())?;
        legend(cell).map(|_| sign)
    };
    let row = |line: &str| line.split(' ').map(sign).collect::<Option<Vec<char>>>();
    let mut rows: Vec<Vec<char>> = observation.lines().rev().map_while(row).collect();
    rows.reverse();
    rows
}

fn cells(board: &[Vec<char>]) -> impl Iterator<Item = (Square, char)> {
    let rows = board.iter().enumerate();
    rows.flat_map(|(y, row)| row.iter().enumerate().map(move |(x, sign)| ((y, x), *sign)))
}

/// Returns where a cell is, seen from another: "right 2 down 1".
fn whereabouts(cell: Square, from: Square) -> String {
    let way = |to: usize, from: usize, [less, more]: [&'static str; 2]| match to.abs_diff(from) {
        0 => None,
        steps => Some(format!("{} {steps}", if to < from { less } else { more })),
    };
    let across = way(cell.1, from.1, ["left", "right"]);
    let along = way(cell.0, from.0, ["up", "down"]);
    let ways: Vec<String> = across.into_iter().chain(along).collect();
    match ways.is_empty() {
        true => "here".to_owned(),
        false => ways.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(game: &str, options: &Value, topic: Topic) -> Option<String> {
        let kind = lapwing_env::find(game).unwrap();
        let scenario = (kind.configure)(options).unwrap();
        let game = scenario.start(1, 1).unwrap();
        let state = BoardState::new(&*game, &*scenario).unwrap();
        let question = Question {
            topic,
            reworded: false,
        };
        state.answer(&question, 1).unwrap()
    }

    #[test]
    fn answers_are_true() {
        let lake = json!({ "map": ["SFF", "HFG"] });
        let topics = [
            (Topic::Beside(0), "edge"),
            (Topic::Beside(1), "_"),
            (Topic::Beside(3), "O"),
            (Topic::Where('G'), "right 2 down 1"),
            (Topic::Where('P'), "here"),
            (Topic::Where('R'), "none"),
            (Topic::Distance('G'), "3"),
            (Topic::At(1, 2), "G"),
            (Topic::Count('_'), "3"),
            // left, down, right, up
            (Topic::Outcome(vec![0]), "nothing"),
            (Topic::Outcome(vec![1]), "end"),
            (Topic::Outcome(vec![2]), "change"),
            (Topic::Outcome(vec![2, 0, 0]), "nothing"),
            (Topic::Outcome(vec![2, 2, 1]), "end, 1"),
        ];
        for (topic, right) in topics {
            let told = format!("{topic:?}");
            assert_eq!(
                answer("frozen-lake", &lake, topic).unwrap(),
                right,
                "{told}"
            );
        }
        let near = json!({ "map": ["SG"] });
        let goal = answer("frozen-lake", &near, Topic::Outcome(vec![2, 0]));
        assert_eq!(goal.unwrap(), "end, 1");
    }

    /// Every built-in game has questions, and answers to them.
    #[test]
    fn all_games_have_lessons() {
        for kind in lapwing_env::GAMES {
            let scenario = (kind.configure)(&json!({})).unwrap();
            let game = scenario.start(3, 3).unwrap();
            let state = BoardState::new(&*game, &*scenario).unwrap();
            let mut random = Stream::new(1, kind.name);
            for _ in 0..50 {
                let question = state.question(&mut random);
                let asked = state.ask(&question);
                assert!(!asked.contains('?') || asked.ends_with('?'));
                assert!(
                    state.answer(&question, 1).unwrap().is_some(),
                    "{}: {question:?}",
                    kind.name
                );
            }
        }
    }
}
