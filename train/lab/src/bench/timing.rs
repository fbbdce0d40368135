//! Timing of work on a device: many runs, one wait.

use std::time::Instant;

use lapwing_tensor::{Counts, Gpu};

use lapwing_train::Error;

/// Seconds of a round, and of all rounds together. Work that takes longer is measured twice.
const ROUND: f64 = 0.03;
const ALL_ROUNDS: f64 = 0.15;
const MOST_ROUNDS: usize = 5;

/// Measures work after a run that compiles its kernels. Returns the seconds of one run (the median of the rounds), half the
/// difference of the slowest and the fastest round relative to it, and what a run gives to the device.
pub(super) fn measure(
    gpu: &Gpu,
    mut run: impl FnMut() -> Result<(), Error>,
) -> Result<(f64, f64, Counts), Error> {
    let mut timed = |runs: usize| -> Result<(f64, Counts), Error> {
        gpu.finish()?;
        let (start, before) = (Instant::now(), gpu.counts());
        for _ in 0..runs {
            run()?;
        }
        gpu.finish()?;
        let seconds = start.elapsed().as_secs_f64() / runs as f64;
        Ok((seconds, gpu.counts().since(before)))
    };
    timed(1)?;
    let (first, counts) = timed(1)?;
    let runs = ((ROUND / first) as usize).clamp(1, 4096);
    let rounds = (ALL_ROUNDS / (first * runs as f64)) as usize;
    // Among many, a run is faster than alone.
    let mut samples = Vec::from_iter((runs == 1).then_some(first));
    for _ in 0..rounds.clamp(1, MOST_ROUNDS) {
        samples.push(timed(runs)?.0);
    }
    samples.sort_by(f64::total_cmp);
    let seconds = samples[samples.len() / 2];
    let range = samples[samples.len() - 1] - samples[0];
    Ok((seconds, range / (2.0 * seconds), counts))
}

#[cfg(test)]
mod tests {
    use lapwing_tensor::{GpuOptions, Tensor};

    use super::*;

    #[test]
    fn runs_are_counted() {
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        let x = Tensor::zeros(&gpu, &[1]);
        let mut done = 0;
        let measured = measure(&gpu, || {
            done += 1;
            drop(x.neg().neg());
            Ok(())
        });
        let (seconds, spread, counts) = measured.unwrap();
        assert_eq!(counts.dispatches, 2);
        assert!(seconds > 0.0 && spread >= 0.0, "{seconds} +- {spread}");
        assert!(done > 2, "{done}");
    }

    #[test]
    fn a_failure_is_returned() {
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        assert!(measure(&gpu, || Err(Error::Unusable("no".to_owned()))).is_err());
    }
}
