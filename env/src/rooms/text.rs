//! The observations of rooms, in BabyAI-Text's sentences.

use super::grid::{Content, Grid, Lock, Thing, colour_name};
use super::mission::Mission;
use crate::options::Phrasing;
use crate::picture::{self, Cell};

/// Cells per side of the field of view. The agent is in the middle of the nearest row.
const FIELD: usize = 7;
const MIDDLE: usize = FIELD / 2;

/// Returns the visible cells by column from the left and row from the farthest. As in MiniGrid light spreads from the
/// agent row by row, sideways and to the next row, from every cell that does not block it.
fn visible(grid: &Grid) -> [[Option<Content>; FIELD]; FIELD] {
    let cell = |i: usize, j: usize| {
        let (ahead, right) = ((FIELD - 1 - j) as isize, i as isize - MIDDLE as isize);
        let (dx, dy) = match grid.way {
            0 => (ahead, right),
            1 => (-right, ahead),
            2 => (-ahead, -right),
            _ => (right, -ahead),
        };
        let (x, y) = grid.agent;
        grid.at((x.wrapping_add_signed(dx), y.wrapping_add_signed(dy)))
    };
    let mut lit = [[false; FIELD]; FIELD];
    lit[MIDDLE][FIELD - 1] = true;
    for j in (0..FIELD).rev() {
        let mut spread = |i: usize, next: usize| {
            if lit[i][j] && !cell(i, j).blocks_the_view() {
                lit[next][j] = true;
                if j > 0 {
                    lit[next][j - 1] = true;
                    lit[i][j - 1] = true;
                }
            }
        };
        (0..FIELD - 1).for_each(|i| spread(i, i + 1));
        (1..FIELD).rev().for_each(|i| spread(i, i - 1));
    }
    std::array::from_fn(|i| std::array::from_fn(|j| lit[i][j].then(|| cell(i, j))))
}

fn steps(count: usize, whither: &str) -> String {
    let steps = if count == 1 { "step" } else { "steps" };
    format!("{count} {steps} {whither}")
}

fn thing(thing: Thing) -> String {
    format!("{} {}", colour_name(thing.colour), thing.kind.name())
}

/// Returns the carried thing and the visible walls, things and doors, one per line.
pub(super) fn view(grid: &Grid, symbols: Phrasing) -> String {
    let visible = visible(grid);
    let see = |what: String| match symbols {
        Phrasing::Usual => format!("You see {what}"),
        Phrasing::Other => what,
    };
    let carried = grid.carried.map(|it| format!("You carry a {}", thing(it)));
    let mut lines = Vec::from_iter(carried);
    // A wall ahead or to a side, if nothing stands before it.
    let near = FIELD - 1;
    let mut wall = |line: &mut dyn Iterator<Item = Option<Content>>, whither: &str| {
        let first = line
            .zip(1..)
            .find(|(place, _)| !matches!(place, None | Some(Content::Empty)));
        if let Some((Some(Content::Wall), distance)) = first {
            lines.push(see(format!("a wall {}", steps(distance, whither))));
        }
    };
    wall(&mut (0..near).rev().map(|j| visible[MIDDLE][j]), "forward");
    wall(&mut (0..MIDDLE).rev().map(|i| visible[i][near]), "left");
    wall(&mut (MIDDLE + 1..FIELD).map(|i| visible[i][near]), "right");
    for (i, column) in visible.iter().enumerate() {
        for (j, place) in column.iter().enumerate() {
            let what = match place {
                _ if (i, j) == (MIDDLE, near) => continue,
                Some(Content::Thing(seen)) => format!("a {}", thing(*seen)),
                Some(Content::Door(colour, lock)) => {
                    let article = if *lock == Lock::Open { "an" } else { "a" };
                    format!("{article} {} {} door", lock.name(), colour_name(*colour))
                }
                _ => continue,
            };
            let side = if i < MIDDLE { "left" } else { "right" };
            let aside = steps(i.abs_diff(MIDDLE), side);
            let ahead = steps(near - j, "forward");
            let whither = match (i == MIDDLE, j == near) {
                (true, _) => ahead,
                (false, true) => aside,
                (false, false) => format!("{aside} and {ahead}"),
            };
            lines.push(see(format!("{what} {whither}")));
        }
    }
    lines.join("\n")
}

