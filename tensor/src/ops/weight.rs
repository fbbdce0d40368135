//! The matrices of products: frozen ones in 16 or 32 bits, split by rows if they exceed a binding; trained ones; and the
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
}

impl WeightFormat {
    pub(crate) fn bytes(self) -> usize {
        match self {
            WeightFormat::F32 => 4,
            WeightFormat::F16 | WeightFormat::Bf16 => 2,
        }
    }

    /// Returns an error if a finite value would round to infinity. `first` is the number of the first row.
    fn check(self, values: &[f32], cols: usize, first: usize) -> Result<(), OutOfRange> {
        // Values from the middle between the largest number and its successor on round to infinity.
        let beyond = match self {
            WeightFormat::F32 => return Ok(()),
            WeightFormat::F16 => 65_520f32,
            WeightFormat::Bf16 => f32::from_bits(0x7f7f_8000),
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

    /// Writes values as little-endian bytes.
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
        }
    }

    fn value(self, bits: u16) -> f32 {
        match self {
            WeightFormat::Bf16 => bf16::from_bits(bits).to_f32(),
            _ => f16::from_bits(bits).to_f32(),
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

/// A frozen matrix (N rows, K columns) without a gradient. Cheap to clone.
///
/// Rows are padded with zeros to a multiple of eight elements and split into shards that fit into a binding.
#[derive(Clone)]
pub struct Weight(Arc<WeightInner>);

struct WeightInner {
    rows: usize,
    cols: usize,
    format: WeightFormat,
    shards: Vec<Shard>,
}

/// Consecutive rows in one buffer.
struct Shard {
    rows: Range<usize>,
    binding: Binding,
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
        let read = |r: Range<usize>| Cow::Borrowed(&values[r.start * cols..r.end * cols]);
        Weight::upload(gpu, rows, cols, format, read).unwrap_or_else(|e| panic!("from_f32: {e}"))
    }

    /// Copies a matrix to the device by blocks of rows. `read` returns the values of a range of rows.
    ///
    /// # Errors
    /// If a finite value is beyond the range of the format.
    pub fn upload<'a>(
        gpu: &Gpu,
        rows: usize,
        cols: usize,
        format: WeightFormat,
        mut read: impl FnMut(Range<usize>) -> Cow<'a, [f32]>,
    ) -> Result<Weight, OutOfRange> {
        let row_bytes = row_bytes(cols, format);
        // A multiple of eight, so that sums over rows continue at a multiple of four in the next shard.
        let most = (gpu.caps().max_binding as usize / row_bytes / 8 * 8).max(8);
        let block = (UPLOAD_BLOCK / cols.max(1)).max(1);
        let mut shards = Vec::new();
        for first in (0..rows).step_by(most) {
            let rows = first..rows.min(first + most);
            let binding = gpu.alloc((rows.len() * row_bytes) as u64);
            for start in rows.clone().step_by(block) {
                let end = rows.end.min(start + block);
                let values = read(start..end);
                format.check(&values, cols, start)?;
                let mut bytes = vec![0; (end - start) * row_bytes];
                let padded = bytes.chunks_exact_mut(row_bytes);
                for (row, to) in values.chunks_exact(cols.max(1)).zip(padded) {
                    format.encode(row, &mut to[..cols * format.bytes()]);
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
        (rows * row_bytes(cols, format)) as u64
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
        let (cols, step) = (self.cols(), self.step());
        let mut values = Vec::with_capacity(self.rows() * cols);
        for shard in &self.0.shards {
            if self.format() == WeightFormat::F32 {
                let padded: Vec<f32> = shard.binding.read()?;
                values.extend(padded.chunks_exact(step).flat_map(|row| &row[..cols]));
            } else {
                let padded: Vec<u16> = shard.binding.read()?;
                let rows = padded.chunks_exact(step).flat_map(|row| &row[..cols]);
                values.extend(rows.map(|bits| self.format().value(*bits)));
            }
        }
        Ok(values)
    }

    /// Distance of two stored rows, in elements.
    fn step(&self) -> usize {
        self.cols().next_multiple_of(8)
    }
}

fn row_bytes(cols: usize, format: WeightFormat) -> usize {
    cols.next_multiple_of(8).max(8) * format.bytes()
}

impl std::fmt::Debug for Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rows, cols) = (self.rows(), self.cols());
        write!(f, "Weight[{rows}, {cols}] {:?}", self.format())
    }
}

/// Rows of a matrix in one buffer, or columns of them.
pub(crate) struct Operand {
    pub(crate) binding: Binding,
    /// the numbers of the rows in the matrix
    pub(crate) rows: Range<usize>,
    pub(crate) cols: usize,
    /// the offset of the first element and the distance of two rows, in elements
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

    /// Whether its rows can be read as vectors of four.
    pub(crate) fn is_wide(&self) -> bool {
        self.at.is_multiple_of(4) && self.step.is_multiple_of(4)
    }
}

/// The matrix of a linear layer, (N, K).
#[derive(Debug, Clone)]
pub enum Matrix {
    /// 16 or 32 bits, without a gradient.
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

    /// The buffers that hold these rows.
    pub(crate) fn pieces(&self, rows: Range<usize>) -> Vec<Operand> {
        match self {
            Matrix::Frozen(weight) => {
                let overlap = |shard: &Shard| {
                    let start = shard.rows.start.max(rows.start);
                    let end = shard.rows.end.min(rows.end);
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
mod tests;
