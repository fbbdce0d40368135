//! How a Sokoban board is told.

use super::level::{Level, State};
use crate::options::Put;
use crate::picture;

/// The signs: wall, floor, target, box, box on a target, player, player on a target.
fn signs(symbols: Put) -> [char; 7] {
    match symbols {
        Put::Usual => ['#', '_', 'O', 'X', 'V', 'P', 'S'],
        Put::Other => ['W', '.', 'T', 'B', '*', '@', '+'],
    }
}

fn sign(level: &Level, state: &State, cell: usize, symbols: Put) -> char {
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

/// The meaning of the signs.
pub(super) fn key(symbols: Put) -> String {
    let [wall, floor, target, carton, carton_on, player, player_on] = signs(symbols);
    format!(
        "{player} is you ({player_on} on a target), {carton} a box ({carton_on} on a target), {target} a target, {wall} wall, {floor} floor"
    )
}

/// The picture alone.
pub(super) fn board(level: &Level, state: &State, symbols: Put) -> String {
    let cells = (0..level.floor.len()).map(|cell| sign(level, state, cell, symbols));
    picture::rows(cells, level.width)
}

/// The board in one line.
pub(super) fn in_short(level: &Level, state: &State) -> String {
    let sign = |cell| sign(level, state, cell, Put::Usual);
    let row = |y| {
        (0..level.width)
            .map(|x| sign(y * level.width + x))
            .collect::<String>()
    };
    let rows: Vec<String> = (0..level.floor.len() / level.width).map(row).collect();
    rows.join("/")
}

/// The board in coordinates, then a key, then the picture.
pub(super) fn told(level: &Level, state: &State, symbols: Put, swapped: bool) -> String {
    let (width, height) = (level.width, level.floor.len() / level.width);
    let at = |cell: usize| format!("({}, {})", cell % width, height - 1 - cell / width);
    let list = |cells: Vec<usize>| {
        cells
            .into_iter()
            .map(at)
            .collect::<Vec<String>>()
            .join(", ")
    };
    let targets = (0..level.floor.len()).filter(|&cell| level.targets[cell]);
    let (left, right) = if swapped { ("+", "-") } else { ("-", "+") };
    format!(
        "The board is {width}x{height}, in (x, y) coordinates from (0, 0) at the bottom left to ({}, {}) at the top right.\n\
         up is y + 1, down is y - 1, left is x {left} 1, right is x {right} 1.\n\
         Player position: {}\n\
         Boxes: {}\n\
         Targets: {}\n\
         Key: {}\n\
         State:\n{}",
        width - 1,
        height - 1,
        at(usize::from(state.player)),
        list(state.boxes().collect()),
        list(targets.collect()),
        key(symbols),
        board(level, state, symbols)
    )
}
