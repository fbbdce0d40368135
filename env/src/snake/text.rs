//! The rules and observations of Snake.

use super::board::{Food, Snake, SnakeBoard};
use super::options::SnakeOptions;
use crate::options::{ListedView, Phrasing};
use crate::picture::{self, Cell, Role, Ways};

/// Returns the signs of nine heads (the first is the agent's own), body, empty cell, apple, banana and fire.
fn signs(symbols: Phrasing) -> [char; 14] {
    match symbols {
        Phrasing::Usual => *b"123456789T_ABF",
        Phrasing::Other => *b"@abcdefgho.+%^",
    }
    .map(char::from)
}

const BODY: usize = 9;
const EMPTY: usize = 10;
/// The first sign of food, in the order of [`Food::ALL`].
const FOOD: usize = 11;

/// Returns the role of a sign of either set.
pub(super) fn role(cell: &str) -> Option<Role> {
    use Role::{Body, Floor, Goal, Hazard, Item};
    let mut roles = [Role::Opponent; 14];
    roles[0] = Role::Player;
    roles[BODY..].copy_from_slice(&[Body, Floor, Goal, Item, Hazard]);
    picture::role(cell, signs, roles)
}

pub(super) fn rules(options: &SnakeOptions) -> String {
    let usual = options.wording == Phrasing::Usual;
    let own = signs(options.symbols)[0];
    let mut rules = if usual {
        format!("You are snake {own}.")
    } else {
        format!("Snake {own} is yours to steer.")
    };
    if options.snakes() > 1 {
        rules += options.wording.either(
            " All snakes move at once.",
            " Every snake takes its step in the same moment.",
        );
    }
    if options.view == ListedView::Board {
        let signs = options.wording.either("Key", "Signs");
        rules += &format!(" {signs}: {}.", legend(options));
    }
    for food in options.kinds() {
        let (name, worth) = (food.name(), options.worth(food));
        let poison = worth < 0.0 && food != Food::Fire;
        let worth = worth_in_words(worth);
        rules += &match (usual, poison) {
            (true, true) => format!(" Each {name} is poisonous, {worth} and makes you longer."),
            (true, false) => format!(" Each {name} {worth} and makes you longer."),
            (false, _) => {
                let every = if poison { "Beware: every" } else { "Every" };
                format!(" {every} {name} you eat {worth} and adds a cell to your body.")
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
        + options.wording.either(
            " You die if you hit a wall, a snake or your own body. Get as many points as you can.",
            " Walls, snakes and your own body kill whoever runs into them. Collect all the points that you can.",
        )
}

/// Returns "gives 1 point", "costs 2 points" or "gives nothing".
fn worth_in_words(worth: f64) -> String {
    let s = if worth.abs() == 1.0 { "" } else { "s" };
    match worth {
        0.0 => "gives nothing".to_owned(),
        _ if worth > 0.0 => format!("gives {worth} point{s}"),
        _ => format!("costs {} point{s}", -worth),
    }
}

pub(super) fn board(board: &SnakeBoard, symbols: Phrasing) -> String {
    let signs = signs(symbols);
    let mut cells = vec![signs[EMPTY]; board.width * board.height];
    let mut mark = |(x, y): Cell, sign| cells[(board.height - 1 - y) * board.width + x] = sign;
    for &(cell, food) in &board.food {
        mark(cell, signs[FOOD + food as usize]);
    }
    for (who, snake) in board.snakes.iter().enumerate() {
        for (part, &cell) in snake.iter().enumerate() {
            mark(cell, if part == 0 { signs[who] } else { signs[BODY] });
        }
    }
    picture::rows(cells.into_iter(), board.width)
}

fn legend(options: &SnakeOptions) -> String {
    let signs = signs(options.symbols);
    let mut legend = format!("{} your head", signs[0]);
    match options.snakes() - 1 {
        0 => {}
        1 => legend += &format!(", {} enemy head", signs[1]),
        enemies => legend += &format!(", {} to {} enemy heads", signs[1], signs[enemies]),
    }
    legend += &format!(", {} body", signs[BODY]);
    for food in options.kinds() {
        legend += &format!(", {} {}", signs[FOOD + food as usize], food.name());
    }
    legend + &format!(", {} empty", signs[EMPTY])
}

/// Returns the key of a state: the content of [`listed`] in one line.
pub(super) fn key(board: &SnakeBoard) -> String {
    let mut food = board.food.clone();
    food.sort();
    let mut key = format!("{}x{}", board.width, board.height);
    for ((x, y), food) in food {
        key += &format!(" {}{x},{y}", signs(Phrasing::Usual)[FOOD + food as usize]);
    }
    for snake in &board.snakes {
        key.push('|');
        let cells: Vec<String> = snake.iter().map(|(x, y)| format!("{x},{y}")).collect();
        key += &cells.join(" ");
    }
    key
}

/// Returns the board in coordinates, and in the full view a key and the picture. Equal boards have equal texts.
pub(super) fn listed(board: &SnakeBoard, options: &SnakeOptions) -> String {
    let [left, right] = picture::signs_of_x(options.swapped);
    let mut lines = vec![
        picture::coordinates(board.width, board.height),
        format!("up is y + 1, down is y - 1, left is x {left} 1, right is x {right} 1."),
    ];
    for food in options.kinds() {
        let mut cells = board.cells_of(food);
        cells.sort();
        let name = food.name();
        lines.push(format!(
            "Each {name} {}. There are {name}s at: {}",
            worth_in_words(options.worth(food)),
            picture::list(cells.into_iter())
        ));
    }
    let signs = signs(options.symbols);
    for (who, snake) in board.snakes.iter().enumerate() {
        let head = signs[who];
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
    if options.view == ListedView::Full {
        lines.push(format!("Key: {}", legend(options)));
        lines.push(format!("State:\n{}", self::board(board, options.symbols)));
    }
    lines.join("\n")
}

/// Returns where everything is, seen from the head of the first snake; in coordinates if it has died.
pub(super) fn relative(board: &SnakeBoard, options: &SnakeOptions) -> String {
    let Some(&from) = board.snakes[0].front() else {
        return listed(board, options);
    };
    let ways = Ways {
        from,
        swapped: options.swapped,
    };
    let (width, height) = (board.width, board.height);
    let mut lines = vec![picture::seen_from(width, height, "your head")];
    for food in options.kinds() {
        let cells = ways.to_nearest_first(board.cells_of(food));
        lines.push(format!("{}: {cells}", food.title()));
    }
    let body = |snake: &Snake| ways.to(snake.iter().skip(1).copied());
    lines.push(format!("Your body: {}", body(&board.snakes[0])));
    let signs = signs(options.symbols);
    for (who, snake) in board.snakes.iter().enumerate().skip(1) {
        let whereabouts = match snake.front() {
            Some(&head) => format!("head {}; body {}", ways.to([head].into_iter()), body(snake)),
            None => "dead".to_owned(),
        };
        lines.push(format!("Enemy {}: {whereabouts}", signs[who]));
    }
    lines.push(format!("Walls: {}", ways.to_walls(width, height)));
    lines.join("\n")
}

fn whereabouts(snake: &Snake, has: &str) -> String {
    match snake.front() {
        Some((x, y)) => format!(
            "{has} the head at ({x}, {y}) and the body at: {}",
            picture::list(snake.iter().skip(1).copied())
        ),
        None => format!("{has} died"),
    }
}
