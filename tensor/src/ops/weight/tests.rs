use super::*;
use crate::ops::matmul::tests::with_each_variant;
use crate::testing::{gpu, narrow};
use proptest::prelude::*;

thread_local! {
    /// Whether matrices on this thread are in textures.
    pub(in crate::ops) static FORCED: std::cell::Cell<Option<bool>> = const { std::cell::Cell::new(None) };
}

/// Values that are exact in both 16-bit formats: seven significant bits, in the normal range of f16.
fn representable() -> impl Strategy<Value = f32> {
    (-64i32..64, -8i32..8).prop_map(|(n, e)| n as f32 * f32::powi(2.0, e))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn representable_values_come_back_as_they_were(
        rows in 1usize..9, cols in 1usize..20, values in prop::collection::vec(representable(), 200),
    ) {
        let values = &values[..rows * cols];
        for format in [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16] {
            let weight = Weight::from_f32(&gpu(), values, rows, cols, format);
            prop_assert_eq!(&weight.to_vec().unwrap(), values);
            // The kernels read the same values.
            let mut eye = vec![0.0; cols * cols];
            (0..cols).for_each(|i| eye[i * (cols + 1)] = 1.0);
            let eye = Tensor::from_slice(&gpu(), &eye, &[cols, cols]);
            with_each_variant(|_| {
                let matrix = Matrix::Frozen(Weight::from_f32(&gpu(), values, rows, cols, format));
                let transposed = eye.linear(&matrix, None, None, None).to_vec().unwrap();
                let columns: Vec<f32> = (0..rows * cols).map(|i| values[i % rows * cols + i / rows]).collect();
                assert_eq!(transposed, columns);
                // Seven bits and a spread of 2^15 fit into 24 bits, so these sums are exact.
                let x = Tensor::zeros(&gpu(), &[1, cols]).tracked();
                let y = x.linear(&matrix, None, None, None).sum();
                let sums = y.backward().get(&x).unwrap().to_vec().unwrap();
                let wanted: Vec<f32> =
                    (0..cols).map(|j| (0..rows).map(|i| values[i * cols + j]).sum()).collect();
                assert_eq!(sums, wanted);
            });
        }
    }
}

#[test]
fn rows_that_exceed_a_binding_are_split() {
    let values: Vec<f32> = (0..50 * 17).map(|i| i as f32).collect();
    // A row has 24 numbers of 2 bytes, so a shard has 21 rows, rounded down to 16.
    let weight = Weight::from_f32(&narrow(1024), &values, 50, 17, WeightFormat::F16);
    let rows: Vec<_> = weight.0.shards.iter().map(|s| s.rows.clone()).collect();
    assert_eq!(rows, [0..16, 16..32, 32..48, 48..50]);
    assert_eq!(weight.to_vec().unwrap(), values);
}

#[test]
fn a_value_beyond_f16_is_an_error_that_says_where() {
    let values = [1.0, 2.0, 3.0, 70000.0];
    let upload = |format| -> Result<Weight, OutOfRange> {
        let read = |rows: Range<usize>| Ok(Cow::Borrowed(&values[rows.start * 2..rows.end * 2]));
        Weight::upload(&gpu(), 2, 2, format, read)
    };
    let error = upload(WeightFormat::F16).unwrap_err();
    assert_eq!(
        error.to_string(),
        "70000 at row 1, column 1 is beyond the range of F16; store the matrix as Bf16 or F32"
    );
    assert!(upload(WeightFormat::Bf16).is_ok());
}

/// A value that rounds to the largest number is accepted, one that rounds to infinity is refused.
#[test]
fn the_edge_of_a_range_is_where_rounding_leaves_it() {
    let largest = [65_504.0f32, f32::from_bits(0x7f7f_0000)];
    let edges = [65_520.0f32, f32::from_bits(0x7f7f_8000)];
    for (i, format) in [WeightFormat::F16, WeightFormat::Bf16]
        .into_iter()
        .enumerate()
    {
        let upload = |value: f32| -> Result<Weight, OutOfRange> {
            Weight::upload(&gpu(), 1, 1, format, |_| Ok(Cow::Owned(vec![value])))
        };
        for sign in [1.0, -1.0] {
            let just_below = f32::from_bits(edges[i].to_bits() - 1);
            let kept = upload(sign * just_below).unwrap().to_vec().unwrap();
            assert_eq!(kept, [sign * largest[i]]);
            assert_eq!(upload(sign * edges[i]).unwrap_err().value, sign * edges[i]);
        }
    }
}

/// Values that a format holds exactly: the smallest and the largest of a group are, and rounding is to the nearest of equal
/// steps between them.
#[test]
fn quantised_values_are_the_nearest() {
    let gpu = gpu();
    let values: Vec<f32> = (0..2 * 288)
        .map(|i| ((i * 37) % 101) as f32 / 64.0 - 0.5)
        .collect();
    for (format, group, steps) in [
        (WeightFormat::Q4, 32, 15.0),
        (WeightFormat::Q8, 32, 255.0),
        (WeightFormat::Q8Short, 16, 255.0),
    ] {
        let weight = Weight::from_f32(&gpu, &values, 2, 288, format);
        let held = weight.to_vec().unwrap();
        assert_eq!(held, format.rounded(&values, 288));
        for (held, values) in held.chunks(group).zip(values.chunks(group)) {
            let bound = |pick: fn(f32, f32) -> f32| values.iter().copied().reduce(pick).unwrap();
            let spread = bound(f32::max) - bound(f32::min);
            // Half a step, and the rounding of scale and minimum to 11 bits.
            let allowed = spread * (0.5 / steps + 1.0 / 1024.0) + 1.0 / 4096.0;
            for (held, value) in held.iter().zip(values) {
                assert!(
                    (held - value).abs() <= allowed,
                    "{format:?}: {value} became {held}"
                );
            }
        }
        let bits = 8 * Weight::device_bytes(2, 256, format) / 512;
        assert_eq!(
            bits,
            if format == WeightFormat::Q4 {
                5
            } else {
                8 + 32 / group as u64
            }
        );
    }
}

#[test]
#[should_panic(expected = "upload: 33 columns in Q4, wanted a multiple of 32")]
fn a_quantised_row_has_whole_groups() {
    Weight::from_f32(&gpu(), &[0.0; 33], 1, 33, WeightFormat::Q4);
}