const WAYS: [(&str, char); 4] = [("right", '>'), ("down", 'v'), ("left", '<'), ("up", '^')];

/// Returns the signs of wall, empty cell, open, closed and locked door, key, ball and box.
fn signs(symbols: Phrasing) -> [char; 8] {
    match symbols {
        Phrasing::Usual => ['#', '_', '/', 'D', 'L', 'K', 'B', 'X'],
        Phrasing::Other => ['W', '.', 'O', 'C', 'N', 'k', 'o', '*'],
    }
}

/// Returns the whole house: things and doors in words, a key and the picture.
pub(super) fn full(grid: &Grid, mission: &Mission, symbols: Phrasing) -> String {
    let [wall, empty, open, closed, locked, key, ball, carton] = signs(symbols);
    let at = |(x, y): Cell| format!("({x}, {})", grid.height() - 1 - y);
    let meant = mission.numbers();
    let marked = |seen: Thing| {
        let is_meant = meant.contains(&seen.number);
        thing(seen) + if is_meant { ", meant" } else { "" }
    };
    let (place, way) = (at(grid.agent), WAYS[grid.way].0);
    let mut lines = vec![format!("You are at {place} and look {way}.")];
    let carried = grid.carried.map(marked);
    lines.extend(carried.map(|carried| format!("You carry a {carried}.")));
    let things = grid.things();
    lines.extend(things.map(|(cell, seen)| format!("{}: {}", at(cell), marked(seen))));
    let door = |(cell, colour, lock): (Cell, u8, Lock)| {
        let (lock, colour) = (lock.name(), colour_name(colour));
        format!("{}: {lock} {colour} door", at(cell))
    };
    lines.extend(grid.doors().map(door));
    let sign = |cell: usize| {
        let (x, y) = (cell % grid.width, cell / grid.width);
        match grid.cells[cell] {
            _ if (x, y) == grid.agent => WAYS[grid.way].1,
            Content::Empty => empty,
            Content::Wall => wall,
            Content::Door(_, lock) => [open, closed, locked][lock as usize],
            Content::Thing(thing) => [key, ball, carton][thing.kind as usize],
        }
    };
    lines.push(format!(
        "Key: > v < ^ you, {wall} wall, {empty} empty, {closed} closed door, {locked} locked door, {open} open door, {key} key, {ball} ball, {carton} box"
    ));
    lines.push("State:".to_owned());
    lines.push(picture::rows((0..grid.cells.len()).map(sign), grid.width));
    lines.join("\n")
}

/// Returns the key of a state: the mission, the agent, the carried thing, things and doors in one line.
pub(super) fn key(grid: &Grid, mission: &Mission) -> String {
    let meant = mission.numbers();
    let name = |thing: Thing| {
        let is_meant = meant.contains(&thing.number);
        let mark = if is_meant { "!" } else { "" };
        format!("{}{}{mark}", thing.kind as usize, thing.colour)
    };
    let carried = grid.carried.map(name).unwrap_or_default();
    let ((x, y), way) = (grid.agent, grid.way);
    let mission = mission.in_words(Phrasing::Usual);
    let mut state = format!("{mission}|{x},{y},{way}|{carried}|");
    let things = grid.things();
    let things = things.map(|((x, y), thing)| format!("{x},{y}:{}", name(thing)));
    let doors = grid.doors();
    let doors = doors.map(|((x, y), colour, lock)| format!("{x},{y}:D{colour}{}", lock as usize));
    state += &things.chain(doors).collect::<Vec<String>>().join(" ");
    state
}
