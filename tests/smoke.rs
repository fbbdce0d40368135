//! The smoke test of a device, in a minute or a few: every op, every kind of kernel that the device can run, a
//! checkpoint that other programs computed with, and the first steps of the default run, with AdamW. Its output is a report to
//! paste.

use std::fmt::{self, Display, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use lapwing_model::{Adapter, ModelDirectory, Precision, Tokens};
use lapwing_tensor::{Caps, Gpu, GpuError, GpuOptions, Indices, Tensor, check::checks};
use lapwing_train::Config;
use lapwing_train::learner::Learner;
use lapwing_train::state::{RunPurpose, State};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// Steps of the default run to compare.
const STEPS: usize = 5;

/// The largest relative difference of gradient norms from those of the recorded run. They are sums of some thousand f32
/// products, which drivers fuse or not.
const NORM: f64 = 1e-5;

/// The result of one part.
pub struct Part {
    /// The name of the part.
    pub name: &'static str,
    /// The finding, or the error.
    pub result: Result<String, String>,
    /// The duration.
    pub seconds: f64,
}

impl Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match &self.result {
            Ok(text) => ("ok", text),
            Err(text) => ("WRONG", text),
        };
        write!(
            f,
            "{word:5}  {:16}  {text} ({:.1} s)",
            self.name, self.seconds
        )
    }
}

/// Returns the number of the device, given a number or part of a name in any case: `"llvmpipe"`, `"vulkan llvmpipe"`.
///
/// # Errors
/// If no device matches, or several.
pub fn find(list: &[Caps], asked: &str) -> Result<usize, String> {
    let full = |caps: &Caps| format!("{} {}", caps.backend, caps.name);
    let listed = || {
        let one = |(index, caps)| format!("\n  {index}: {}", full(caps));
        list.iter().enumerate().map(one).collect::<String>()
    };
    if let Ok(index) = asked.parse::<usize>() {
        return match index < list.len() {
            true => Ok(index),
            false => Err(format!("there is no device {index}, only{}", listed())),
        };
    }
    let is_meant = |caps: &Caps| full(caps).to_lowercase().contains(&asked.to_lowercase());
    let mut meant = list.iter().enumerate().filter(|(_, caps)| is_meant(caps));
    match (meant.next(), meant.next()) {
        (Some((index, _)), None) => Ok(index),
        (None, _) => Err(format!(
            "no device is called {asked:?}, there are{}",
            listed()
        )),
        (Some(_), Some(_)) => Err(format!(
            "several adapters are called {asked:?}; give the number, of{}",
            listed()
        )),
    }
}

/// Returns a description of the device for the head of a report.
pub fn describe(caps: &Caps) -> String {
    let mut text = String::new();
    let mut line =
        |name: &str, value: String| writeln!(text, "{name:10} {value}").expect("a string");
    line("device", caps.name.clone());
    line(
        "driver",
        format!("{}, {} ({})", caps.driver, caps.backend, caps.kind),
    );
    line(
        "can",
        format!(
            "subgroups of {} to {}, {} threads and {} KiB in a group, {} MiB bound, {}, {}",
            caps.subgroup.0,
            caps.subgroup.1,
            caps.max_workgroup_threads,
            caps.max_workgroup_memory >> 10,
            caps.max_binding >> 20,
            if caps.immediates {
                "immediates"
            } else {
                "no immediates"
            },
            if caps.f16 { "f16" } else { "no f16" },
        ),
    );
    text
}

/// Runs one part after the other, reports each, and returns whether all were right. `open` opens a device; `fixtures`
/// is the folder of that name.
pub fn smoke(
    open: &dyn Fn(GpuOptions) -> Result<Gpu, GpuError>,
    fixtures: &Path,
    each: &mut dyn FnMut(&Part),
) -> bool {
    let mut all_right = true;
    let mut part = |name, look: &dyn Fn() -> Result<String, String>| {
        let start = Instant::now();
        // If a driver refuses a kernel, bounds checks make it a panic, which is reported like any other error.
        let looked = catch_unwind(AssertUnwindSafe(look));
        let part = Part {
            name,
            result: looked.unwrap_or_else(|_| Err("panicked, see above".to_owned())),
            seconds: start.elapsed().as_secs_f64(),
        };
        all_right &= part.result.is_ok();
        each(&part);
    };
    let told = |error: GpuError| error.to_string();
    // With bounds checks, and memory filled with NaN.
    let device = |webgpu| {
        let options = GpuOptions {
            checked: true,
            poison: true,
            webgpu,
            ..GpuOptions::default()
        };
        open(options).map_err(told)
    };
    part("kernels", &|| kernels(&device(false)?));
    if device(false).is_ok_and(|gpu| gpu.is_software()) {
        part("kernels for GPUs", &|| {
            kernels(&device(false)?.with_caps(|caps| caps.is_software = false))
        });
    }
    part("as WebGPU", &|| kernels(&device(true)?));
    part("checkpoint", &|| checkpoint(&device(false)?, fixtures));
    part("default run", &|| {
        // As users have it.
        default_run(&open(GpuOptions::default()).map_err(told)?, fixtures)
    });
    all_right
}

/// Every op against its reference in double precision, with gradients.
fn kernels(gpu: &Gpu) -> Result<String, String> {
    let checks = checks();
    let mut worst = (0.0, String::new());
    for check in &checks {
        let name = format!("{check:?}");
        let error = check.run(gpu).map_err(|wrong| format!("{name}: {wrong}"))?;
        if error > worst.0 {
            worst = (error, name);
        }
    }
    let (count, (error, name)) = (checks.len(), worst);
    Ok(format!(
        "{count} checks agree with double precision, furthest by {error:.1e} in {name}"
    ))
}

