//! Fits a curve with the tensor library alone: `cargo run --release -p lapwing-tensor --example regression`.
use lapwing_tensor::{AdamW, Gpu, GpuError, GpuOptions, Parameters, Tensor};

/// Fits y = a x^2 + b to the points of y = 2 x^2 - 1, and returns a and b.
pub fn fit() -> Result<[f32; 2], GpuError> {
    let gpu = Gpu::open(GpuOptions::default())?;
    let points: Vec<f32> = (0..64).map(|i| i as f32 / 32.0 - 1.0).collect();
    let squares: Vec<f32> = points.iter().map(|x| x * x).collect();
    let wanted: Vec<f32> = squares.iter().map(|square| 2.0 * square - 1.0).collect();
    let squares = Tensor::from_slice(&gpu, &squares, &[64]);
    let wanted = Tensor::from_slice(&gpu, &wanted, &[64]);
    let one = |name: &str| (name.to_owned(), vec![1], vec![0.0]);
    let mut parameters = Parameters::new(&gpu, &[one("a"), one("b")]);
    let (a, b) = (parameters.get("a"), parameters.get("b"));
    for step in 0..300 {
        let error = squares.mul(&a).add(&b).sub(&wanted);
        let loss = error.square().mean();
        parameters.accumulate(&loss.backward());
        let _norm = parameters.step(AdamW {
            lr: 0.05,
            max_norm: 1.0,
            ..AdamW::default()
        });
        if step % 100 == 0 {
            println!("step {step}: loss {:.5}", loss.to_vec()?[0]);
        }
    }
    Ok([a.to_vec()?[0], b.to_vec()?[0]])
}

#[allow(dead_code)] // the test calls `fit`
fn main() -> Result<(), GpuError> {
    let [a, b] = fit()?;
    println!("y = {a:.3} x^2 + {b:.3}");
    Ok(())
}
