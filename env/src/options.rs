//! The declaration of game options and of config sections, and reading options from JSON.
//!
//! [`options!`](crate::options!) declares each option once, with name, type, default, range and meaning. The struct, its
//! defaults, reading, the range checks, `lapwing games` and the tables in `docs/games` come from that declaration.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use thiserror::Error;

/// Options that a game cannot be configured with, or the name of no game. The text names the game and the option, or all games
/// and variants.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{0}")]
pub struct OptionsError(pub(crate) String);

/// The range of a numeric option, or of each number of a list. One that ends with the largest number of its type has no
/// upper limit, but excludes infinity.
#[derive(Debug, Clone)]
pub enum OptionRange {
    /// Whole numbers from the first to the second.
    Whole(usize, usize),
    /// Numbers from the first to the second.
    Real(f64, f64),
    /// Numbers above 0, up to this one.
    Positive(f64),
}

impl OptionRange {
    /// Returns whether it contains this number.
    pub fn contains(&self, value: f64) -> bool {
        match *self {
            OptionRange::Whole(low, high) => low as f64 <= value && value <= high as f64,
            OptionRange::Real(low, high) => low <= value && value <= high,
            OptionRange::Positive(high) => 0.0 < value && value <= high,
        }
    }

    /// Describes its numbers.
    pub fn wanted(&self) -> String {
        match *self {
            OptionRange::Whole(low, usize::MAX) => format!("at least {low}"),
            OptionRange::Whole(low, high) => format!("an integer from {low} to {high}"),
            OptionRange::Real(low, f64::MAX) => format!("a number, {low} or more"),
            OptionRange::Real(low, high) => format!("a number from {low} to {high}"),
            OptionRange::Positive(f64::MAX) => "a number above 0".to_owned(),
            OptionRange::Positive(high) => format!("a number above 0, at most {high}"),
        }
    }
}

/// An option of a game or a key of a config section, as declared with [`options!`](crate::options!).
#[derive(Debug, Clone)]
pub struct DeclaredOption {
    /// Its name.
    pub name: &'static str,
    /// Its documentation.
    pub meaning: &'static str,
    /// Returns its default, null for none.
    pub default: fn() -> Value,
    /// Its range: at most one.
    pub range: &'static [OptionRange],
    /// Describes the values of its type.
    pub values: fn() -> String,
    /// Whether it is among the options in force only if it differs from its default.
    pub if_changed: bool,
}

impl DeclaredOption {
    /// Describes the values that it accepts.
    pub fn wanted(&self) -> String {
        match self.range {
            [range] if (self.default)().is_array() => {
                format!("a list of numbers, each {}", range.wanted())
            }
            [range] => range.wanted(),
            _ => (self.values)(),
        }
    }

    fn in_range(&self, value: &Value) -> bool {
        let in_range = |range: &OptionRange| value.as_f64().is_some_and(|it| range.contains(it));
        self.range.iter().all(in_range)
    }
}

/// The options of a game or a config section: a struct that [`options!`](crate::options!) declares.
pub trait DeclaredOptions: Default + Serialize + DeserializeOwned {
    /// The options in the order of their declaration.
    const LIST: &'static [DeclaredOption];

    /// Reads the options of `game`. Options that are left out have their defaults.
    ///
    /// # Errors
    /// If `given` is not a table, has an unknown name, or has a value of another type or out of its range. Null is
    /// refused too: a NaN becomes null in JSON.
    fn read(game: &str, given: &Value) -> Result<Self, OptionsError> {
        let not_a_table = |found| {
            let wanted = "the options must be a table of names and values";
            OptionsError(format!("{game}: {wanted}, found {found}"))
        };
        let Value::Object(table) = given else {
            return Err(not_a_table(shortened(given)));
        };
        for (name, value) in table {
            let Some(option) = Self::LIST.iter().find(|option| option.name == name) else {
                let known = Self::LIST.iter().map(|option| option.name.to_owned());
                let known: Vec<String> = known.collect();
                return Err(OptionsError(format!(
                    "{game}: unknown option `{name}`{}; the options are {}",
                    suggestion(name, &known),
                    known.join(", ")
                )));
            };
            // serde's errors do not name the key, so each option is first read alone.
            let alone = serde_json::from_value::<Self>(json!({ name: value }));
            if value.is_null() || !option.in_range(value) || alone.is_err() {
                return Err(refused(game, name, value, &option.wanted()));
            }
        }
        serde_json::from_value(given.clone()).map_err(|error| not_a_table(error.to_string()))
    }

