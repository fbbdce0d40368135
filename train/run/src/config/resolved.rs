//! A config with what is known of it: where each value comes from, and what is to be said of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::Config;

/// Where a value comes from that is not the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The preset of this name.
    Preset(String),
    /// The variant of a game of this name.
    Variant(String),
    /// This file.
    File(String),
    /// This file, which says everything: lapwing wrote it, and nobody chose what is in it.
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

/// A config, and how it came about.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The values.
    pub config: Config,
    /// Where those come from that are not defaults, by dotted key.
    pub origins: BTreeMap<String, Origin>,
    /// What whoever asked for it should know: what a file starts from, which of the values that somebody chose have no
    /// effect.
    pub notes: Vec<String>,
    /// The directory of the run, if one was asked for.
    pub run: Option<PathBuf>,
}

impl Resolved {
    /// The config as TOML, with a comment on each value that says where it comes from.
    pub fn to_toml(&self) -> String {
        let (mut section, mut list) = (String::new(), None);
        let line = |line: &str| {
            // A list of tables is one value, chosen as a whole.
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
            // A text of several lines is left alone: a comment would become a part of it.
            let whole: Option<toml::Table> = line.parse().ok();
            let key = whole.as_ref().and_then(|table| table.keys().next());
            let Some(key) = key else {
                return format!("{line}\n");
            };
            format!("{line}  # {}\n", self.origin(&format!("{section}{key}")))
        };
        self.config.to_toml().lines().map(line).collect()
    }

    /// Where a value comes from, in a line.
    fn origin(&self, key: &str) -> String {
        let origin = self.origins.get(key).map(ToString::to_string);
        let origin = origin.unwrap_or_else(|| "default".to_owned());
        origin.escape_debug().collect()
    }

    /// Where a value comes from, if somebody chose it.
    pub(super) fn chosen(&self, key: &str) -> Option<&Origin> {
        let origin = self.origins.get(key);
        origin.filter(|origin| matches!(origin, Origin::File(_) | Origin::Setting))
    }
}
