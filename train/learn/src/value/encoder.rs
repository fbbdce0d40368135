//! Encodes a game's state for a network: the ones of its feature planes as input indices, and the share of turns left.

use lapwing_env::{Game, Planes, Scenario};
use lapwing_play::PlayError;

use crate::config::ValueConfig;

/// An encoded state.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct EncodedState {
    /// Indices of the inputs that are 1: cell * planes + plane, cells row by row.
    pub(crate) ones: Vec<u32>,
    /// Share of turns left, from 1 down. 0 if it is not an input.
    pub(crate) turns_left: f32,
}

/// Encodes the states of a game.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlaneEncoder {
    /// Names of the planes.
    pub(crate) names: Vec<&'static str>,
    /// Rows.
    pub(crate) height: usize,
    /// Columns.
    pub(crate) width: usize,
    /// cells on each side of the agent; 0: the whole board
    window: usize,
    /// Step limit, if the turns left are an input.
    pub(crate) limit: Option<usize>,
}

impl PlaneEncoder {
    /// Makes the encoder of a game.
    pub(crate) fn new(
        scenario: &dyn Scenario,
        value: &ValueConfig,
    ) -> Result<PlaneEncoder, PlayError> {
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
        Ok(PlaneEncoder {
            names,
            height,
            width,
            window: value.window,
            limit,
        })
    }

    /// Returns the number of encoded cells.
    pub(crate) fn cells(&self) -> usize {
        self.height * self.width
    }

    /// Describes the inputs, for example "2 x 3 cells of player, ice, hole, goal, and the turns left of 8".
    pub(crate) fn describe(&self) -> String {
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

    /// Encodes the state of an agent before this turn of its episode, counted from 0.
    pub(crate) fn encode(
        &self,
        game: &dyn Game,
        agent: usize,
        turn: usize,
    ) -> Result<EncodedState, PlayError> {
        let planes = game.planes(agent)?;
        let planes = planes.ok_or_else(|| PlayError::NoPlanes("the game".to_owned()))?;
        let turns_left = self.limit.map_or(0.0, |limit| {
            limit.saturating_sub(turn) as f32 / limit as f32
        });
        Ok(EncodedState {
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
            // An agent without a place has no inputs.
            let Some((at_row, at_column)) = planes.at else {
                return Vec::new();
            };
            // The row or column within the window, if it is inside.
            let within_window = |at: usize, to: usize| {
                (to + self.window)
                    .checked_sub(at)
                    .filter(|&there| there <= 2 * self.window)
            };
            let inside = placed.filter_map(|(plane, row, column)| {
                let (row, column) = (
                    within_window(at_row, row)?,
                    within_window(at_column, column)?,
                );
                Some(input(plane, row * self.width + column))
            });
            let mut ones: Vec<u32> = inside.collect();
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

    fn value(window: usize, turns_left: bool) -> ValueConfig {
        ValueConfig {
            window,
            turns_left,
            ..ValueConfig::default()
        }
    }

    #[test]
    fn a_whole_board_is_encoded_cell_by_cell() {
        let lake = lake(json!({ "map": ["SFH", "FFG"], "step_limit": 8 }));
        let encoder = PlaneEncoder::new(&*lake, &value(0, true)).unwrap();
        assert_eq!(
            encoder.describe(),
            "2 x 3 cells of player, ice, hole, goal, and the turns left of 8"
        );
        let game = lake.start(0, 0).unwrap();
        let state = encoder.encode(&*game, 0, 0).unwrap();
        // Player and ice at 0, ice, hole, ice, ice, goal.
        assert_eq!(state.ones, [0, 1, 5, 10, 13, 17, 23]);
        assert_eq!(state.turns_left, 1.0);
        assert_eq!(encoder.encode(&*game, 0, 6).unwrap().turns_left, 0.25);
        let blind = PlaneEncoder::new(&*lake, &value(0, false)).unwrap();
        assert_eq!(blind.encode(&*game, 0, 6).unwrap().turns_left, 0.0);
    }

    /// The same surroundings have the same encoding everywhere. Cells beyond the board are marked.
    #[test]
    fn a_window_moves_with_the_agent() {
        let lake = lake(json!({ "map": ["SFFF", "FFFF", "FFHG"], "step_limit": 8 }));
        let encoder = PlaneEncoder::new(&*lake, &value(1, false)).unwrap();
        assert_eq!(
            (encoder.height, encoder.width, encoder.names.len()),
            (3, 3, 5)
        );
        let mut game = lake.start(0, 0).unwrap();
        let drawn = |game: &dyn Game| {
            let state = encoder.encode(game, 0, 0).unwrap();
            let mut cells = [' '; 9];
            // The player's plane comes last, so that its cell shows it.
            for one in state.ones.iter().rev() {
                cells[*one as usize / 5] = ['P', '_', 'O', 'G', '#'][*one as usize % 5];
            }
            cells.iter().collect::<String>()
        };
        assert_eq!(drawn(&*game), "####P_#__");
        let way = |word: &str| lake.actions().iter().position(|known| known == word);
        game.play(&[way("down")]).unwrap();
        assert_eq!(drawn(&*game), "#__#P_#__");
        game.play(&[way("right")]).unwrap();
        assert_eq!(drawn(&*game), "____P___O");
    }

    #[test]
    fn a_game_without_planes_is_refused() {
        let game = (lapwing_env::find("2048").unwrap().configure)(&json!({})).unwrap();
        let error = PlaneEncoder::new(&*game, &value(0, true)).unwrap_err();
        insta::assert_snapshot!(error, @r#"2048 has no board as numbers, which dqn and pqn learn from (frozen-lake and snake have one): choose another game, or learner = "ms-grpo""#);
    }
}
