//! Conversion of numbers between f32 and the floats of files.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use safetensors::Dtype;

/// Converts little-endian floats of F16, BF16, F32 or F64. Stored tensors need not be aligned.
pub(crate) fn to_f32(bytes: &[u8], dtype: Dtype) -> Vec<f32> {
    fn convert<const N: usize, T>(bytes: &[u8], one: impl Fn([u8; N]) -> T) -> Vec<T> {
        let pieces = bytes.as_chunks::<N>().0;
        pieces.iter().map(|piece| one(*piece)).collect()
    }
    match dtype {
        Dtype::F16 => {
            let stored = convert(bytes, f16::from_le_bytes);
            let mut values = vec![0.0; stored.len()];
            // Uses the processor's own instruction where it has one.
            stored.convert_to_f32_slice(&mut values);
            values
        }
        Dtype::BF16 => convert(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F32 => convert(bytes, f32::from_le_bytes),
        Dtype::F64 => convert(bytes, |b| f64::from_le_bytes(b) as f32),
        other => unreachable!("{other:?} is refused before"),
    }
}

/// Converts values to a type; `None` if a value is not finite in it.
pub(crate) fn from_f32(values: &[f32], dtype: Dtype) -> Option<Vec<u8>> {
    let values = values.iter();
    let bytes: Vec<u8> = match dtype {
        Dtype::F16 => values
            .flat_map(|&x| f16::from_f32(x).to_le_bytes())
            .collect(),
        Dtype::BF16 => values
            .flat_map(|&x| bf16::from_f32(x).to_le_bytes())
            .collect(),
        Dtype::F64 => values.flat_map(|&x| f64::from(x).to_le_bytes()).collect(),
        _ => values.flat_map(|&x| x.to_le_bytes()).collect(),
    };
    let is_finite = to_f32(&bytes, dtype).iter().all(|x| x.is_finite());
    is_finite.then_some(bytes)
}