/// Log-probs and every gradient of a checkpoint with an adapter, against those of transformers and PEFT in double precision.
fn checkpoint(gpu: &Gpu, fixtures: &Path) -> Result<String, String> {
    let dir: PathBuf = fixtures.join("golden/qwen2");
    let told = |error: &dyn Display| format!("{}: {error}", dir.display());
    let files = ModelDirectory::open(&dir).map_err(|e| told(&e))?;
    let model = files
        .load(gpu, Precision::Auto, &mut |_, _| ())
        .map_err(|e| told(&e))?;
    let stored = files.adapter(&dir.join("adapter")).map_err(|e| told(&e))?;
    let (adapter, parameters) = Adapter::trained(&model, &stored);
    let bytes = std::fs::read(dir.join("expected.safetensors")).map_err(|e| told(&e))?;
    let expected = SafeTensors::deserialize(&bytes).map_err(|e| told(&e))?;
    let words = |name: &str, dtype: Dtype| -> Vec<[u8; 4]> {
        let tensor = expected.tensor(name).expect("part of the fixture");
        assert_eq!(tensor.dtype(), dtype, "{name}");
        tensor.data().as_chunks::<4>().0.to_vec()
    };
    let floats = |name: &str| -> Vec<f32> {
        words(name, Dtype::F32)
            .into_iter()
            .map(f32::from_le_bytes)
            .collect()
    };
    let ids: Vec<u32> = words("ids3", Dtype::I32)
        .into_iter()
        .map(u32::from_le_bytes)
        .collect();

    let hidden = model.forward(&Tokens::sequence(gpu, &ids), Some(&adapter));
    let rows: Vec<u32> = (0..ids.len() as u32 - 1).collect();
    let (rows, targets) = (Indices::new(gpu, &rows), Indices::new(gpu, &ids[1..]));
    let log_probs = hidden
        .log_probs(&model.head(Some(&adapter)), &rows, &targets, &[], 1.0)
        .log_probs;
    let got = log_probs.to_vec().map_err(|e| told(&e))?;
    // The tolerances of model/tests/golden.rs, which explains them.
    let furthest = apart(&got, &floats("lora.logprobs"));
    if furthest.is_nan() || furthest > 1e-3 {
        return Err(format!("log-probs are off by {furthest:.1e}"));
    }
    let weights = floats("lora.weights");
    let weights = Tensor::from_slice(gpu, &weights, &[weights.len()]);
    let gradients = log_probs.mul(&weights).sum().backward();
    let mut count = 0;
    for name in expected.names() {
        let Some(parameter) = name.strip_prefix("grad.") else {
            continue;
        };
        let leaf = parameters.get(&format!("base_model.model.{parameter}"));
        let gradient = gradients
            .get(&leaf)
            .ok_or(format!("no gradient of {parameter}"))?;
        let (got, wanted) = (gradient.to_vec().map_err(|e| told(&e))?, floats(name));
        let largest = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let off = apart(&got, &wanted) / largest;
        if off.is_nan() || off > 1e-2 {
            return Err(format!(
                "the gradient of {parameter} is off by {off:.1e} of its largest"
            ));
        }
        count += 1;
    }
    Ok(format!(
        "log-probs within {furthest:.1e} of PyTorch's, and {count} gradients right"
    ))
}

/// Returns the largest difference; NaN if one is NaN.
fn apart(got: &[f32], wanted: &[f32]) -> f32 {
    assert_eq!(got.len(), wanted.len());
    let differences = got.iter().zip(wanted).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

/// Compares the first steps of `lapwing train` with those recorded on lavapipe.
fn default_run(gpu: &Gpu, fixtures: &Path) -> Result<String, String> {
    let path = fixtures.join("trajectory.json");
    let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let known: Value =
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let settings: Vec<String> =
        serde_json::from_value(known["settings"].clone()).map_err(|e| e.to_string())?;
    let known: Vec<[f64; 2]> =
        serde_json::from_value(known["return_and_norm"].clone()).map_err(|e| e.to_string())?;
    let config = Config::load("frozen-lake", &settings).map_err(|e| e.to_string())?;
    let mut state =
        State::new(gpu, None, config, RunPurpose::Train, &()).map_err(|e| e.to_string())?;
    let (mut furthest, mut went) = (0.0f64, Vec::new());
    for (number, [wanted, norm]) in known.into_iter().enumerate().take(STEPS) {
        let (metrics, _) = state
            .learner
            .step(&state.config, number, &())
            .map_err(|e| e.to_string())?;
        let got = metrics.play.composite_return_mean;
        let learned = metrics.learned.ok_or("a step learned nothing")?;
        let off = (learned.grad_norm - norm).abs() / norm;
        // f64 represents the printed numbers exactly.
        if got != wanted || off.is_nan() || off > NORM {
            let step = number + 1;
            return Err(format!(
                "step {step}: a return of {got} and a gradient of {}, wanted {wanted} and {norm} within {NORM:.0e}",
                learned.grad_norm
            ));
        }
        furthest = furthest.max(off);
        went.push(format!("{got}"));
    }
    Ok(format!(
        "{STEPS} steps with returns {} as kept, gradient norms within {furthest:.1e}",
        went.join(" ")
    ))
}
