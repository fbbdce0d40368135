//! How Frozen Lake is told: its rules, and its board.

use super::map::{Cell, Map};
use super::options::{Options, Target};
use crate::options::{Put, View};
use crate::picture;

/// What stands for what on the board: option `symbols`.
struct Signs {
    player: char,
    ice: char,
    red: char,
    hole: char,
    goal: char,
}

const USUAL: Signs = Signs {
    player: 'P',
    ice: '_',
    red: 'R',
    hole: 'O',
    goal: 'G',
};

const OTHER: Signs = Signs {
    player: '@',
    ice: '.',
    red: '%',
    hole: '#',
    goal: '*',
};

impl Signs {
    fn of(symbols: Put) -> &'static Signs {
        match symbols {
            Put::Usual => &USUAL,
            Put::Other => &OTHER,
        }
    }
}

/// The rules, in the usual words or in others.
pub(super) fn rules(options: &Options) -> String {
    let usual = options.wording == Put::Usual;
    let either = |one: &'static str, other| if usual { one } else { other };
    let mut rules = either(
        "You walk on a frozen lake.",
        "You are out on the ice of a lake.",
    )
    .to_owned();
    if options.view == View::Board {
        let signs = Signs::of(options.symbols);
        rules += &format!(" {} is you, {} is ice,", signs.player, signs.ice);
        if options.red > 0 {
            rules += &format!(" {} is red ice,", signs.red);
        }
        rules += &format!(" {} is a hole, {} is the goal.", signs.hole, signs.goal);
    }
    let (reach, wanted) = match options.target {
        Target::Goal => (either("Reach", "Get to"), "the goal"),
        Target::Holes => (either("Reach", "Get into"), "a hole"),
    };
    rules += &match options.exact {
        Some(step) => {
            format!(" {reach} {wanted} in exactly {step} steps: sooner or later gives nothing.")
        }
        None => format!(" {reach} {wanted}."),
    };
    rules += match options.target {
        Target::Goal => either(
            " A hole ends the game.",
            " Whoever falls into a hole is out.",
        ),
        Target::Holes => " The goal ends the game and gives nothing.",
    };
    if options.red > 0 {
        rules += " Avoid the red cells: each step that ends on one costs 1 point.";
    }
    rules += either(
        " Each move goes one cell; the edge stops you.",
        " A move takes you to the next cell, and nowhere at the edge.",
    );
    if options.swapped {
        rules += " The words left and right are swapped: left moves you right, and right moves you left.";
    }
    if options.slippery {
        rules += either(
            " The ice is slippery: two moves in three slip to a side of where you want to go.",
            " You slide: only one move in three goes as you mean it, the others to a side of that.",
        );
    }
    rules
}

/// What the agent gets to see.
pub(super) fn seen(map: &Map, player: usize, steps: usize, options: &Options) -> String {
    let seen = match options.view {
        View::Board => board(map, player, options),
        View::Full => told(map, player, options),
    };
    match options.exact {
        Some(_) => format!("Steps taken: {steps}\n{seen}"),
        None => seen,
    }
}

/// The picture of the lake.
fn board(map: &Map, player: usize, options: &Options) -> String {
    let signs = Signs::of(options.symbols);
    let letter = |cell| match map.cell(cell) {
        _ if cell == player => signs.player,
        Cell::Hole => signs.hole,
        Cell::Goal => signs.goal,
        Cell::Ice => signs.ice,
        Cell::Red => signs.red,
    };
    picture::rows((0..map.size()).map(letter), map.width())
}

/// The lake in coordinates, then a key, then the picture.
fn told(map: &Map, player: usize, options: &Options) -> String {
    let (width, height) = (map.width(), map.height());
    let at = |cell: usize| format!("({}, {})", cell % width, height - 1 - cell / width);
    let all = |kind| {
        let cells: Vec<String> = map.cells_of(kind).map(at).collect();
        if cells.is_empty() {
            "none".to_owned()
        } else {
            cells.join(", ")
        }
    };
    let signs = Signs::of(options.symbols);
    let (left, right) = if options.swapped {
        ('+', '-')
    } else {
        ('-', '+')
    };
    let (red_cells, red_sign) = if options.red > 0 {
        (
            format!("Red cells: {}\n", all(Cell::Red)),
            format!(", {} red ice", signs.red),
        )
    } else {
        Default::default()
    };
    format!(
        "The board is {width}x{height}, in (x, y) coordinates from (0, 0) at the bottom left to ({}, {}) at the top right.\n\
         left is x {left} 1, right is x {right} 1, up is y + 1, down is y - 1.\n\
         Player position: {}\n\
         Holes: {}\n\
         {red_cells}\
         Goal: {}\n\
         Key: {} player, {} hole, {} goal, {} ice{red_sign}\n\
         State:\n{}",
        width - 1,
        height - 1,
        at(player),
        all(Cell::Hole),
        all(Cell::Goal),
        signs.player,
        signs.hole,
        signs.goal,
        signs.ice,
        board(map, player, options)
    )
}
