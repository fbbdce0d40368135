//! The observations of Sokoban.

use super::level::{Level, Position};
use crate::options::Phrasing;
use crate::picture::{self, Role};

/// Returns the signs of wall, floor, target, box, box on a target, player and player on a target.
fn signs(symbols: Phrasing) -> [char; 7] {
    match symbols {
        Phrasing::Usual => ['#', '_', 'O', 'X', 'V', 'P', 'S'],
        Phrasing::Other => ['W', '.', 'T', 'B', '*', '@', '+'],
    }
}

/// Returns the role of a sign of either set.
pub(super) fn role(cell: &str) -> Option<Role> {
    use Role::{Done, Floor, Goal, Item, Player, Wall};
    picture::role(cell, signs, [Wall, Floor, Goal, Item, Done, Player, Player])
}

fn sign(level: &Level, state: &Position, cell: usize, symbols: Phrasing) -> char {
    let [wall, floor, target, carton, carton_on, player, player_on] = signs(symbols);
    let on = level.targets[cell];
    if usize::from(state.player) == cell {
        if on { player_on } else { player }
    } else if state.has_box(cell) {
        if on { carton_on } else { carton }
    } else if on {
        target
    } else if level.floor[cell] {
        floor
    } else {
        wall
    }
}

pub(super) fn legend(symbols: Phrasing) -> String {
    let [wall, floor, target, carton, carton_on, player, player_on] = signs(symbols);
    format!(
        "{player} is you ({player_on} on a target), {carton} a box ({carton_on} on a target), {target} a target, {wall} wall, {floor} floor"
    )
}

pub(super) fn board(level: &Level, state: &Position, symbols: Phrasing) -> String {
    let cells = (0..level.floor.len()).map(|cell| sign(level, state, cell, symbols));
    picture::rows(cells, level.width)
}

/// Returns the key of a state: the board in one line.
pub(super) fn key(level: &Level, state: &Position) -> String {
    let board = board(level, state, Phrasing::Usual);
    board.replace(' ', "").replace('\n', "/")
}

/// Returns the board in coordinates, a key and the picture.
pub(super) fn full(level: &Level, state: &Position, symbols: Phrasing, swapped: bool) -> String {
    let (width, height) = (level.width, level.floor.len() / level.width);
    let at = |cell: usize| (cell % width, height - 1 - cell / width);
    let targets = (0..level.floor.len()).filter(|&cell| level.targets[cell]);
    let [left, right] = picture::signs_of_x(swapped);
    format!(
        "{}\n\
         up is y + 1, down is y - 1, left is x {left} 1, right is x {right} 1.\n\
         Player position: {}\n\
         Boxes: {}\n\
         Targets: {}\n\
         Key: {}\n\
         State:\n{}",
        picture::coordinates(width, height),
        picture::list([at(usize::from(state.player))].into_iter()),
        picture::list(state.boxes().map(at)),
        picture::list(targets.map(at)),
        legend(symbols),
        board(level, state, symbols)
    )
}
