//! Writes GGUF files.

use super::blocks::GgufFormat;
use super::{Gguf, TEXT};

/// A value of the metadata: its type in the file, and its bytes.
pub(crate) struct GgufValue(pub(super) u32, pub(super) Vec<u8>);

impl GgufValue {
    pub(crate) fn text(text: &str) -> GgufValue {
        GgufValue(TEXT, length_and(text))
    }

    pub(crate) fn float(value: f32) -> GgufValue {
        GgufValue(6, value.to_le_bytes().into())
    }
}

/// A tensor to write, with the last axis first in memory.
pub(crate) struct GgufOutput {
    pub(crate) name: String,
    pub(crate) format: GgufFormat,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Gguf {
    /// Returns the bytes of a file of version 3.
    pub(crate) fn encode(fields: &[(&str, GgufValue)], tensors: &[GgufOutput]) -> Vec<u8> {
        const ALIGNMENT: usize = 32;
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
            offset += tensor.bytes.len().next_multiple_of(ALIGNMENT);
        }
        for tensor in tensors {
            file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
            file.extend(&tensor.bytes);
        }
        file
    }
}

fn length_and(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}
