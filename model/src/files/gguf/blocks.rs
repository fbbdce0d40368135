//! The encodings of GGUF tensors. A quantised row consists of blocks; a block has groups of values, each with a scale and a
//! minimum: value = scale · quant + minimum. The layouts are those of ggml's `ggml-common.h`.

use half::f16;
use lapwing_tensor::WeightFormat;
use safetensors::Dtype;

use crate::files::stored_floats::{from_f32, to_f32};

/// The encoding of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the names of the format")]
pub(crate) enum GgufFormat {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
}
use GgufFormat::*;

/// The encodings with their numbers in a file.
const SUPPORTED: [(GgufFormat, u32); 11] = [
    (F32, 0),
    (F16, 1),
    (BF16, 30),
    (Q8_0, 8),
    (Q4_0, 2),
    (Q4_1, 3),
    (Q5_0, 6),
    (Q5_1, 7),
    (Q4_K, 12),
    (Q5_K, 13),
    (Q6_K, 14),
];

/// Encodings that files can have and lapwing does not read.
const OTHERS: [(u32, &str); 22] = [
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

impl GgufFormat {
    /// Returns the encoding of a number in the file, or what is wrong with it.
    pub(super) fn of(number: u32) -> Result<GgufFormat, String> {
        let format = SUPPORTED.iter().find(|(_, of)| *of == number);
        format.map(|(format, _)| *format).ok_or_else(|| {
            let name = OTHERS.iter().find(|(of, _)| *of == number);
            let name = name.map_or(format!("type {number}"), |(_, name)| (*name).to_owned());
            let all = SUPPORTED
                .map(|(format, _)| format!("{format:?}"))
                .join(", ");
            format!("{name} is not supported; supported are {all}")
        })
    }

    /// Returns the number of the encoding in a file.
    pub(super) fn number(self) -> u32 {
        let found = SUPPORTED.iter().find(|(format, _)| *format == self);
        found.expect("every encoding is listed").1
    }

    /// Returns the values and the bytes of a block.
    pub(crate) fn block(self) -> (usize, usize) {
        match self {
            F32 => (1, 4),
            F16 | BF16 => (1, 2),
            Q4_0 => (32, 18),
            Q4_1 => (32, 20),
            Q5_0 => (32, 22),
            Q5_1 => (32, 24),
            Q8_0 => (32, 34),
            Q4_K => (256, 144),
            Q5_K => (256, 176),
            Q6_K => (256, 210),
        }
    }

    /// Returns the bytes of a tensor; `None` if its rows are no whole blocks, or it is too large.
    pub(super) fn size(self, shape: &[usize]) -> Option<usize> {
        let (values, bytes) = self.block();
        let row = *shape.last().unwrap_or(&1);
        let mut rows = shape.iter().rev().skip(1);
        let rows = rows.try_fold(1usize, |rows, n| rows.checked_mul(*n))?;
        let blocks = rows.checked_mul(row / values)?;
        (row.is_multiple_of(values)).then(|| blocks.checked_mul(bytes))?
    }

    /// Returns the format on the device, which holds the same values.
    pub(crate) fn device_format(self) -> WeightFormat {
        match self {
            F32 => WeightFormat::F32,
            F16 => WeightFormat::F16,
            BF16 => WeightFormat::Bf16,
            Q4_0 | Q4_1 | Q4_K => WeightFormat::Q4,
            Q5_0 | Q5_1 | Q5_K | Q8_0 => WeightFormat::Q8,
            Q6_K => WeightFormat::Q8Short,
        }
    }

    /// Decodes rows of blocks: a quant for each value, and scale and minimum for each group of the device's format.
    pub(crate) fn decode(self, bytes: &[u8]) -> (Vec<u8>, Vec<[f32; 2]>) {
        let (values, size) = self.block();
        let group = self.device_format().group().expect("a quantised encoding");
        let blocks = bytes.len() / size;
        let mut quants = vec![0; blocks * values];
        let mut scales = vec![[0.0; 2]; blocks * values / group];
        let blocks = bytes.chunks_exact(size);
        let to = quants
            .chunks_exact_mut(values)
            .zip(scales.chunks_exact_mut(values / group));
        for (block, (quants, scales)) in blocks.zip(to) {
            self.decode_block(block, quants, scales);
        }
        (quants, scales)
    }

    fn decode_block(self, block: &[u8], quants: &mut [u8], scales: &mut [[f32; 2]]) {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        let scale = half(if self == Q6_K { 208 } else { 0 });
        match self {
            F32 | F16 | BF16 => unreachable!("not quantised"),
            Q4_0 | Q4_1 => {
                let (from, minimum) = match self {
                    Q4_0 => (2, -8.0 * scale),
                    _ => (4, half(2)),
                };
                nibbles(&block[from..], quants);
                scales[0] = [scale, minimum];
            }
            Q5_0 | Q5_1 => {
                let (from, minimum) = match self {
                    Q5_0 => (2, -16.0 * scale),
                    _ => (4, half(2)),
                };
                let high = u32::from_le_bytes(block[from..from + 4].try_into().expect("4 bytes"));
                nibbles(&block[from + 4..], quants);
                for (i, quant) in quants.iter_mut().enumerate() {
                    *quant |= (high >> i & 1) as u8 * 16;
                }
                scales[0] = [scale, minimum];
            }
            Q8_0 => {
                for (quant, byte) in quants.iter_mut().zip(&block[2..]) {
                    *quant = byte ^ 0x80;
                }
                scales[0] = [scale, -128.0 * scale];
            }
            Q4_K | Q5_K => {
                let (packed, minimum) = (&block[4..16], half(2));
                let (high, low) = match self {
                    Q4_K => (None, &block[16..]),
                    _ => (Some(&block[16..48]), &block[48..]),
                };
                for (group, quants) in quants.chunks_exact_mut(32).enumerate() {
                    let own = packed_scales(packed, group);
                    scales[group] = [scale * own[0], -minimum * own[1]];
                    let low = &low[group / 2 * 32..][..32];
                    for (i, quant) in quants.iter_mut().enumerate() {
                        let high = high.map_or(0, |high| high[i] >> group & 1);
                        *quant = (low[i] >> (group % 2 * 4) & 15) | high << 4;
                    }
                }
            }
            Q6_K => {
                for (i, quant) in quants.iter_mut().enumerate() {
                    // Two halves of 128; a quarter of a half shares bytes of `low` with the quarter after the next.
                    let (half, quarter, at) = (i / 128, i / 32 % 4, i % 32);
                    let low = block[half * 64 + quarter % 2 * 32 + at] >> (quarter / 2 * 4) & 15;
                    let high = block[128 + half * 32 + at] >> (quarter * 2) & 3;
                    *quant = low | high << 4;
                }
                for (scales, byte) in scales.iter_mut().zip(&block[192..208]) {
                    let own = scale * f32::from(*byte as i8);
                    *scales = [own, -32.0 * own];
                }
            }
        }
    }

    /// Encodes whole blocks in F32, F16 or Q8_0, the last as llama.cpp's converter rounds it. `None` if a value is not finite in
    /// the encoding.
    pub(crate) fn encode(self, values: &[f32]) -> Option<Vec<u8>> {
        match self {
            F32 => from_f32(values, Dtype::F32),
            F16 => from_f32(values, Dtype::F16),
            Q8_0 => {
                let mut bytes = Vec::with_capacity(values.len() / 32 * 34);
                for block in values.chunks_exact(32) {
                    let scale = block.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
                    let inverse = if scale == 0.0 { 0.0 } else { scale.recip() };
                    let scale = Some(f16::from_f32(scale)).filter(|scale| scale.is_finite())?;
                    bytes.extend(scale.to_le_bytes());
                    bytes.extend(block.iter().map(|x| (x * inverse).round() as i8 as u8));
                }
                Some(bytes)
            }
            _ => unreachable!("not written"),
        }
    }

    /// Decodes rows of blocks to f32.
    pub(crate) fn to_f32(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            F32 => to_f32(bytes, Dtype::F32),
            F16 => to_f32(bytes, Dtype::F16),
            BF16 => to_f32(bytes, Dtype::BF16),
            _ => {
                let (quants, scales) = self.decode(bytes);
                let group = quants.len() / scales.len().max(1);
                let groups = quants.chunks_exact(group.max(1)).zip(&scales);
                groups
                    .flat_map(|(quants, [scale, minimum])| {
                        // Rounded once.
                        quants
                            .iter()
                            .map(|quant| f32::from(*quant).mul_add(*scale, *minimum))
                    })
                    .collect()
            }
        }
    }
}

/// The first half of the values is in the low nibbles, the second in the high ones.
fn nibbles(bytes: &[u8], quants: &mut [u8]) {
    let (low, high) = quants.split_at_mut(16);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// The scale and the minimum of a group, six bits each, in the twelve bytes of eight groups.
fn packed_scales(packed: &[u8], group: usize) -> [f32; 2] {
    let (scale, minimum) = match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        _ => (
            packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
            packed[group + 4] >> 4 | packed[group] >> 6 << 4,
        ),
    };
    [scale, minimum].map(f32::from)
}
