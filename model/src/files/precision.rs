//! The precision of a model's weights on the device.

/// The precision of matrices on the device. Vectors (norms, biases) are always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As stored, except that a bf16 matrix becomes f16 if f16 is as precise for it: no value is too large for f16, and no row
    /// consists of values so small that f16 has fewer bits.
    Auto,
    /// As stored, bit for bit.
    Stored,
}

/// A summary of a loaded model.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Numbers in the model.
    pub parameters: u64,
    /// Matrices in each [`WeightFormat`](lapwing_tensor::WeightFormat), in its order.
    pub matrices: [usize; 6],
    /// Names of matrices that are in bf16 because their values are too large or too small for f16.
    pub out_of_f16_range: Vec<String>,
    /// Names of tensors in the files that the architecture does not have.
    pub ignored: Vec<String>,
}
