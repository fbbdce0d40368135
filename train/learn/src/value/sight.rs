//! What a learner sees of a game: the ones of its planes as numbers of inputs, and the share of turns that are left.

use lapwing_env::{Game, Planes, Scenario};

use crate::config::Value;
use lapwing_play::PlayError;

/// One state, as little as tells it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sight {
    /// The inputs that are 1: cell * planes + plane, cells row by row.
    pub ones: Vec<u32>,
    /// The share of the turns that are left, from 1 down; 0 where that is no input.
    pub turns_left: f32,
}

/// The shape of what is seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// What the planes show.
    pub names: Vec<&'static str>,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Cells seen on each side of the agent, which is then in the middle; 0: the board as it lies.
    window: usize,
    /// Turns after which the referee stops an episode, if what is left of them is an input.
    limit: Option<usize>,
}

impl Shape {
    /// Of all states of this game.
    ///
    /// # Errors
    /// If the game cannot be started, or has no planes.
    pub fn of(scenario: &dyn Scenario, value: &Value) -> Result<Shape, PlayError> {
        let planes = scenario.start(0, 0)?.planes(0)?;
        let planes = planes.ok_or_else(|| PlayError::NoPlanes(scenario.name().to_owned()))?;
        let limit = value.turns_left.then_some(scenario.step_limit());
        let side = 2 * value.window + 1;
        let mut names = planes.names;
        let (height, width) = match value.window {
            0 => (planes.height, planes.width),
            _ => {
                names.push("beyond the board");
                (side, side)
            }
        };
        Ok(Shape {
            names,
            height,
            width,
            window: value.window,
            limit,
        })
    }

    /// Cells.
    pub fn cells(&self) -> usize {
        self.height * self.width
    }

    /// Whether the turns left are an input.
    pub fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// "4 x 4 cells of player, ice, hole, goal, and the turns left"
    pub fn describe(&self) -> String {
        let turns = match self.limit {
            Some(limit) => format!(", and the turns left of {limit}"),
            None => String::new(),
        };
        let around = match self.window {
            0 => "",
            _ => " around the agent",
        };
        format!(
            "{} x {} cells{around} of {}{turns}",
            self.height,
            self.width,
            self.names.join(", ")
        )
    }

    /// What an agent sees before this turn of its episode, turns counted from 0.
    ///
    /// # Errors
    /// If the game fails, or has no planes.
    pub fn see(&self, game: &dyn Game, agent: usize, turn: usize) -> Result<Sight, PlayError> {
        let planes = game.planes(agent)?;
        let planes = planes.ok_or_else(|| PlayError::NoPlanes("the game".to_owned()))?;
        let turns_left = self.limit.map_or(0.0, |limit| {
            limit.saturating_sub(turn) as f32 / limit as f32
        });
        Ok(Sight {
            ones: self.ones(&planes),
            turns_left,
        })
    }

    fn ones(&self, planes: &Planes) -> Vec<u32> {
        let (cells, count) = (planes.height * planes.width, self.names.len());
        let place = |one: &usize| {
            let (plane, cell) = (one / cells, one % cells);
            (plane, cell / planes.width, cell % planes.width)
        };
        let input = |plane: usize, cell: usize| (cell * count + plane) as u32;
        let placed = planes.ones.iter().map(place);
        let mut ones: Vec<u32> = if self.window == 0 {
            placed
                .map(|(plane, row, column)| input(plane, row * planes.width + column))
                .collect()
        } else {
            // An agent that has left the board sees nothing.
            let Some((at_row, at_column)) = planes.at else {
                return Vec::new();
            };
            // The row or column of the window, if it is within.
            let moved = |at: usize, to: usize| {
                (to + self.window)
                    .checked_sub(at)
                    .filter(|&there| there <= 2 * self.window)
            };
            let seen = placed.filter_map(|(plane, row, column)| {
                let (row, column) = (moved(at_row, row)?, moved(at_column, column)?);
                Some(input(plane, row * self.width + column))
            });
            let mut ones: Vec<u32> = seen.collect();
            let is_beyond = |cell: &usize| {
                let (row, column) = (cell / self.width + at_row, cell % self.width + at_column);
                let within = |at: usize, side| (self.window..self.window + side).contains(&at);
                !within(row, planes.height) || !within(column, planes.width)
            };
            let beyond = (0..self.cells()).filter(is_beyond);
            ones.extend(beyond.map(|cell| input(count - 1, cell)));
            ones
        };
        ones.sort_unstable();
        ones
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lake(options: serde_json::Value) -> Box<dyn Scenario> {
        (lapwing_env::find("frozen-lake").unwrap().configure)(&options).unwrap()
    }

    fn value(window: usize, turns_left: bool) -> Value {
        Value {
            window,
            turns_left,
            ..Value::default()
        }
    }

    #[test]
    fn a_board_as_it_lies_is_its_planes_cell_by_cell() {
        let lake = lake(json!({ "map": ["SFH", "FFG"], "step_limit": 8 }));
        let shape = Shape::of(&*lake, &value(0, true)).unwrap();
        assert_eq!(
            shape.describe(),
            "2 x 3 cells of player, ice, hole, goal, and the turns left of 8"
        );
        let game = lake.start(0, 0).unwrap();
        let seen = shape.see(&*game, 0, 0).unwrap();
        // Player and ice at 0, ice, hole, ice, ice, goal.
        assert_eq!(seen.ones, [0, 1, 5, 10, 13, 17, 23]);
        assert_eq!(seen.turns_left, 1.0);
        assert_eq!(shape.see(&*game, 0, 6).unwrap().turns_left, 0.25);
        let blind = Shape::of(&*lake, &value(0, false)).unwrap();
        assert_eq!(blind.see(&*game, 0, 6).unwrap().turns_left, 0.0);
    }

    /// Two players who see the same around them see the same, wherever that is; and what is beyond the board is told.
    #[test]
    fn a_window_goes_along_with_the_agent() {
        let lake = lake(json!({ "map": ["SFFF", "FFFF", "FFHG"], "step_limit": 8 }));
        let shape = Shape::of(&*lake, &value(1, false)).unwrap();
        assert_eq!((shape.height, shape.width, shape.names.len()), (3, 3, 5));
        let mut game = lake.start(0, 0).unwrap();
        let seen = |game: &dyn Game| {
            let sight = shape.see(game, 0, 0).unwrap();
            let mut drawn = [' '; 9];
            // The player's plane comes last, so that its cell shows it.
            for one in sight.ones.iter().rev() {
                drawn[*one as usize / 5] = ['P', '_', 'O', 'G', '#'][*one as usize % 5];
            }
            drawn.iter().collect::<String>()
        };
        assert_eq!(seen(&*game), "####P_#__");
        let way = |word: &str| lake.actions().iter().position(|known| known == word);
        game.play(&[way("down")]).unwrap();
        assert_eq!(seen(&*game), "#__#P_#__");
        game.play(&[way("right")]).unwrap();
        assert_eq!(seen(&*game), "____P___O");
    }

    #[test]
    fn a_game_without_planes_is_named() {
        let game = (lapwing_env::find("2048").unwrap().configure)(&json!({})).unwrap();
        let error = Shape::of(&*game, &value(0, true)).unwrap_err();
        insta::assert_snapshot!(error, @r#"2048 has no board as numbers, which dqn and pqn learn from (frozen-lake and snake have one): choose another game, or learner = "ms-grpo""#);
    }
}
