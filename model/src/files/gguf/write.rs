//! Writes GGUF files.

use super::blocks::GgufFormat;
use super::{ARRAY, Gguf, INT, TEXT};

/// The values of a tensor start at a multiple of this many bytes.
pub(crate) const ALIGNMENT: usize = 32;

/// A value of the metadata: its type in the file, and its bytes.
#[derive(Clone)]
pub(crate) struct GgufValue(pub(super) u32, pub(super) Vec<u8>);

impl GgufValue {
    pub(crate) fn text(text: &str) -> GgufValue {
        GgufValue(TEXT, length_and(text))
    }

    pub(crate) fn texts<'a>(all: impl ExactSizeIterator<Item = &'a str>) -> GgufValue {
        GgufValue::array(TEXT, all.len(), all.flat_map(length_and))
    }

    pub(crate) fn float(value: f32) -> GgufValue {
        GgufValue(6, value.to_le_bytes().into())
    }

    pub(crate) fn flag(value: bool) -> GgufValue {
        GgufValue(7, vec![value.into()])
    }

    /// An integer below 2^32.
    pub(crate) fn count(value: usize) -> GgufValue {
        GgufValue(4, (value as u32).to_le_bytes().into())
    }

    pub(crate) fn numbers(all: &[i32]) -> GgufValue {
        GgufValue::array(INT, all.len(), all.iter().flat_map(|x| x.to_le_bytes()))
    }

    fn array(kind: u32, count: usize, values: impl Iterator<Item = u8>) -> GgufValue {
        let mut bytes = [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes()].concat();
        bytes.extend(values);
        GgufValue(ARRAY, bytes)
    }
}

/// Metadata to write.
pub(crate) type GgufFields = Vec<(String, GgufValue)>;

/// A tensor to write, with the last axis first in memory.
pub(crate) struct GgufOutput {
    pub(crate) name: String,
    pub(crate) format: GgufFormat,
    pub(crate) shape: Vec<usize>,
}

impl Gguf {
    /// Returns the bytes of a file of version 3 before the values, which follow in this order, each tensor padded to a multiple
    /// of [`ALIGNMENT`].
    pub(crate) fn header<'a>(
        fields: &[(String, GgufValue)],
        tensors: impl ExactSizeIterator<Item = &'a GgufOutput>,
    ) -> Vec<u8> {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        for count in [tensors.len(), fields.len()] {
            file.extend((count as u64).to_le_bytes());
        }
        for (name, GgufValue(kind, bytes)) in fields {
            file.extend(length_and(name));
            file.extend(kind.to_le_bytes());
            file.extend(bytes);
        }
        let mut offset = 0;
        for tensor in tensors {
            file.extend(length_and(&tensor.name));
            file.extend((tensor.shape.len() as u32).to_le_bytes());
            for axis in tensor.shape.iter().rev() {
                file.extend((*axis as u64).to_le_bytes());
            }
            file.extend((tensor.format.number()).to_le_bytes());
            file.extend((offset as u64).to_le_bytes());
            let size = tensor.format.size(&tensor.shape);
            offset += size
                .expect("rows of whole blocks")
                .next_multiple_of(ALIGNMENT);
        }
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        file
    }

    /// Returns the bytes of a whole file.
    pub(crate) fn encode(
        fields: &[(String, GgufValue)],
        tensors: &[(GgufOutput, Vec<u8>)],
    ) -> Vec<u8> {
        let mut file = Gguf::header(fields, tensors.iter().map(|(tensor, _)| tensor));
        for (_, bytes) in tensors {
            file.extend(bytes);
            file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        }
        file
    }
}

fn length_and(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}
