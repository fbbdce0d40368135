//! The formats of frozen matrices: how their rows are encoded, checked, decoded and interleaved.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The storage format of a frozen matrix. Arithmetic is always in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// 32 bits.
    F32,
    /// 16 bits: 11 significant bits, magnitudes from 6e-5 to 65,504.
    F16,
    /// 16 bits: 8 significant bits, the range of f32.
    Bf16,
    /// 4 bits, and a scale and a minimum in 16 bits each for every 32 values of a row: 5 bits a value.
    Q4,
    /// 8 bits, and a scale and a minimum for every 32 values: 9 bits a value.
    Q8,
    /// 8 bits, and a scale and a minimum for every 16 values: 10 bits a value.
    Q8Short,
}

/// Values of a quantised row that are stored together: the scales and minima of their groups, then their quants.
const CHUNK: usize = 256;

impl WeightFormat {
    /// Every format.
    pub(crate) const ALL: [WeightFormat; 6] = {
        use WeightFormat::*;
        [F32, F16, Bf16, Q4, Q8, Q8Short]
    };

    /// The values that share a scale and a minimum; `None` if the format is not quantised. The columns of a quantised matrix are
    /// a multiple of 32.
    pub fn group(self) -> Option<usize> {
        match self {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => None,
            WeightFormat::Q4 | WeightFormat::Q8 => Some(32),
            WeightFormat::Q8Short => Some(16),
        }
    }

    /// Bits of a value without scales.
    pub(super) fn bits(self) -> usize {
        match self {
            WeightFormat::F32 => 32,
            WeightFormat::F16 | WeightFormat::Bf16 => 16,
            WeightFormat::Q8 | WeightFormat::Q8Short => 8,
            WeightFormat::Q4 => 4,
        }
    }

    /// The unit of places in a buffer, in bytes: a number, or four words of quantised ones.
    pub(crate) fn unit(self) -> usize {
        self.group().map_or(self.bits() / 8, |_| 16)
    }

    /// The bytes of an interleaved row that lie together.
    pub(super) fn stripe(self) -> usize {
        self.group().map_or(self.bits() / 2, |_| 16)
    }

    /// The bytes of a row, a multiple of 16.
    pub(super) fn row_bytes(self, cols: usize) -> usize {
        match self.group() {
            None => cols.next_multiple_of(8).max(8) * self.bits() / 8,
            Some(group) => cols.div_ceil(CHUNK) * CHUNK / group * 4 + cols * self.bits() / 8,
        }
    }

    /// Returns an error if a finite value would round to infinity. `first` is the number of the first row.
    pub(super) fn check(self, values: &[f32], cols: usize, first: usize) -> Result<(), OutOfRange> {
        // Values from the middle between the largest number and its successor on round to infinity.
        let beyond = match self {
            WeightFormat::F32 => return Ok(()),
            WeightFormat::Bf16 => f32::from_bits(0x7f7f_8000),
            // Scales and minima have 16 bits, too.
            _ => 65_520f32,
        };
        let out = |x: f32| x.is_finite() && x.abs() >= beyond;
        // Without an early exit this loop is several times as fast.
        if !values.iter().fold(false, |any, x| any | out(*x)) {
            return Ok(());
        }
        let at = values.iter().position(|x| out(*x)).expect("there is one");
        Err(OutOfRange {
            value: values[at],
            row: first + at / cols,
            column: at % cols,
            format: self,
        })
    }

    /// Writes a row as little-endian bytes.
    pub(super) fn encode(self, values: &[f32], to: &mut [u8]) {
        match self {
            WeightFormat::F32 => to.copy_from_slice(bytemuck::cast_slice(values)),
            // Uses the instruction of the processor for eight values, if there is one.
            WeightFormat::F16 => {
                let mut bits = vec![f16::ZERO; values.len()];
                bits.convert_from_f32_slice(values);
                to.copy_from_slice(bytemuck::cast_slice(&bits));
            }
            WeightFormat::Bf16 => {
                let mut bits = vec![bf16::ZERO; values.len()];
                bits.convert_from_f32_slice(values);
                to.copy_from_slice(bytemuck::cast_slice(&bits));
            }
            WeightFormat::Q4 | WeightFormat::Q8 | WeightFormat::Q8Short => {
                let (quants, scales) = self.quantise(values);
                self.encode_quants(&quants, &scales, to);
            }
        }
    }

