//! Reads GGUF files, the format of llama.cpp: metadata, then the list of tensors, then their values.
//!
//! The format is described in ggml's `docs/gguf.md`. Every length is compared with the size of the file before anything is
//! allocated for it.

mod blocks;
mod model;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

pub(crate) use blocks::GgufFormat;
pub(crate) use model::{
    fields_of, frequency_divisors, head_permutation, interleaved, read_config, tensor_name,
};
pub(crate) use write::{ALIGNMENT, GgufFields, GgufOutput, GgufValue};

use super::disk::{self, FileBytes};
use super::fields::JsonFields;
use crate::ModelError;

/// The extension of the files.
pub(crate) const EXTENSION: &str = "gguf";

/// Models have some dozens of fields and some thousands of tensors.
const MAX_ENTRIES: u64 = 1 << 16;

/// The largest published headers, with a vocabulary of 262,144 tokens, have 16 MB.
const MAX_HEADER: u64 = 512 << 20;

/// Returns whether a path has the extension of GGUF files, `gguf`.
pub fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case(EXTENSION))
}

/// Returns the file of this name in a model's directory, or the GGUF file that holds what it would hold.
pub fn file_of_model(model: &Path, name: &str) -> PathBuf {
    match is_gguf(model) {
        true => model.to_owned(),
        false => model.join(name),
    }
}

/// A file whose header is read.
pub(crate) struct Gguf {
    pub(crate) path: PathBuf,
    pub(crate) map: FileBytes,
    pub(crate) header: GgufHeader,
}

struct GgufArray {
    kind: u32,
    count: usize,
    bytes: Range<usize>,
}

/// A tensor in the file.
pub(crate) struct GgufTensor {
    pub(crate) format: GgufFormat,
    /// The axis whose values follow each other is the last.
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Range<usize>,
}

const INT: u32 = 5;
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

impl Gguf {
    /// Maps a file and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Gguf, ModelError> {
        Gguf::open_part(path, u64::MAX)
    }

    /// Reads the header without mapping the values, for a process whose memory is limited.
    pub(crate) fn open_header(path: &Path) -> Result<Gguf, ModelError> {
        Gguf::open_part(path, MAX_HEADER)
    }

    fn open_part(path: &Path, most: u64) -> Result<Gguf, ModelError> {
        let wrong = |problem: String| ModelError::file(path, problem);
        let (map, length) = disk::map(path, most).map_err(|e| wrong(e.to_string()))?;
        if length == 0 {
            return Err(wrong("empty, not a GGUF file".to_owned()));
        }
        let header = GgufHeader::read(&map, length).map_err(wrong)?;
        Ok(Gguf {
            path: path.to_owned(),
            map,
            header,
        })
    }

    /// Returns the metadata as it is stored.
    pub(crate) fn stored_fields(&self) -> impl Iterator<Item = (String, GgufValue)> {
        let value =
            |kind: &u32, bytes: &Range<usize>| GgufValue(*kind, self.map[bytes.clone()].into());
        let fields = self.header.stored.iter();
        fields.map(move |(name, kind, bytes)| (name.clone(), value(kind, bytes)))
    }

    /// Returns the metadata of one value.
    pub(crate) fn fields(&self) -> JsonFields<'_> {
        JsonFields::new(&self.path, &self.header.fields)
    }

    /// Returns the texts of an array of at most `most`.
    pub(crate) fn texts(&self, name: &str, most: usize) -> Result<Vec<&str>, ModelError> {
        let (mut rest, array) = self.array(name, TEXT, "texts", most)?;
        let text = |_| rest.text();
        let texts: Result<Vec<&str>, String> = (0..array.count).map(text).collect();
        texts.map_err(|problem| ModelError::file(&self.path, problem))
    }

    /// Returns the integers of an array of at most `most`; `None` if there is no such array.
    pub(crate) fn numbers(&self, name: &str, most: usize) -> Result<Option<Vec<i32>>, ModelError> {
        if !self.header.arrays.contains_key(name) {
            return Ok(None);
        }
        let (rest, array) = self.array(name, INT, "32-bit integers", most)?;
        let bytes = rest.bytes[array.bytes.clone()].as_chunks::<4>().0;
        Ok(Some(bytes.iter().map(|b| i32::from_le_bytes(*b)).collect()))
    }

    fn array(
        &self,
        name: &str,
        kind: u32,
        what: &str,
        most: usize,
    ) -> Result<(Reader<'_>, &GgufArray), ModelError> {
        let wrong = |problem: String| ModelError::field(&self.path, name, problem);
        let array = self.header.arrays.get(name);
        let array = array.ok_or_else(|| wrong("missing, or not an array".to_owned()))?;
        if array.kind != kind {
            return Err(wrong(format!("not an array of {what}")));
        }
        if array.count > most {
            return Err(wrong(format!("{} values; at most {most}", array.count)));
        }
        let reader = Reader {
            bytes: &self.map,
            at: array.bytes.start,
        };
        Ok((reader, array))
    }
}

/// What is read before the values of the tensors.
#[derive(Default)]
pub(crate) struct GgufHeader {
    /// Metadata of one value.
    fields: Map<String, Value>,
    /// Metadata of several values.
    arrays: BTreeMap<String, GgufArray>,
    /// All metadata as stored, each with its type.
    stored: Vec<(String, u32, Range<usize>)>,
    pub(crate) tensors: BTreeMap<String, GgufTensor>,
}

