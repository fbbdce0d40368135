//! Reading a game's options, and saying what is wrong with them.

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value};
use thiserror::Error;

/// Options that a game cannot be configured with.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The options are not a JSON object.
    #[error("{game}: the options must be a table of names and values, found {found}")]
    NotATable {
        /// The game.
        game: String,
        /// What was given instead.
        found: String,
    },
    /// No option has this name.
    #[error("{game}: unknown option `{option}`{}; the options are {}", suggestion(.option, .known), .known.join(", "))]
    Unknown {
        /// The game.
        game: String,
        /// The name that was given.
        option: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// An option has a value that it cannot take.
    #[error("{game}: option `{option}` {problem}")]
    Value {
        /// The game.
        game: String,
        /// The option.
        option: String,
        /// What was found, and what was wanted.
        problem: String,
    },
}

/// There is no game of this name.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("unknown game `{name}`{}; the games are {}", suggestion(.name, .known), .known.join(", "))]
pub struct UnknownGame {
    name: String,
    known: Vec<String>,
}

impl UnknownGame {
    pub(crate) fn new(name: &str) -> UnknownGame {
        let names = |kind: &'static crate::Kind| {
            let variants = kind.variants.iter().map(|variant| variant.name);
            std::iter::once(kind.name).chain(variants)
        };
        let known = crate::GAMES
            .iter()
            .flat_map(names)
            .map(str::to_owned)
            .collect();
        UnknownGame {
            name: name.to_owned(),
            known,
        }
    }
}

/// An option of a game, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GameOption {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// What it may be.
    pub range: &'static str,
}

/// One line of a list of options.
pub(crate) const fn option(
    name: &'static str,
    meaning: &'static str,
    range: &'static str,
) -> GameOption {
    GameOption {
        name,
        meaning,
        range,
    }
}

/// How a state is told: option `view`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum View {
    /// The picture of the board alone.
    Board,
    /// Coordinates and a key, then the picture.
    Full,
}

/// How the same thing is put: options `wording` and `symbols`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Put {
    /// As always.
    #[default]
    Usual,
    /// In other words, or by other signs; what it means is the same.
    Other,
}

/// The longest side of a board, which is read cell by cell: larger ones fit no prompt.
pub(crate) const LONGEST_SIDE: usize = 64;

/// Reads the options of `game`, each left out taking its default.
///
/// # Errors
/// If they are no table, one has a name that `T` does not have, or a value of another type.
pub fn read<T: Default + Serialize + DeserializeOwned>(
    game: &str,
    given: &Value,
) -> Result<T, OptionsError> {
    let Value::Object(table) = given else {
        return Err(OptionsError::NotATable {
            game: game.to_owned(),
            found: shortened(given),
        });
    };
    // serde does not say which key its complaint is about, so each is first read alone.
    for (name, value) in table {
        read_one::<T>(game, name, value)?;
    }
    serde_json::from_value(given.clone()).map_err(|error| OptionsError::NotATable {
        game: game.to_owned(),
        found: error.to_string(),
    })
}

fn read_one<T: Default + Serialize + DeserializeOwned>(
    game: &str,
    name: &str,
    value: &Value,
) -> Result<(), OptionsError> {
    let known = names::<T>();
    if !known.iter().any(|known| known == name) {
        return Err(OptionsError::Unknown {
            game: game.to_owned(),
            option: name.to_owned(),
            known,
        });
    }
    let alone = Map::from_iter([(name.to_owned(), value.clone())]);
    match serde_json::from_value::<T>(Value::Object(alone)) {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(
            game,
            name,
            value,
            &in_words(&error.to_string(), value),
        )),
    }
}

/// Reads an option that can be left out. Given as null it is an error and not the same as left out, since nulls are
/// what becomes of a NaN, or of a value that went missing on its way.
pub(crate) fn unless_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    option: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(option).map(Some)
}

/// Writes an option of those that change the instructions: as null if it is as usual, so that scenarios with the usual
/// instructions say nothing of what they might be instead.
pub(crate) fn unless_usual<S: Serializer, T: Default + PartialEq + Serialize>(
    option: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if *option == T::default() {
        serializer.serialize_none()
    } else {
        option.serialize(serializer)
    }
}

