//! The rules and observations of Frozen Lake.

use super::map::{LakeCell, LakeMap};
use super::options::{LakeOptions, LakeTarget};
use crate::options::{ListedView, Phrasing};
use crate::picture::{self, Cell, Role, Ways};

/// Returns the signs of player, ice, red ice, hole and goal.
fn signs(symbols: Phrasing) -> [char; 5] {
    match symbols {
        Phrasing::Usual => ['P', '_', 'R', 'O', 'G'],
        Phrasing::Other => ['@', '.', '%', '#', '*'],
    }
}

/// Returns the role of a sign of either set.
pub(super) fn role(cell: &str) -> Option<Role> {
    use Role::{Floor, Goal, Hazard, Hole, Player};
    picture::role(cell, signs, [Player, Floor, Hazard, Hole, Goal])
}

pub(super) fn rules(options: &LakeOptions) -> String {
    let either = |usual, other| options.wording.either(usual, other);
    let mut rules = either(
        "You walk on a frozen lake.",
        "You are out on the ice of a lake.",
    )
    .to_owned();
    if options.view == ListedView::Board {
        let [player, ice, red, hole, goal] = signs(options.symbols);
        rules += &format!(" {player} is you, {ice} is ice,");
        if options.red > 0 {
            rules += &format!(" {red} is red ice,");
        }
        rules += &format!(" {hole} is a hole, {goal} is the goal.");
    }
    let (reach, wanted) = match options.target {
        LakeTarget::Goal => (either("Reach", "Get to"), "the goal"),
        LakeTarget::Holes => (either("Reach", "Get into"), "a hole"),
    };
    rules += &match options.exact {
        Some(step) => {
            format!(" {reach} {wanted} in exactly {step} steps: sooner or later gives nothing.")
        }
        None => format!(" {reach} {wanted}."),
    };
    rules += match options.target {
        LakeTarget::Goal => either(
            " A hole ends the game.",
            " Whoever falls into a hole is out.",
        ),
        LakeTarget::Holes => " The goal ends the game and gives nothing.",
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

pub(super) fn observation(
    map: &LakeMap,
    player: usize,
    steps: usize,
    options: &LakeOptions,
) -> String {
    let state = match options.view {
        ListedView::Board => board(map, player, options),
        ListedView::Coordinates => listed(map, player, options),
        ListedView::Relative => relative(map, player, options),
        ListedView::Full => full(map, player, options),
    };
    match options.exact {
        Some(_) => format!("Steps taken: {steps}\n{state}"),
        None => state,
    }
}

fn board(map: &LakeMap, player: usize, options: &LakeOptions) -> String {
    let [own, ice, red, hole, goal] = signs(options.symbols);
    let sign = |cell| match map.cells[cell] {
        _ if cell == player => own,
        LakeCell::Hole => hole,
        LakeCell::Goal => goal,
        LakeCell::Ice => ice,
        LakeCell::Red => red,
    };
    picture::rows((0..map.cells.len()).map(sign), map.width)
}

fn place(map: &LakeMap, cell: usize) -> Cell {
    (cell % map.width, map.height() - 1 - cell / map.width)
}

fn in_coordinates(map: &LakeMap, cells: impl Iterator<Item = usize>) -> String {
    picture::list(cells.map(|cell| place(map, cell)))
}

fn lake_in_coordinates(map: &LakeMap, options: &LakeOptions) -> String {
    let all = |kind| in_coordinates(map, map.cells_of(kind));
    let [left, right] = picture::signs_of_x(options.swapped);
    let red_cells = match options.red {
        0 => String::new(),
        _ => format!("Red cells: {}\n", all(LakeCell::Red)),
    };
    format!(
        "{}\n\
         left is x {left} 1, right is x {right} 1, up is y + 1, down is y - 1.\n\
         Holes: {}\n\
         {red_cells}\
         Goal: {}",
        picture::coordinates(map.width, map.height()),
        all(LakeCell::Hole),
        all(LakeCell::Goal),
    )
}

fn player_in_coordinates(map: &LakeMap, player: usize) -> String {
    format!(
        "Player position: {}",
        in_coordinates(map, [player].into_iter())
    )
}

fn listed(map: &LakeMap, player: usize, options: &LakeOptions) -> String {
    format!(
        "{}\n{}",
        lake_in_coordinates(map, options),
        player_in_coordinates(map, player)
    )
}

/// The size of the board tells the edges, since the goal is in a corner.
fn relative(map: &LakeMap, player: usize, options: &LakeOptions) -> String {
    let ways = Ways {
        from: place(map, player),
        swapped: options.swapped,
    };
    let all =
        |kind| ways.to_nearest_first(map.cells_of(kind).map(|cell| place(map, cell)).collect());
    let red_cells = match options.red {
        0 => String::new(),
        _ => format!("\nRed cells: {}", all(LakeCell::Red)),
    };
    format!(
        "{}\nGoal: {}\nHoles: {}{red_cells}",
        picture::seen_from(map.width, map.height(), "you"),
        all(LakeCell::Goal),
        all(LakeCell::Hole),
    )
}

/// Returns the lake in coordinates, a key and the picture. What changes within an episode comes last, because equal beginnings of
/// prompts are computed once.
fn full(map: &LakeMap, player: usize, options: &LakeOptions) -> String {
    let [own, ice, red, hole, goal] = signs(options.symbols);
    let red_sign = match options.red {
        0 => String::new(),
        _ => format!(", {red} red ice"),
    };
    format!(
        "{}\n\
         Key: {own} player, {hole} hole, {goal} goal, {ice} ice{red_sign}\n\
         {}\n\
         State:\n{}",
        lake_in_coordinates(map, options),
        player_in_coordinates(map, player),
        board(map, player, options)
    )
}
