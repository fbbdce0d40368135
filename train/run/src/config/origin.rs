//! Origins of values, and values by their dotted keys.

use std::fmt;

use toml::{Table, Value};

/// The origin of a value that is not the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The preset of this name.
    Preset(String),
    /// The game variant of this name.
    Variant(String),
    /// This file.
    File(String),
    /// This file with every value, which lapwing wrote; the user chose none of them.
    Written(String),
    /// This option of the command line, without its dashes.
    Setting(String),
    /// lapwing, for this reason.
    Derived(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Preset(name) => write!(f, "the preset {name}"),
            Origin::Variant(name) => write!(f, "the variant {name}"),
            Origin::File(path) | Origin::Written(path) => f.write_str(path),
            Origin::Setting(option) => write!(f, "--{option}"),
            Origin::Derived(reason) => f.write_str(reason),
        }
    }
}

/// Returns the table of `a.b.c = value`.
pub(super) fn nested(key: &str, value: Value) -> Table {
    match key.split_once('.') {
        Some((name, rest)) => Table::from_iter([(name.to_owned(), nested(rest, value).into())]),
        None => Table::from_iter([(key.to_owned(), value)]),
    }
}

/// Returns the value of `a.b.c`.
pub(super) fn find<'a>(root: &'a mut Table, key: &str) -> Option<&'a mut Value> {
    let mut names = key.split('.');
    let mut value = root.get_mut(names.next()?)?;
    for name in names {
        value = value.as_table_mut()?.get_mut(name)?;
    }
    Some(value)
}