    /// Returns the options in force. Options without a value are left out, and so are unchanged ones that are declared
    /// with `if changed`, and those that others have `replaced`.
    fn in_force(&self, replaced: Option<&[&str]>) -> Value {
        let mut options = json!(self);
        for option in Self::LIST {
            let value = &mut options[option.name];
            let unchanged = option.if_changed && *value == (option.default)();
            if unchanged || replaced.is_some_and(|names| names.contains(&option.name)) {
                *value = Value::Null;
            }
        }
        let table = options.as_object_mut().expect("options are a struct");
        table.retain(|_, value| !value.is_null());
        options
    }
}

/// Declares a struct of game options or a config section and implements [`DeclaredOptions`] for it. After the range,
/// `with "MODULE"` names a module for serde's attribute `with`.
///
/// ```
/// use lapwing_env::{DeclaredOptions, OptionRange::Whole};
///
/// lapwing_env::options! {
///     /// The options of a lake.
///     pub struct LakeOptions;
///     /// cells per side
///     size: usize = 4, in Whole(2, 64);
///     /// the words left and right are swapped
///     swapped: bool = false, if changed;
/// }
///
/// let options = LakeOptions::read("lake", &serde_json::json!({ "size": 8 }))?;
/// assert_eq!(options.in_force(None), serde_json::json!({ "size": 8 }));
/// let error = LakeOptions::read("lake", &serde_json::json!({ "size": 1 })).unwrap_err();
/// assert_eq!(error.to_string(), "lake: option `size` is 1, but must be an integer from 2 to 64");
/// # Ok::<(), lapwing_env::OptionsError>(())
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[$about:meta])*
        $visibility:vis struct $Options:ident;
        $(
            $(#[doc = $doc:literal])+
            $name:ident: $type:ty = $default:expr
                $(, in $range:expr)? $(, with $with:literal)? $(, if $changed:ident)?;
        )+
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $visibility struct $Options {
            $($(#[doc = $doc])+ $(#[serde(with = $with)])? $visibility $name: $type,)+
        }

        impl Default for $Options {
            fn default() -> $Options {
                $Options { $($name: $default,)+ }
            }
        }

        impl $crate::DeclaredOptions for $Options {
            const LIST: &'static [$crate::DeclaredOption] = &[$($crate::DeclaredOption {
                name: stringify!($name),
                meaning: concat!($($doc),+).trim_ascii(),
                default: || ::serde_json::json!(<$Options>::default().$name),
                range: &[$($range)?],
                values: $crate::described::<$type>,
                if_changed: !stringify!($($changed)?).is_empty(),
            },)+];
        }
    };
}

/// Declares variants or probes: a summary, a name, the subtlety of a probe, and the options that are set.
macro_rules! presets {
    (
        $Preset:ident of $Options:ident;
        $(#[doc = $summary:literal] $name:literal $(, $subtlety:ident)?: $($option:ident = $value:expr),+;)*
    ) => {
        &[$($crate::$Preset {
            name: $name,
            summary: $summary.trim_ascii(),
            $(subtlety: $crate::Subtlety::$subtlety,)?
            options: || {
                let options = $Options { $($option: $value,)+ ..Default::default() };
                serde_json::json!({ $(stringify!($option): options.$option),+ })
            },
        },)*]
    };
}
pub(crate) use presets;

/// The content of an observation: option `view`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum View {
    /// The picture of the board alone.
    Board,
    /// Coordinates and a key, then the picture.
    Full,
}

