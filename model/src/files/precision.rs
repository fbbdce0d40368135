//! In how many bits a model is held: what is asked for, and what came of it.

/// In how many bits matrices are held on the device. Vectors (norms, biases) are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// As stored, except that bf16 becomes f16 wherever that loses nothing to speak of: no value of a matrix is too large
    /// for f16, and no row is made of values so small that f16 is the coarser one.
    #[default]
    Auto,
    /// As stored, to the bit: what a model that is trained whole is held against.
    Stored,
    /// 32 bits.
    F32,
    /// f16; a matrix with values out of its range is held in bf16.
    F16,
    /// bf16.
    Bf16,
}

/// How to load a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// In how many bits matrices are held.
    pub precision: Precision,
}

/// What was loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Numbers in the model.
    pub parameters: u64,
    /// Matrices held in 32 bits, in f16 and in bf16.
    pub matrices: [usize; 3],
    /// Names of matrices that f16 could not hold, being too large or too small, and that are therefore in bf16.
    pub out_of_f16_range: Vec<String>,
    /// Names of tensors in the files that this architecture has no place for.
    pub ignored: Vec<String>,
}
