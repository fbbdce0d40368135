//! How the Snake board is told.

use super::board::{Board, Cell, Snake, Thing};
use crate::picture;

/// The character of a thing on the board, and its name.
pub(super) fn names(thing: Thing) -> (char, &'static str) {
    match thing {
        Thing::Apple => ('A', "apple"),
        Thing::Banana => ('B', "banana"),
        Thing::Fire => ('F', "fire"),
    }
}

/// "gives 1 point", "costs 2 points", "gives nothing".
pub(super) fn worth_in_words(worth: f64) -> String {
    let points = if worth.abs() == 1.0 {
        "point"
    } else {
        "points"
    };
    match worth {
        0.0 => "gives nothing".to_owned(),
        _ if worth > 0.0 => format!("gives {worth} {points}"),
        _ => format!("costs {} {points}", -worth),
    }
}

/// The picture alone.
pub(super) fn shown(board: &Board) -> String {
    let mut cells = vec!['_'; board.width * board.height];
    let mut mark = |(x, y): Cell, letter| cells[(board.height - 1 - y) * board.width + x] = letter;
    for &(cell, thing) in &board.things {
        mark(cell, names(thing).0);
    }
    for (who, snake) in board.snakes.iter().enumerate() {
        for (place, &cell) in snake.0.iter().enumerate() {
            let number =
                char::from_digit(who as u32 + 1, 10).expect("at most nine snakes are configured");
            mark(cell, if place == 0 { number } else { 'T' });
        }
    }
    picture::rows(cells.into_iter(), board.width)
}

/// The meaning of the characters; `kinds` are the things that this game has.
pub(super) fn key(enemies: usize, kinds: &[Thing]) -> String {
    let mut key = String::from("1 your head");
    match enemies {
        0 => {}
        1 => key += ", 2 enemy head",
        _ => key += &format!(", 2 to {} enemy heads", enemies + 1),
    }
    key += ", T body";
    for &thing in kinds {
        let (letter, name) = names(thing);
        key += &format!(", {letter} {name}");
    }
    key + ", _ empty"
}

/// All that [`told`] tells of the board itself, in one line: sides and things, then the snakes, a dead one as nothing.
pub(super) fn in_short(board: &Board) -> String {
    let mut things = board.things.clone();
    things.sort();
    let mut short = format!("{}x{}", board.width, board.height);
    for ((x, y), thing) in things {
        short += &format!(" {}{x},{y}", names(thing).0);
    }
    for snake in &board.snakes {
        short.push('|');
        let cells: Vec<String> = snake.0.iter().map(|(x, y)| format!("{x},{y}")).collect();
        short += &cells.join(" ");
    }
    short
}

/// The board in coordinates, then a key, then the picture. What is told of equal boards is equal.
pub(super) fn told(board: &Board, kinds: &[Thing], worth: impl Fn(Thing) -> f64) -> String {
    let mut lines = vec![
        format!(
            "The board is {}x{}, in (x, y) coordinates from (0, 0) at the bottom left to ({}, {}) at the top right.",
            board.width,
            board.height,
            board.width - 1,
            board.height - 1
        ),
        "up is y + 1, down is y - 1, left is x - 1, right is x + 1.".to_owned(),
    ];
    for &thing in kinds {
        let mut cells: Vec<Cell> = board
            .things
            .iter()
            .filter(|(_, kind)| *kind == thing)
            .map(|(cell, _)| *cell)
            .collect();
        cells.sort();
        let (_, name) = names(thing);
        lines.push(format!(
            "Each {name} {}. There are {name}s at: {}",
            worth_in_words(worth(thing)),
            list(cells.iter())
        ));
    }
    for (who, snake) in board.snakes.iter().enumerate() {
        let name = if who == 0 {
            "You, snake 1,".to_owned()
        } else {
            format!("Enemy snake {}", who + 1)
        };
        lines.push(format!(
            "{name} {}",
            whereabouts(snake, if who == 0 { "have" } else { "has" })
        ));
    }
    lines.push(format!("Key: {}", key(board.snakes.len() - 1, kinds)));
    lines.push(format!("State:\n{}", shown(board)));
    lines.join("\n")
}

fn whereabouts(snake: &Snake, has: &str) -> String {
    match snake.head() {
        Some((x, y)) => format!(
            "{has} the head at ({x}, {y}) and the body at: {}",
            list(snake.0.iter().skip(1))
        ),
        None => format!("{has} died"),
    }
}

fn list<'a>(cells: impl Iterator<Item = &'a Cell>) -> String {
    let cells: Vec<String> = cells.map(|(x, y)| format!("({x}, {y})")).collect();
    if cells.is_empty() {
        "none".to_owned()
    } else {
        cells.join(", ")
    }
}