    /// Rounds each value to the nearest of 16 or 256 at equal distances, from the smallest of its group to the largest.
    fn quantise(self, values: &[f32]) -> (Vec<u8>, Vec<[f32; 2]>) {
        let largest = ((1 << self.bits()) - 1) as f32;
        let mut quants = Vec::with_capacity(values.len());
        let groups = values.chunks_exact(self.group().expect("a quantised format"));
        let scales = groups.map(|group| {
            let bound = |pick: fn(f32, f32) -> f32| group.iter().copied().fold(group[0], pick);
            let rounded = |x: f32| f16::from_f32(x).to_f32();
            let minimum = rounded(bound(f32::min));
            let scale = rounded((bound(f32::max) - minimum) / largest);
            let quant = |x: &f32| match scale > 0.0 {
                true => ((x - minimum) / scale).round().clamp(0.0, largest) as u8,
                false => 0,
            };
            quants.extend(group.iter().map(quant));
            [scale, minimum]
        });
        let scales = scales.collect();
        (quants, scales)
    }

    /// Writes a quantised row: for each chunk its scales and minima, then its quants.
    pub(super) fn encode_quants(self, quants: &[u8], scales: &[[f32; 2]], to: &mut [u8]) {
        let group = self.group().expect("a quantised format");
        let chunks = quants.chunks(CHUNK).zip(scales.chunks(CHUNK / group));
        let full = CHUNK / group * 4 + CHUNK * self.bits() / 8;
        for ((quants, scales), to) in chunks.zip(to.chunks_mut(full)) {
            let (head, body) = to.split_at_mut(CHUNK / group * 4);
            let halves = scales.as_flattened().iter();
            for (half, to) in halves.zip(head.as_chunks_mut().0) {
                *to = f16::from_f32(*half).to_le_bytes();
            }
            match self.bits() {
                8 => body.copy_from_slice(quants),
                _ => {
                    for (pair, to) in quants.as_chunks::<2>().0.iter().zip(body) {
                        *to = pair[0] | pair[1] << 4;
                    }
                }
            }
        }
    }

    /// The values of rows as the format holds them.
    pub(crate) fn rounded(self, values: &[f32], cols: usize) -> Vec<f32> {
        let mut row = vec![0; self.row_bytes(cols)];
        let rows = values.chunks_exact(cols);
        rows.flat_map(|values| {
            let used = self.group().map_or(cols * self.bits() / 8, |_| row.len());
            self.encode(values, &mut row[..used]);
            self.decode(&row, cols)
        })
        .collect()
    }

    /// Reads the values of a row, of which there are `cols`.
    pub(super) fn decode(self, row: &[u8], cols: usize) -> Vec<f32> {
        let halves = || row.as_chunks::<2>().0.iter().take(cols);
        match self {
            WeightFormat::F32 => {
                let words = row.as_chunks::<4>().0.iter().take(cols);
                words.map(|word| f32::from_le_bytes(*word)).collect()
            }
            WeightFormat::F16 => halves()
                .map(|half| f16::from_le_bytes(*half).to_f32())
                .collect(),
            WeightFormat::Bf16 => halves()
                .map(|half| bf16::from_le_bytes(*half).to_f32())
                .collect(),
            WeightFormat::Q4 | WeightFormat::Q8 | WeightFormat::Q8Short => {
                let (group, bits) = (self.group().expect("quantised"), self.bits());
                let head = CHUNK / group * 4;
                let value = |at: usize| {
                    let (chunk, at) = (&row[at / CHUNK * (head + CHUNK * bits / 8)..], at % CHUNK);
                    let pair = &chunk[at / group * 4..];
                    let half = |i: usize| f16::from_le_bytes([pair[i], pair[i + 1]]).to_f32();
                    let byte = chunk[head + at * bits / 8];
                    let quant = if bits == 4 {
                        byte >> (at % 2 * 4) & 15
                    } else {
                        byte
                    };
                    f32::from(quant) * half(0) + half(2)
                };
                (0..cols).map(value).collect()
            }
        }
    }
}

/// A value beyond the range of the format.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "{value} at row {row}, column {column} is beyond the range of {format:?}; store the matrix as Bf16 or F32"
)]
pub struct OutOfRange {
    /// The value.
    pub value: f32,
    /// Its row.
    pub row: usize,
    /// Its column.
    pub column: usize,
    /// The format.
    pub format: WeightFormat,
}

/// Interleaves the rows of each group of `group` bytes in stripes of `stripe` bytes. The same with the stripes of a group that
/// lie together as rows restores the order.
pub(super) fn interleave(bytes: &mut [u8], group: usize, row_bytes: usize, stripe: usize) {
    let mut interleaved = vec![0; group];
    for rows in bytes.chunks_exact_mut(group) {
        for (r, row) in rows.chunks_exact(row_bytes).enumerate() {
            let places = interleaved[r * stripe..].chunks_mut(group / row_bytes * stripe);
            for (to, some) in places.zip(row.chunks_exact(stripe)) {
                to[..stripe].copy_from_slice(some);
            }
        }
        rows.copy_from_slice(&interleaved);
    }
}