/// The same for a game whose coordinates tell everything that its picture shows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ListedView {
    /// The picture of the board alone.
    Board,
    /// Coordinates alone, which are a fraction of the tokens.
    Coordinates,
    /// The moves from the player to each thing.
    Relative,
    /// Coordinates and a key, then the picture.
    Full,
}

/// One of two sets of words or signs with the same meaning: options `wording` and `symbols`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phrasing {
    Usual,
    Other,
}

impl Phrasing {
    /// Returns one of two texts with the same meaning.
    pub(crate) fn either(self, usual: &'static str, other: &'static str) -> &'static str {
        match self {
            Phrasing::Usual => usual,
            Phrasing::Other => other,
        }
    }
}

/// The longest side of a board. An observation holds every cell, and larger boards fit no prompt.
pub(crate) const LONGEST_SIDE: usize = 64;

/// The highest step limit of a game.
pub(crate) const LONGEST_EPISODE: usize = 100_000;

/// Refuses `options` that would have no effect because of the option `beside`.
pub(crate) fn left_out(
    game: &str,
    given: &Value,
    options: &[&str],
    beside: &str,
) -> Result<(), OptionsError> {
    for name in options {
        if let Some(value) = given.get(name) {
            let wanted = format!("left out beside {beside}");
            return Err(refused(game, name, value, &wanted));
        }
    }
    Ok(())
}

/// Settles `size`, `width` and `height`: equal sides are in force as `size`, others as `width` and `height`.
pub(crate) fn settle_sides(
    game: &str,
    given: &Value,
    [size, width, height]: [&mut Option<usize>; 3],
) -> Result<(), OptionsError> {
    if width.is_some() && height.is_some() {
        left_out(game, given, &["size"], "`width` and `height`")?;
    }
    let sides = (width.or(*size), height.or(*size));
    (*size, *width, *height) = match sides {
        (width, height) if width == height => (width, None, None),
        (width, height) => (None, width, height),
    };
    Ok(())
}

/// Returns the error for an option whose value is `found` and must be `wanted`.
pub fn refused(game: &str, option: &str, found: impl Serialize, wanted: &str) -> OptionsError {
    let found = shortened(&serde_json::to_value(found).unwrap_or_default());
    wrong(game, option, format!("is {found}, but must be {wanted}"))
}

/// Returns the error for an option with a problem, which continues the sentence "option `option`".
pub fn wrong(game: &str, option: &str, problem: String) -> OptionsError {
    OptionsError(format!("{game}: option `{option}` {problem}"))
}

/// Describes the values that `T` is read from, by what serde reports for a value that it is not read from.
#[doc(hidden)]
pub fn described<T: DeserializeOwned>() -> String {
    let errors = [json!("?"), json!({})].map(|value| serde_json::from_value::<T>(value).err());
    let error = errors.into_iter().flatten().next();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    let (_, wanted) = error.split_once("expected ").unwrap_or_default();
    let words = match wanted {
        "usize" | "u64" => "an integer",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a map" => "a table",
        "a sequence" => "a list of strings in quotes",
        "an array of length 2" => "a list of two numbers",
        "path string" => "a path in quotes",
        "a string" => "a string in quotes",
        other => other,
    };
    words.to_owned()
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    text.chars().take(57).chain("...".chars()).collect()
}

/// Returns ` (did you mean ...?)` if a known name is similar to `name` or contains it, otherwise an empty text.
pub fn suggestion(name: &str, known: &[String]) -> String {
    let edits = |known| strsim::osa_distance(name, known);
    let nearest = known.iter().min_by_key(|known| (edits(known), *known));
    let nearest = nearest.filter(|known| edits(known) <= (name.chars().count() / 4).max(1));
    let contains = |known: &&String| name.len() > 3 && known.contains(name);
    let longer = known
        .iter()
        .filter(contains)
        .min_by_key(|known| known.len());
    match nearest.or(longer) {
        Some(known) => format!(" (did you mean `{known}`?)"),
        None => String::new(),
    }
}
