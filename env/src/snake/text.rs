//! How Snake is told: its rules, and its board.

use super::board::{Board, Cell, Snake, Thing};
use super::options::Options;
use crate::options::{Put, View};
use crate::picture;

/// What stands for what on the board: option `symbols`.
struct Signs {
    /// An agent's own head, then those of the others.
    heads: [char; 9],
    body: char,
    empty: char,
    /// In the order of [`Thing::ALL`].
    things: [char; 3],
}

const USUAL: Signs = Signs {
    heads: ['1', '2', '3', '4', '5', '6', '7', '8', '9'],
    body: 'T',
    empty: '_',
    things: ['A', 'B', 'F'],
};

const OTHER: Signs = Signs {
    heads: ['@', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'],
    body: 'o',
    empty: '.',
    things: ['+', '%', '^'],
};

impl Signs {
    fn of(symbols: Put) -> &'static Signs {
        match symbols {
            Put::Usual => &USUAL,
            Put::Other => &OTHER,
        }
    }

    fn thing(&self, thing: Thing) -> char {
        self.things[thing as usize]
    }
}

pub(super) fn name(thing: Thing) -> &'static str {
    match thing {
        Thing::Apple => "apple",
        Thing::Banana => "banana",
        Thing::Fire => "fire",
    }
}

/// The rules, in the usual words or in others.
pub(super) fn rules(options: &Options) -> String {
    let usual = options.wording == Put::Usual;
    let own = Signs::of(options.symbols).heads[0];
    let mut rules = if usual {
        format!("You are snake {own}.")
    } else {
        format!("Snake {own} is yours to steer.")
    };
    if options.snakes() > 1 {
        rules += if usual {
            " All snakes move at once."
        } else {
            " Every snake takes its step in the same moment."
        };
    }
    if options.view == View::Board {
        let signs = if usual { "Key" } else { "Signs" };
        rules += &format!(" {signs}: {}.", key(options));
    }
    for thing in options.kinds() {
        let (name, worth) = (name(thing), options.worth(thing));
        let poison = worth < 0.0 && thing != Thing::Fire;
        let worth = worth_in_words(worth);
        rules += &match (usual, poison) {
            (true, true) => format!(" Each {name} is poisonous, {worth} and makes you longer."),
            (true, false) => format!(" Each {name} {worth} and makes you longer."),
            (false, true) => {
                format!(" Beware: every {name} you eat {worth} and adds a cell to your body.")
            }
            (false, false) => {
                format!(" Every {name} you eat {worth} and adds a cell to your body.")
            }
        };
    }
    if let Some((_, edge)) = options.hill.way() {
        rules += &format!(
            " Each round every apple rolls one cell towards the {edge} edge; onto your head it is eaten but adds no length."
        );
    }
    if options.swapped {
        rules += " The words left and right are swapped: left moves you right, and right moves you left.";
    }
    rules
        + if usual {
            " You die if you hit a wall, a snake or your own body. Get as many points as you can."
        } else {
            " Walls, snakes and your own body kill whoever runs into them. Collect all the points that you can."
        }
}

/// "gives 1 point", "costs 2 points", "gives nothing".
fn worth_in_words(worth: f64) -> String {
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
pub(super) fn shown(board: &Board, symbols: Put) -> String {
    let signs = Signs::of(symbols);
    let mut cells = vec![signs.empty; board.width * board.height];
    let mut mark = |(x, y): Cell, letter| cells[(board.height - 1 - y) * board.width + x] = letter;
    for &(cell, thing) in &board.things {
        mark(cell, signs.thing(thing));
    }
    for (who, snake) in board.snakes.iter().enumerate() {
        for (place, &cell) in snake.0.iter().enumerate() {
            let head = signs.heads[who];
            mark(cell, if place == 0 { head } else { signs.body });
        }
    }
    picture::rows(cells.into_iter(), board.width)
}

/// The meaning of the characters.
fn key(options: &Options) -> String {
    let signs = Signs::of(options.symbols);
    let [own, first, ..] = signs.heads;
    let mut key = format!("{own} your head");
    match options.snakes() - 1 {
        0 => {}
        1 => key += &format!(", {first} enemy head"),
        enemies => key += &format!(", {first} to {} enemy heads", signs.heads[enemies]),
    }
    key += &format!(", {} body", signs.body);
    for thing in options.kinds() {
        key += &format!(", {} {}", signs.thing(thing), name(thing));
    }
    key + &format!(", {} empty", signs.empty)
}

/// All that [`told`] tells of the board itself, in one line: sides and things, then the snakes, a dead one as nothing.
pub(super) fn in_short(board: &Board) -> String {
    let mut things = board.things.clone();
    things.sort();
    let mut short = format!("{}x{}", board.width, board.height);
    for ((x, y), thing) in things {
        short += &format!(" {}{x},{y}", USUAL.thing(thing));
    }
    for snake in &board.snakes {
        short.push('|');
        let cells: Vec<String> = snake.0.iter().map(|(x, y)| format!("{x},{y}")).collect();
        short += &cells.join(" ");
    }
    short
}

/// The board in coordinates, then a key, then the picture. What is told of equal boards is equal.
pub(super) fn told(board: &Board, options: &Options) -> String {
    let (left, right) = if options.swapped {
        ('+', '-')
    } else {
        ('-', '+')
    };
    let mut lines = vec![
        format!(
            "The board is {}x{}, in (x, y) coordinates from (0, 0) at the bottom left to ({}, {}) at the top right.",
            board.width,
            board.height,
            board.width - 1,
            board.height - 1
        ),
        format!("up is y + 1, down is y - 1, left is x {left} 1, right is x {right} 1."),
    ];
    for thing in options.kinds() {
        let mut cells: Vec<Cell> = board
            .things
            .iter()
            .filter(|(_, kind)| *kind == thing)
            .map(|(cell, _)| *cell)
            .collect();
        cells.sort();
        let name = name(thing);
        lines.push(format!(
            "Each {name} {}. There are {name}s at: {}",
            worth_in_words(options.worth(thing)),
            list(cells.iter())
        ));
    }
    let signs = Signs::of(options.symbols);
    for (who, snake) in board.snakes.iter().enumerate() {
        let head = signs.heads[who];
        let (name, has) = if who == 0 {
            (format!("You, snake {head},"), "have")
        } else {
            (format!("Enemy snake {head}"), "has")
        };
        lines.push(format!("{name} {}", whereabouts(snake, has)));
    }
    if let Some((_, edge)) = options.hill.way() {
        lines.push(format!(
            "Each round every apple rolls one cell towards the {edge} edge."
        ));
    }
    lines.push(format!("Key: {}", key(options)));
    lines.push(format!("State:\n{}", shown(board, options.symbols)));
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
