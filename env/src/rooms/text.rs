//! The observations of rooms, in BabyAI-Text's sentences.

use super::grid::{COLOURS, Content, Grid, Lock, Thing};
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
        match (
            grid.agent.0.checked_add_signed(dx),
            grid.agent.1.checked_add_signed(dy),
        ) {
            (Some(x), Some(y)) => grid.at((x, y)),
            _ => Content::Wall,
        }
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
    format!(
        "{} {}",
        COLOURS[usize::from(thing.colour)],
        thing.kind.name()
    )
}

/// Returns the carried thing and the visible walls, things and doors, one per line.
pub(super) fn view(grid: &Grid, symbols: Phrasing) -> String {
    let visible = visible(grid);
    let see = |what: String| match symbols {
        Phrasing::Usual => format!("You see {what}"),
        Phrasing::Other => what,
    };
    let mut lines: Vec<String> = grid
        .carried
        .map(|carried| format!("You carry a {}", thing(carried)))
        .into_iter()
        .collect();
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
                Some(Content::Door { colour, lock }) => {
                    let article = if lock.name() == "open" { "an" } else { "a" };
                    format!(
                        "{article} {} {} door",
                        lock.name(),
                        COLOURS[usize::from(*colour)]
                    )
                }
                _ => continue,
            };
            let aside = steps(
                i.abs_diff(MIDDLE),
                if i < MIDDLE { "left" } else { "right" },
            );
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
        let mark = if meant.contains(&seen.number) {
            ", meant"
        } else {
            ""
        };
        format!("{}{mark}", thing(seen))
    };
    let mut lines = vec![format!(
        "You are at {} and look {}.",
        at(grid.agent),
        WAYS[grid.way].0
    )];
    lines.extend(
        grid.carried
            .map(|carried| format!("You carry a {}.", marked(carried))),
    );
    lines.extend(
        grid.things()
            .map(|(cell, seen)| format!("{}: {}", at(cell), marked(seen))),
    );
    let door = |(cell, colour, lock): (Cell, u8, Lock)| {
        format!(
            "{}: {} {} door",
            at(cell),
            lock.name(),
            COLOURS[usize::from(colour)]
        )
    };
    lines.extend(grid.doors().map(door));
    let sign = |cell: usize| {
        let (x, y) = (cell % grid.width, cell / grid.width);
        match grid.cells[cell] {
            _ if (x, y) == grid.agent => WAYS[grid.way].1,
            Content::Empty => empty,
            Content::Wall => wall,
            Content::Door { lock, .. } => [open, closed, locked][lock as usize],
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
        let mark = if meant.contains(&thing.number) {
            "!"
        } else {
            ""
        };
        format!("{}{}{mark}", thing.kind as usize, thing.colour)
    };
    let carried = grid.carried.map(name).unwrap_or_default();
    let mut state = format!(
        "{}|{},{},{}|{carried}|",
        mission.in_words(Phrasing::Usual),
        grid.agent.0,
        grid.agent.1,
        grid.way
    );
    let things = grid
        .things()
        .map(|((x, y), thing)| format!("{x},{y}:{}", name(thing)));
    let doors = grid
        .doors()
        .map(|((x, y), colour, lock)| format!("{x},{y}:D{colour}{}", lock as usize));
    state += &things.chain(doors).collect::<Vec<String>>().join(" ");
    state
}
