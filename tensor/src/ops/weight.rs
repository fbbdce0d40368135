//! The matrices of products: frozen ones in 4 to 32 bits, split by rows if they exceed a binding; trained ones; and the
//! operands of a launch, which are views of their buffers.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::gpu::{Bind, Binding};
use crate::{Gpu, GpuError, Tensor};

mod format;

use format::interleave;
pub use format::{OutOfRange, WeightFormat};

/// Rows of a matrix that is uploaded.
#[derive(Debug)]
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
