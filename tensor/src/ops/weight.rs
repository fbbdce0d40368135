//! The matrices of products: frozen ones in 4 to 32 bits, split by rows if they exceed a binding; trained ones; and the
//! operands of a launch, which are views of their buffers.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::gpu::{Bind, Binding};
use crate::{Gpu, GpuError, Tensor};

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
    fn bits(self) -> usize {
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
    fn stripe(self) -> usize {
        self.group().map_or(self.bits() / 2, |_| 16)
    }

    /// The bytes of a row, a multiple of 16.
    fn row_bytes(self, cols: usize) -> usize {
        match self.group() {
            None => cols.next_multiple_of(8).max(8) * self.bits() / 8,
            Some(group) => cols.div_ceil(CHUNK) * CHUNK / group * 4 + cols * self.bits() / 8,
        }
    }

    /// Returns an error if a finite value would round to infinity. `first` is the number of the first row.
    fn check(self, values: &[f32], cols: usize, first: usize) -> Result<(), OutOfRange> {
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
    fn encode(self, values: &[f32], to: &mut [u8]) {
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
    fn encode_quants(self, quants: &[u8], scales: &[[f32; 2]], to: &mut [u8]) {
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
    fn decode(self, row: &[u8], cols: usize) -> Vec<f32> {
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

/// Rows of a matrix that is uploaded.
pub enum WeightRows<'a> {
    /// The values.
    Values(Cow<'a, [f32]>),
    /// For a quantised format: a quant for each value, and scale and minimum of each [group](WeightFormat::group).
    Quants(Vec<u8>, Vec<[f32; 2]>),
}

impl<'a> From<Cow<'a, [f32]>> for WeightRows<'a> {
    fn from(values: Cow<'a, [f32]>) -> WeightRows<'a> {
        WeightRows::Values(values)
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

/// A frozen matrix (N rows, K columns) without a gradient. Cheap to clone.
///
/// Rows are padded with zeros to a multiple of eight elements and split into shards that fit into a binding. Those of quantised
/// formats are not padded.
#[derive(Clone)]
pub struct Weight(Arc<WeightInner>);

struct WeightInner {
    rows: usize,
    cols: usize,
    format: WeightFormat,
    shards: Vec<Shard>,
}

/// Consecutive rows in one buffer or texture.
struct Shard {
    rows: Range<usize>,
    binding: Binding,
}

/// Numbers of a row from which a matrix is in a texture on a processor. Shorter rows mean small products, in which copying the
/// other factor takes too long.
const TEXTURE_COLS: usize = 512;

/// Rows of a matrix in a texture that are interleaved: four numbers of each, or 16 bytes of quantised ones, then the next of each.
/// Each shard has a multiple of that, the last ones zeros. shaders/weight_texture.wgsl has the same number.
const INTERLEAVED: usize = 32;

/// The bytes of the largest texture for a matrix with rows of `cols`; `None` if it belongs in a buffer.
fn texture_for(gpu: &Gpu, cols: usize) -> Option<u64> {
    let is_long = cols >= TEXTURE_COLS;
    #[cfg(test)]
    let is_long = tests::FORCED.get().unwrap_or(is_long);
    gpu.max_texture().filter(|_| is_long)
}

/// Interleaves the rows of each group of `group` bytes in stripes of `stripe` bytes. The same with the stripes of a group that
/// lie together as rows restores the order.
fn interleave(bytes: &mut [u8], group: usize, row_bytes: usize, stripe: usize) {
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

/// Elements of an upload block.
const UPLOAD_BLOCK: usize = 1 << 20;

impl Weight {
    /// Copies a matrix to the device, rounding to the nearest value of the format.
    ///
    /// # Panics
    /// If the number of values is not rows · cols, or a value is beyond the range of the format.
    #[track_caller]
    pub fn from_f32(
        gpu: &Gpu,
        values: &[f32],
        rows: usize,
        cols: usize,
        format: WeightFormat,
    ) -> Weight {
        assert!(
            values.len() == rows * cols,
            "from_f32: {} values for the shape [{rows}, {cols}] ({})",
            values.len(),
            rows * cols
        );
        let read = |r: Range<usize>| Ok(Cow::Borrowed(&values[r.start * cols..r.end * cols]));
        Weight::upload(gpu, rows, cols, format, read)
            .unwrap_or_else(|e: OutOfRange| panic!("from_f32: {e}"))
    }

    /// Copies a matrix to the device by blocks of rows. `read` returns a range of rows. Values are rounded to the nearest of
    /// the format.
    ///
    /// # Errors
    /// Those of `read`, and if a finite value is beyond the range of the format.
    ///
    /// # Panics
    /// If the format is quantised and the columns are not a multiple of 32.
    #[track_caller]
    pub fn upload<'a, R: Into<WeightRows<'a>>, E: From<OutOfRange>>(
        gpu: &Gpu,
        rows: usize,
        cols: usize,
        format: WeightFormat,
        mut read: impl FnMut(Range<usize>) -> Result<R, E>,
    ) -> Result<Weight, E> {
        assert!(
            format.group().is_none() || cols.is_multiple_of(32),
            "upload: {cols} columns in {format:?}, wanted a multiple of 32"
        );
        let row_bytes = format.row_bytes(cols);
        let texture = texture_for(gpu, cols);
        let most = gpu.caps().max_binding.min(texture.unwrap_or(u64::MAX));
        // A multiple of eight, so that sums over rows continue at a multiple of four in the next shard.
        let interleaved = if texture.is_some() { INTERLEAVED } else { 1 };
        let unit = interleaved.max(8);
        let most = (most as usize / row_bytes / unit * unit).max(unit);
        let block = (UPLOAD_BLOCK / cols.max(1))
            .max(1)
            .next_multiple_of(interleaved);
        let mut shards = Vec::new();
        for first in (0..rows).step_by(most) {
            let rows = first..rows.min(first + most);
            let bytes = (rows.len().next_multiple_of(interleaved) * row_bytes) as u64;
            let binding = match texture {
                Some(_) => gpu.alloc_texture(bytes),
                None => gpu.alloc(bytes),
            };
            for start in rows.clone().step_by(block) {
                let end = rows.end.min(start + block);
                let mut bytes = vec![0; (end - start).next_multiple_of(interleaved) * row_bytes];
                let padded = bytes.chunks_exact_mut(row_bytes.max(1));
                match (read(start..end)?.into(), format.group()) {
                    (WeightRows::Values(values), group) => {
                        format.check(&values, cols, start)?;
                        for (row, to) in values.chunks_exact(cols.max(1)).zip(padded) {
                            let used = group.map_or(cols * format.bits() / 8, |_| row_bytes);
                            format.encode(row, &mut to[..used]);
                        }
                    }
                    (WeightRows::Quants(quants, scales), Some(group)) => {
                        format.check(scales.as_flattened(), cols / group * 2, start)?;
                        let rows = quants
                            .chunks_exact(cols)
                            .zip(scales.chunks_exact(cols / group));
                        for ((quants, scales), to) in rows.zip(padded) {
                            format.encode_quants(quants, scales, to);
                        }
                    }
                    (WeightRows::Quants(..), None) => panic!("upload: quants for {format:?}"),
                }
                if texture.is_some() {
                    let group = interleaved * row_bytes;
                    interleave(&mut bytes, group, row_bytes, format.stripe());
                }
                binding.write(((start - first) * row_bytes) as u64, &bytes);
            }
            shards.push(Shard { rows, binding });
        }
        Ok(Weight(Arc::new(WeightInner {
            rows,
            cols,
            format,
            shards,
        })))
    }

    /// Returns the bytes of a matrix on a device.
    pub fn device_bytes(rows: usize, cols: usize, format: WeightFormat) -> u64 {
        (rows * format.row_bytes(cols)) as u64
    }

    /// The number of rows, N.
    pub(crate) fn rows(&self) -> usize {
        self.0.rows
    }

    /// The number of columns, K.
    pub(crate) fn cols(&self) -> usize {
        self.0.cols
    }

    /// The storage format.
    pub fn format(&self) -> WeightFormat {
        self.0.format
    }

    /// Waits for the values and copies them to the host, without the padding.
    ///
    /// # Errors
    /// An error of the device.
    pub fn to_vec(&self) -> Result<Vec<f32>, GpuError> {
        let (cols, format) = (self.cols(), self.format());
        let mut values = Vec::with_capacity(self.rows() * cols);
        for shard in &self.0.shards {
            let mut bytes: Vec<u8> = shard.binding.read()?;
            let row_bytes = format.row_bytes(cols);
            if shard.binding.is_texture() {
                let (group, stripe) = (INTERLEAVED * row_bytes, format.stripe());
                interleave(&mut bytes, group, INTERLEAVED * stripe, stripe);
            }
            let rows = bytes.chunks_exact(row_bytes).take(shard.rows.len());
            values.extend(rows.flat_map(|row| format.decode(row, cols)));
        }
        Ok(values)
    }

    /// Distance of two stored rows, in units of the format.
    fn step(&self) -> usize {
        self.format().row_bytes(self.cols()) / self.format().unit()
    }
}

impl std::fmt::Debug for Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rows, cols) = (self.rows(), self.cols());
        write!(f, "Weight[{rows}, {cols}] {:?}", self.format())
    }
}

/// Rows of a matrix in one buffer, or columns of them.
#[derive(Clone)]
pub(crate) struct Operand {
    pub(crate) binding: Binding,
    /// the numbers of the rows in the matrix
    pub(crate) rows: Range<usize>,
    pub(crate) cols: usize,
    /// the offset of the first element and the distance of two rows, in units of the format
    pub(crate) at: usize,
    pub(crate) step: usize,
    pub(crate) format: WeightFormat,
}

impl Operand {
    /// The whole tensor.
    pub(crate) fn of(x: &Tensor) -> Operand {
        Operand::rows_of(x, 0..x.rows())
    }

    pub(crate) fn rows_of(x: &Tensor, rows: Range<usize>) -> Operand {
        Operand {
            binding: x.binding().clone(),
            cols: x.cols(),
            at: rows.start * x.cols(),
            step: x.cols(),
            format: WeightFormat::F32,
            rows,
        }
    }

    pub(crate) fn cols_of(x: &Tensor, cols: Range<usize>) -> Operand {
        Operand {
            at: cols.start,
            cols: cols.len(),
            ..Operand::of(x)
        }
    }

    /// The same rows, with the buffer of a tensor that starts where this one does.
    pub(crate) fn within(self, all: &Tensor) -> Operand {
        Operand {
            binding: all.binding().clone(),
            ..self
        }
    }

    /// The place of the first element of its binding in what a kernel sees.
    pub(crate) fn seen_at(&self) -> usize {
        self.binding.seen_at() as usize / self.format.unit()
    }

    /// Whether its rows can be read as vectors of four.
    pub(crate) fn is_wide(&self) -> bool {
        self.format.group().is_some() || (self.at.is_multiple_of(4) && self.step.is_multiple_of(4))
    }
}

/// The matrix of a linear layer, (N, K).
#[derive(Debug, Clone)]
pub enum Matrix {
    /// 4 to 32 bits a number, without a gradient.
    Frozen(Weight),
    /// A tensor, with a gradient if it is tracked.
    Trained(Tensor),
}

impl Matrix {
    /// The number of rows, N.
    pub fn rows(&self) -> usize {
        match self {
            Matrix::Frozen(weight) => weight.rows(),
            Matrix::Trained(tensor) => tensor.rows(),
        }
    }

    /// The number of columns, K.
    pub(crate) fn cols(&self) -> usize {
        match self {
            Matrix::Frozen(weight) => weight.cols(),
            Matrix::Trained(tensor) => tensor.cols(),
        }
    }

    /// The tensor of a trained matrix, which is an input on the tape.
    pub(crate) fn trained(&self) -> Option<&Tensor> {
        match self {
            Matrix::Frozen(_) => None,
            Matrix::Trained(tensor) => Some(tensor),
        }
    }

    /// Copies frozen matrices into one buffer, so that [`Tensor::linears`] computes their products at once; `None` if one of
    /// them is trained or they are too large for one binding.
    pub fn together(matrices: Vec<Matrix>) -> Option<Vec<Matrix>> {
        let frozen = |matrix: &Matrix| match matrix {
            Matrix::Frozen(weight) if weight.0.shards.len() == 1 => Some(weight.clone()),
            _ => None,
        };
        let weights: Vec<Weight> = matrices.iter().map(frozen).collect::<Option<_>>()?;
        let bindings: Vec<&Binding> = weights.iter().map(|w| &w.0.shards[0].binding).collect();
        let copies = Binding::together(&bindings)?;
        let copy = |(weight, binding): (&Weight, Binding)| {
            let WeightInner {
                rows, cols, format, ..
            } = *weight.0;
            let shards = vec![Shard {
                rows: 0..rows,
                binding,
            }];
            Matrix::Frozen(Weight(Arc::new(WeightInner {
                rows,
                cols,
                format,
                shards,
            })))
        };
        Some(weights.iter().zip(copies).map(copy).collect())
    }

    /// The same matrix without a gradient.
    pub fn detach(&self) -> Matrix {
        match self {
            Matrix::Frozen(weight) => Matrix::Frozen(weight.clone()),
            Matrix::Trained(tensor) => Matrix::Trained(tensor.detach()),
        }
    }

    /// The buffers or textures that hold these rows.
    pub(crate) fn pieces(&self, rows: Range<usize>) -> Vec<Operand> {
        match self {
            Matrix::Frozen(weight) => {
                let overlap = |shard: &Shard| {
                    let start = shard.rows.start.max(rows.start);
                    let end = shard.rows.end.min(rows.end);
                    let is_first = (start - shard.rows.start).is_multiple_of(INTERLEAVED);
                    assert!(
                        is_first || start >= end || !shard.binding.is_texture(),
                        "pieces: row {start}"
                    );
                    (start < end).then(|| Operand {
                        binding: shard.binding.clone(),
                        rows: start..end,
                        cols: weight.cols(),
                        at: (start - shard.rows.start) * weight.step(),
                        step: weight.step(),
                        format: weight.format(),
                    })
                };
                weight.0.shards.iter().filter_map(overlap).collect()
            }
            Matrix::Trained(tensor) => vec![Operand::rows_of(tensor, rows)],
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