/// Checks that an option lies in its range.
pub(crate) fn within(
    game: &str,
    option: &str,
    value: usize,
    range: RangeInclusive<usize>,
) -> Result<(), OptionsError> {
    if range.contains(&value) {
        return Ok(());
    }
    let wanted = format!("from {} to {}", range.start(), range.end());
    Err(refused(game, option, value, &wanted))
}

/// Refuses options that would be ignored because of others, which `beside` tells.
pub(crate) fn left_out(
    game: &str,
    given: &Value,
    options: &[&str],
    beside: &str,
) -> Result<(), OptionsError> {
    let unused = options
        .iter()
        .find_map(|&name| Some((name, given.get(name)?)));
    match unused {
        Some((name, value)) => {
            let wanted = format!("left out beside {beside}");
            Err(refused(game, name, value, &wanted))
        }
        None => Ok(()),
    }
}

/// Settles `size`, `width` and `height`: one size for a square board, otherwise both sides.
pub(crate) fn settle_sides(
    game: &str,
    [size, width, height]: [&mut Option<usize>; 3],
    usual: usize,
) -> Result<(), OptionsError> {
    for (name, side) in [("size", &size), ("width", &width), ("height", &height)] {
        within(game, name, side.unwrap_or(usual), 2..=LONGEST_SIDE)?;
    }
    if let (Some(size), Some(_), Some(_)) = (&size, &width, &height) {
        return Err(refused(
            game,
            "size",
            size,
            "left out beside `width` and `height`",
        ));
    }
    let square = size.unwrap_or(usual);
    let sides = (width.unwrap_or(square), height.unwrap_or(square));
    (*size, *width, *height) = if sides.0 == sides.1 {
        (Some(sides.0), None, None)
    } else {
        (None, Some(sides.0), Some(sides.1))
    };
    Ok(())
}

/// The error for an option that is `found` and should be `wanted`.
pub fn refused(game: &str, option: &str, found: impl Serialize, wanted: &str) -> OptionsError {
    let found = shortened(&serde_json::to_value(found).unwrap_or_default());
    OptionsError::Value {
        game: game.to_owned(),
        option: option.to_owned(),
        problem: format!("is {found}, but must be {wanted}"),
    }
}

/// The options in force, without those that are not set.
///
/// # Panics
/// If they are no struct of plain values.
pub fn in_force(options: &impl Serialize) -> Value {
    let mut value = table(options);
    value.retain(|_, value| !value.is_null());
    Value::Object(value)
}

/// The names of all options of `T`.
pub(crate) fn names<T: Default + Serialize>() -> Vec<String> {
    table(&T::default()).keys().cloned().collect()
}

fn table(options: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(options) {
        Ok(Value::Object(table)) => table,
        other => unreachable!("options are a struct of plain values, not {other:?}"),
    }
}

/// What serde expected, in words for people who do not know Rust's types.
fn in_words(error: &str, value: &Value) -> String {
    let wanted = error
        .split_once("expected ")
        .map_or(error, |(_, wanted)| wanted);
    match wanted {
        "usize" => "a whole number, 0 or more".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "string or map" => "a name in quotes".to_owned(),
        "a sequence" => "a list".to_owned(),
        "path string" => "a path in quotes".to_owned(),
        "a string" if value.is_array() => "a list of texts in quotes".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        other => other.to_owned(),
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    text.chars().take(57).chain("...".chars()).collect()
}

/// ` (did you mean ...?)` for a name that is not known, if a known one is near enough; otherwise nothing.
pub fn suggestion(name: &str, known: &[String]) -> String {
    let edits = |known| strsim::osa_distance(name, known);
    let nearest = known.iter().map(|known| (edits(known), known)).min();
    match nearest {
        Some((edits, known)) if edits <= 1 + name.chars().count() / 4 => {
            format!(" (did you mean `{known}`?)")
        }
        _ => String::new(),
    }
}
