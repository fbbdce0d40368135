//! The texts that a base model learns from: boards, questions about them with their answers, and what actions lead to.
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
    /// On which side of the player is this sign, or the edge?
    Side(Option<char>),
    /// Which signs are next to the player, in the order of [`DIRECTIONS`]?
    Around,
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
    /// Returns what the question is about, in a word: for neighbours, their direction.
    pub fn topic(&self) -> &'static str {
        match self.topic {
            Topic::Outcome(_) => "outcome",
            Topic::Beside(way) => DIRECTIONS[way].0,
            Topic::Side(_) => "side",
            Topic::Around => "around",
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
            (false, Some(_)) => random.below(48),
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
            12..=27 => Topic::Beside(random.below(DIRECTIONS.len())),
            28..=37 => Topic::Side(random.chance(0.75).then(|| sign(random))),
            _ => Topic::Around,
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
            (Topic::Side(sign), false) => format!("Name a side with {}.", name(*sign)),
            (Topic::Side(sign), true) => format!("On which side is {}?", name(*sign)),
            (Topic::Around, false) => format!("What is around {own}?"),
            (Topic::Around, true) => format!("Look around {own}."),
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

    /// Returns the right answers to a question. `luck` is the chance of the actions' outcome. There is none if the question does
    /// not fit this state.
    ///
    /// # Errors
    /// If the game fails.
    pub fn answers(&self, question: &Question, luck: u64) -> Result<Vec<String>, GameError> {
        let at = |row: usize, column: usize| self.board.get(row)?.get(column).copied();
        let beside = |(row, column): Square, way: usize| {
            let (_, down, right) = DIRECTIONS[way];
            at(
                row.wrapping_add_signed(down),
                column.wrapping_add_signed(right),
            )
        };
        let sides = |sign, player| {
            let ways = (0..DIRECTIONS.len()).filter(|way| beside(player, *way) == sign);
            let names: Vec<String> = ways.map(|way| DIRECTIONS[way].0.to_owned()).collect();
            match names.is_empty() {
                true => vec!["none".to_owned()],
                false => names,
            }
        };
        let same = |sign| cells(&self.board).filter(move |(_, other)| *other == sign);
        let away = |(row, column): Square, (y, x): Square| row.abs_diff(y) + column.abs_diff(x);
        let nearest = |sign, from| {
            let cells = same(sign).map(|(cell, _)| cell);
            cells.min_by_key(|cell| away(*cell, from))
        };
        let answer = match question.topic {
            Topic::Side(sign) => {
                return Ok(self.player.map_or(Vec::new(), |player| sides(sign, player)));
            }
            Topic::Outcome(ref actions) => self.outcome(actions, luck)?,
            Topic::At(row, column) => Some(name(at(row, column))),
            Topic::Around => self.player.map(|player| {
                let all = (0..DIRECTIONS.len()).map(|way| name(beside(player, way)));
                all.collect::<Vec<_>>().join(" ")
            }),
            Topic::Count(sign) => Some(same(sign).count().to_string()),
            Topic::Beside(way) => self.player.map(|player| name(beside(player, way))),
            Topic::Where(sign) => self.player.map(|player| match nearest(sign, player) {
                Some(cell) => whereabouts(cell, player),
                None => "none".to_owned(),
            }),
            Topic::Distance(sign) => self.player.map(|player| match nearest(sign, player) {
                Some(cell) => away(cell, player).to_string(),
                None => "none".to_owned(),
            }),
        };
        Ok(answer.into_iter().collect())
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

/// Returns the name of a neighbour: its sign, or the edge.
fn name(sign: Option<char>) -> String {
    sign.map_or("edge".to_owned(), String::from)
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

    fn answers(game: &str, options: &Value, topic: Topic) -> Vec<String> {
        let kind = lapwing_env::find(game).unwrap();
        let scenario = (kind.configure)(options).unwrap();
        let game = scenario.start(1, 1).unwrap();
        let state = BoardState::new(&*game, &*scenario).unwrap();
        let question = Question {
            topic,
            reworded: false,
        };
        state.answers(&question, 1).unwrap()
    }

    #[test]
    fn answers_are_true() {
        let lake = json!({ "map": ["SFF", "HFG"] });
        let topics = [
            (Topic::Beside(0), "edge"),
            (Topic::Beside(1), "_"),
            (Topic::Beside(3), "O"),
            (Topic::Around, "edge _ edge O"),
            (Topic::Side(Some('O')), "down"),
            (Topic::Side(Some('G')), "none"),
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
            assert_eq!(answers("frozen-lake", &lake, topic), [right], "{told}");
        }
        // Each side with the sign is a right answer.
        let edges = answers("frozen-lake", &lake, Topic::Side(None));
        assert_eq!(edges, ["left", "up"]);
        let near = json!({ "map": ["SG"] });
        let goal = answers("frozen-lake", &near, Topic::Outcome(vec![2, 0]));
        assert_eq!(goal, ["end, 1"]);
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
                let answers = state.answers(&question, 1).unwrap();
                assert!(!answers.is_empty(), "{}: {question:?}", kind.name);
            }
        }
    }
}