impl GgufHeader {
    /// Reads the header of a file of some length, of which `bytes` is at least the header.
    fn read(bytes: &[u8], length: u64) -> Result<GgufHeader, String> {
        if bytes.starts_with(b"version https://git-lfs") {
            return Err("a Git LFS pointer, not the model; run `git lfs pull` there".to_owned());
        }
        let mut reader = Reader { bytes, at: 0 };
        if !bytes.starts_with(b"GGUF") {
            return Err("not a GGUF file".to_owned());
        }
        reader.at = 4;
        match reader.u32()? {
            2 | 3 => (),
            version if version.swap_bytes() <= 3 => {
                return Err("big-endian GGUF is not supported".to_owned());
            }
            version => {
                return Err(format!(
                    "GGUF version {version} is not supported, only 2 and 3; convert the model again"
                ));
            }
        }
        let (tensors, fields) = (reader.u64()?, reader.u64()?);
        for (count, what) in [(tensors, "tensors"), (fields, "metadata fields")] {
            if count > MAX_ENTRIES {
                return Err(format!("{count} {what}; at most {MAX_ENTRIES}"));
            }
        }
        let mut header = GgufHeader::default();
        for _ in 0..fields {
            let name = reader.text()?.to_owned();
            let kind = reader.u32()?;
            let start = reader.at;
            header.read_field(&mut reader, &name, kind)?;
            header.stored.push((name, kind, start..reader.at));
        }
        header.read_tensors(&mut reader, tensors, length)?;
        Ok(header)
    }

    fn read_field(&mut self, reader: &mut Reader<'_>, name: &str, kind: u32) -> Result<(), String> {
        if self.fields.contains_key(name) || self.arrays.contains_key(name) {
            return Err(format!("the metadata has {name} twice"));
        }
        if kind != ARRAY {
            let value = reader.value(kind).map_err(|e| format!("{name}: {e}"))?;
            self.fields.insert(name.to_owned(), value);
            return Ok(());
        }
        let (kind, count) = (reader.u32()?, reader.u64()?);
        let start = reader.at;
        let size = match kind {
            TEXT => None,
            _ => Some(
                size_of_value(kind).ok_or_else(|| format!("{name}: an array of type {kind}"))?,
            ),
        };
        let count = usize::try_from(count).map_err(|_| reader.ends())?;
        match size {
            Some(size) => {
                reader.take(count.checked_mul(size).ok_or_else(|| reader.ends())?)?;
            }
            None => {
                for _ in 0..count {
                    reader.text()?;
                }
            }
        }
        let bytes = start..reader.at;
        let array = GgufArray { kind, count, bytes };
        self.arrays.insert(name.to_owned(), array);
        Ok(())
    }

    fn read_tensors(
        &mut self,
        reader: &mut Reader<'_>,
        count: u64,
        length: u64,
    ) -> Result<(), String> {
        let mut placed = Vec::new();
        for _ in 0..count {
            let name = reader.text()?.to_owned();
            let axes = reader.u32()?;
            if axes > 4 {
                return Err(format!("tensor {name}: {axes} axes; at most 4"));
            }
            let mut shape = Vec::new();
            for _ in 0..axes {
                let size = usize::try_from(reader.u64()?)
                    .ok()
                    .filter(|n| *n as u64 <= 1 << 40);
                shape.insert(
                    0,
                    size.ok_or_else(|| format!("tensor {name}: an axis is too long"))?,
                );
            }
            let (format, offset) = (reader.u32()?, reader.u64()?);
            let format = GgufFormat::of(format).map_err(|e| format!("tensor {name}: {e}"))?;
            placed.push((name, format, shape, offset));
        }
        let alignment = self.fields.get("general.alignment").and_then(Value::as_u64);
        let alignment = alignment.unwrap_or(32).clamp(1, 1 << 20) as usize;
        let start = reader.at.next_multiple_of(alignment);
        for (name, format, shape, offset) in placed {
            let bytes = format.size(&shape).and_then(|size| {
                let from = start.checked_add(usize::try_from(offset).ok()?)?;
                Some(from..from.checked_add(size)?)
            });
            let bytes = bytes.filter(|bytes| bytes.end as u64 <= length);
            let Some(bytes) = bytes else {
                return Err(format!(
                    "damaged or cut off: tensor {name} with the shape {shape:?} in {format:?} is beyond the end of the file, \
                     or its rows are no whole blocks"
                ));
            };
            let tensor = GgufTensor {
                format,
                shape,
                bytes,
            };
            if self.tensors.insert(name.clone(), tensor).is_some() {
                return Err(format!("tensor {name} is listed twice"));
            }
        }
        Ok(())
    }
}

fn size_of_value(kind: u32) -> Option<usize> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn ends(&self) -> String {
        format!("damaged or cut off: the header ends at byte {}", self.at)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| self.ends())?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("as many bytes"))
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a str, String> {
        let length = usize::try_from(self.u64()?).map_err(|_| self.ends())?;
        let at = self.at;
        let bytes = self.take(length)?;
        str::from_utf8(bytes).map_err(|_| format!("damaged: the text at byte {at} is not UTF-8"))
    }

    fn value(&mut self, kind: u32) -> Result<Value, String> {
        Ok(match kind {
            0 => json!(u8::from_le_bytes(self.array()?)),
            1 => json!(i8::from_le_bytes(self.array()?)),
            2 => json!(u16::from_le_bytes(self.array()?)),
            3 => json!(i16::from_le_bytes(self.array()?)),
            4 => json!(self.u32()?),
            5 => json!(i32::from_le_bytes(self.array()?)),
            6 => json!(f32::from_le_bytes(self.array()?)),
            7 => json!(self.take(1)?[0] != 0),
            TEXT => json!(self.text()?),
            10 => json!(self.u64()?),
            11 => json!(i64::from_le_bytes(self.array()?)),
            12 => json!(f64::from_le_bytes(self.array()?)),
            other => return Err(format!("values of type {other} are not in the format")),
        })
    }
}
