//! Typed access to a JSON object, with errors that name file and field.

use std::fmt::Display;
use std::path::Path;

use serde_json::{Map, Value};

use super::disk;
use crate::ModelError;

/// A JSON object of a file. A field that is null counts as absent.
pub(crate) struct JsonFields<'a> {
    path: &'a Path,
    prefix: String,
    map: &'a Map<String, Value>,
}

/// Reads a JSON file that must be an object. The largest configuration files, those with a chat template and a list of special
/// tokens, have a megabyte; larger files are refused before they are parsed.
pub(crate) fn read_object(path: &Path) -> Result<Map<String, Value>, ModelError> {
    const MAX_FILE: u64 = 32 << 20;
    let text = disk::read_text(path, MAX_FILE)?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(ModelError::file(path, "not a JSON object")),
        Err(e) => Err(ModelError::file(path, format!("not valid JSON: {e}"))),
    }
}

impl<'a> JsonFields<'a> {
    pub(crate) fn new(path: &'a Path, map: &'a Map<String, Value>) -> JsonFields<'a> {
        let prefix = String::new();
        JsonFields { path, prefix, map }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    pub(crate) fn wrong(&self, field: &str, problem: impl Display) -> ModelError {
        ModelError::field(self.path, &format!("{}{field}", self.prefix), problem)
    }

    pub(crate) fn get(&self, field: &str) -> Option<&'a Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// Returns whether a field is not even null: for some fields null means "none", and absence means a default.
    pub(crate) fn is_absent(&self, field: &str) -> bool {
        !self.map.contains_key(field)
    }

    /// Converts a field, if it is present. `wrong` completes the sentence "VALUE is ..." of the error.
    fn convert<T>(
        &self,
        field: &str,
        wrong: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let converted = convert(value).map(Some);
        converted.ok_or_else(|| self.wrong(field, format!("{} is {wrong}", shortened(value))))
    }

    fn required<T>(&self, field: &str, value: Option<T>) -> Result<T, ModelError> {
        value.ok_or_else(|| self.wrong(field, "missing"))
    }

    /// Returns an object within this one.
    pub(crate) fn object(&self, field: &str) -> Result<Option<JsonFields<'a>>, ModelError> {
        let map = self.convert(field, "not an object", Value::as_object)?;
        Ok(map.map(|map| JsonFields {
            path: self.path,
            prefix: format!("{}{field}.", self.prefix),
            map,
        }))
    }

    /// Returns an integer from 1 to `most`.
    pub(crate) fn count(&self, field: &str, most: usize) -> Result<Option<usize>, ModelError> {
        let wrong = format!("not an integer from 1 to {most}");
        self.convert(field, &wrong, |value| {
            let number = value.as_u64().filter(|n| (1..=most as u64).contains(n))?;
            Some(number as usize)
        })
    }

    pub(crate) fn required_count(&self, field: &str, most: usize) -> Result<usize, ModelError> {
        self.required(field, self.count(field, most)?)
    }

    pub(crate) fn positive(&self, field: &str) -> Result<Option<f64>, ModelError> {
        self.convert(field, "not a number above 0", |value| {
            value.as_f64().filter(|x| *x > 0.0 && x.is_finite())
        })
    }

    pub(crate) fn required_positive(&self, field: &str) -> Result<f64, ModelError> {
        self.required(field, self.positive(field)?)
    }

    /// Returns true or false; false if the field is absent.
    pub(crate) fn flag(&self, field: &str) -> Result<bool, ModelError> {
        let flag = self.convert(field, "neither true nor false", Value::as_bool)?;
        Ok(flag.unwrap_or(false))
    }

    pub(crate) fn text(&self, field: &str) -> Result<Option<&'a str>, ModelError> {
        self.convert(field, "not a text", Value::as_str)
    }

    /// Returns one token id or a list of them; none if the field is absent.
    pub(crate) fn token_ids(&self, field: &str) -> Result<Vec<u32>, ModelError> {
        let one = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = self.convert(
            field,
            "not a token id or a list of them",
            |value| match value {
                Value::Array(list) => list.iter().map(one).collect(),
                value => one(value).map(|id| vec![id]),
            },
        )?;
        Ok(ids.unwrap_or_default())
    }
}

fn shortened(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
