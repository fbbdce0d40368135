//! Typed access to a JSON object that names file and field in every complaint.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::disk;
use crate::ModelError;

/// A value as a complaint shows it.
fn brief(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// One JSON object and where it stands.
pub(crate) struct JsonFields<'a> {
    path: PathBuf,
    prefix: String,
    map: &'a Map<String, Value>,
}

/// A whole JSON file that must be an object.
///
/// What configures a model is a few kilobytes, with a template and a list of special tokens a megabyte; what would be
/// parsed to gigabytes is none of it.
pub(crate) fn read_object(path: &Path) -> Result<Map<String, Value>, ModelError> {
    const LARGEST: u64 = 32 << 20;
    match disk::read_json(path, LARGEST)? {
        Value::Object(map) => Ok(map),
        _ => Err(ModelError::file(path, "not a JSON object")),
    }
}

impl<'a> JsonFields<'a> {
    pub(crate) fn new(path: &Path, map: &'a Map<String, Value>) -> JsonFields<'a> {
        JsonFields {
            path: path.to_owned(),
            prefix: String::new(),
            map,
        }
    }

    /// Where the object stands.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The names of its fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// The complaint about one of these fields.
    pub(crate) fn wrong(&self, field: &str, problem: impl ToString) -> ModelError {
        ModelError::field(&self.path, &format!("{}{field}", self.prefix), problem)
    }

    /// The value, where it is present and not null.
    pub(crate) fn get(&self, field: &str) -> Option<&'a Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// Whether it is not even null, which for some fields says "none" where absence means a default.
    pub(crate) fn is_absent(&self, field: &str) -> bool {
        !self.map.contains_key(field)
    }

    pub(crate) fn has(&self, field: &str) -> bool {
        self.get(field).is_some()
    }

    /// An object within this one, where it is present and not null.
    pub(crate) fn object(&self, field: &str) -> Result<Option<JsonFields<'a>>, ModelError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let Value::Object(map) = value else {
            return Err(self.wrong(field, format!("{} is not an object", brief(value))));
        };
        let prefix = format!("{}{field}.", self.prefix);
        Ok(Some(JsonFields {
            path: self.path.clone(),
            prefix,
            map,
        }))
    }

    /// A whole number from 1 to `most`.
    pub(crate) fn count(&self, field: &str, most: usize) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(n) if n >= 1 && n <= most as u64 => Ok(Some(n as usize)),
            _ => Err(self.wrong(
                field,
                format!("{} is not a whole number from 1 to {most}", brief(value)),
            )),
        }
    }

    pub(crate) fn required_count(&self, field: &str, most: usize) -> Result<usize, ModelError> {
        self.count(field, most)?
            .ok_or_else(|| self.wrong(field, "missing"))
    }

    /// A number above zero.
    pub(crate) fn positive(&self, field: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(x) if x > 0.0 && x.is_finite() => Ok(Some(x)),
            _ => Err(self.wrong(field, format!("{} is not a number above 0", brief(value)))),
        }
    }

    pub(crate) fn required_positive(&self, field: &str) -> Result<f64, ModelError> {
        self.positive(field)?
            .ok_or_else(|| self.wrong(field, "missing"))
    }

    /// True or false; false where it is absent.
    pub(crate) fn flag(&self, field: &str) -> Result<bool, ModelError> {
        match self.get(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => {
                Err(self.wrong(field, format!("{} is neither true nor false", brief(value))))
            }
        }
    }

    pub(crate) fn text(&self, field: &str) -> Result<Option<&'a str>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.wrong(field, format!("{} is not a text", brief(value)))),
        }
    }

    /// One token id or a list of them; none where it is absent.
    pub(crate) fn token_ids(&self, field: &str) -> Result<Vec<u32>, ModelError> {
        let Some(value) = self.get(field) else {
            return Ok(Vec::new());
        };
        let one = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = match value {
            Value::Array(list) => list.iter().map(one).collect(),
            value => one(value).map(|id| vec![id]),
        };
        ids.ok_or_else(|| {
            self.wrong(
                field,
                format!("{} is not a token id or a list of them", brief(value)),
            )
        })
    }
}
