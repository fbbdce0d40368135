//! A config with the origins of its values and notes for the user.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::Config;

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
    /// The command line.
    Setting,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Preset(name) => write!(f, "the preset {name}"),
            Origin::Variant(name) => write!(f, "the variant {name}"),
            Origin::File(path) | Origin::Written(path) => f.write_str(path),
            Origin::Setting => f.write_str("--set"),
        }
    }
}

/// A config with the origins of its values.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The values.
    pub config: Config,
    /// The origins of values that are not defaults, by dotted key.
    pub origins: BTreeMap<String, Origin>,
    /// Notes for the user: the base of a file, and values that the user set without effect.
    pub notes: Vec<String>,
    /// The run directory, if the name was that of a run.
    pub run: Option<PathBuf>,
}

impl Resolved {
    /// Returns the config as TOML, with a comment on the origin of each value.
    pub fn to_toml(&self) -> String {
        let (mut section, mut list) = (String::new(), None);
        let line = |line: &str| {
            // A list of tables is one value.
            if let Some(name) = line.strip_prefix("[[").and_then(|l| l.strip_suffix("]]")) {
                list = Some(name.to_owned());
                let origin = self.origin(name);
                return format!("{line}  # {origin}\n");
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                let outer = name.split('.').next();
                list = list.take().filter(|list| Some(&**list) == outer);
                section = format!("{name}.");
                return format!("{line}\n");
            }
            if list.is_some() {
                return format!("{line}\n");
            }
            // A text of several lines gets no comment, because the comment would become part of it.
            let whole: Option<toml::Table> = line.parse().ok();
            let key = whole.as_ref().and_then(|table| table.keys().next());
            let Some(key) = key else {
                return format!("{line}\n");
            };
            format!("{line}  # {}\n", self.origin(&format!("{section}{key}")))
        };
        self.config.to_toml().lines().map(line).collect()
    }

    /// Returns the origin of a value, as a line.
    fn origin(&self, key: &str) -> String {
        let origin = self.origins.get(key).map(ToString::to_string);
        let origin = origin.unwrap_or_else(|| "default".to_owned());
        origin.escape_debug().collect()
    }

    /// Returns the origin of a value, if the user chose it.
    pub(super) fn chosen(&self, key: &str) -> Option<&Origin> {
        let origin = self.origins.get(key);
        origin.filter(|origin| matches!(origin, Origin::File(_) | Origin::Setting))
    }
}
