//! Checkpoints: everything that resuming a run needs, in one file such as `checkpoints/step-000050.safetensors`. It is
//! written to a temporary name, synced and renamed.
//!
//! It is a safetensors file, so other programs can read it. It has the trained weights under their names, those of a
//! critic under `critic.`, the optimiser's moments under these names with `.first_moment` and `.second_moment`, and a learner's
//! other memory under `memory.`. Its metadata has one entry, `lapwing`: JSON with a checksum and the fields of
//! [`Header`]. There is no generator state, because all randomness follows from the config's seeds and the step.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use lapwing_model::{ModelError, read_file, write_atomically};
use lapwing_tensor::ParameterState;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::Config;
use crate::record::{TRAINED_OPTIONS, directory};
use crate::snapshot::{Best, Snapshot};
use lapwing_learn::config::AdvantageEstimator;
use lapwing_learn::critic;

/// The format number. Checkpoints with another number are refused.
const FORMAT: u32 = 1;
const ENTRY: &str = "lapwing";
/// The file beside the checkpoints with the evaluation after the latest one.
const EVALUATION: &str = "evaluation.json";
const MOMENTS: [&str; 2] = ["first_moment", "second_moment"];
const MEMORY: &str = "memory.";
/// The largest checkpoint: training all of ten billion weights.
const MAX_BYTES: u64 = 128 << 30;

/// The metadata of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The format number.
    pub format: u32,
    /// The version of lapwing that wrote it.
    pub version: String,
    /// Every value of the config.
    pub config: Config,
    /// The fingerprint of the model and of the starting adapter.
    pub model: String,
    /// Training steps completed.
    pub step: usize,
    /// Optimiser updates made.
    pub updates: u64,
    /// Optimiser updates of the critic; missing in old files.
    #[serde(default)]
    pub critic_updates: u64,
    /// World and scene of the groups to retry; missing in old files.
    #[serde(default)]
    pub unsolved: Vec<(usize, u64)>,
    /// The step of the last evaluation.
    pub evaluated: Option<usize>,
    /// The best evaluation.
    pub best: Option<Best>,
    /// The lengths of `metrics.jsonl` and `episodes.jsonl` in bytes.
    pub bytes: [u64; 2],
}

/// A checkpoint that cannot be resumed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", .path.display())]
pub struct CheckpointError {
    /// The file.
    pub path: PathBuf,
    /// The problem and its fix.
    pub problem: String,
}

/// Settings that may change when a run resumes, because no earlier result depends on them.
const FREE: [&str; 4] = ["name", "train.steps", "checkpoint", "record"];

/// Saves a checkpoint, keeps the latest ones and that of the best evaluation, and removes the others.
///
/// # Errors
/// If it cannot be written; then all earlier ones stay.
pub fn save(
    run: &Path,
    config: &Config,
    model: &str,
    snapshot: &Snapshot,
    bytes: [u64; 2],
) -> Result<(), ModelError> {
    let header = Header {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        config: config.clone(),
        model: model.to_owned(),
        step: snapshot.step,
        updates: snapshot.updates,
        critic_updates: snapshot.critic_updates,
        unsolved: snapshot.unsolved.clone(),
        evaluated: snapshot.evaluated,
        best: snapshot.best,
        bytes,
    };
    let folder = directory::checkpoints(run);
    if !folder.exists() {
        fs::create_dir(&folder).map_err(|e| ModelError::unwritable(&folder, e))?;
    }
    if Evaluated::read(&folder).is_some_and(|evaluated| evaluated.step == snapshot.step) {
        // It belongs to the checkpoint that this one replaces.
        let path = folder.join(EVALUATION);
        fs::remove_file(&path).map_err(|e| ModelError::unwritable(&path, e))?;
    }
    write_atomically(
        &file(&folder, snapshot.step),
        &serialized(
            &serde_json::to_string(&header).expect("plain values"),
            snapshot,
        ),
    )?;
    remove_surplus(&folder, config, snapshot.step, snapshot.best);
    Ok(())
}

/// The evaluation that is added to the checkpoint of its step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evaluated {
    /// Training steps completed.
    pub(crate) step: usize,
    /// The step of the last evaluation.
    pub(crate) evaluated: Option<usize>,
    /// The best evaluation.
    pub(crate) best: Option<Best>,
    /// The lengths of `metrics.jsonl` and `episodes.jsonl` in bytes.
    pub(crate) bytes: [u64; 2],
}

impl Evaluated {
    /// Reads the file, if it is readable: otherwise the evaluation is repeated.
    fn read(folder: &Path) -> Option<Evaluated> {
        serde_json::from_slice(&read_file(&folder.join(EVALUATION), 1 << 20).ok()?).ok()
    }
}

/// Adds an evaluation to the checkpoint of its step, in a small file beside it.
///
/// # Errors
/// If it cannot be written; then all earlier files stay.
pub(crate) fn save_evaluation(
    run: &Path,
    config: &Config,
    evaluated: &Evaluated,
) -> Result<(), ModelError> {
    let folder = directory::checkpoints(run);
    let text = serde_json::to_string(evaluated).expect("plain values");
    write_atomically(&folder.join(EVALUATION), text.as_bytes())?;
    remove_surplus(&folder, config, evaluated.step, evaluated.best);
    Ok(())
}

fn remove_surplus(folder: &Path, config: &Config, last: usize, best: Option<Best>) {
    let mut others: Vec<usize> = steps(folder);
    others.retain(|step| *step != last && Some(*step) != best.map(|best| best.step));
    let surplus = (others.len() + 1).saturating_sub(config.checkpoint.keep);
    for step in &others[..surplus.min(others.len())] {
        // A file that cannot be removed does no harm.
        let _ = fs::remove_file(file(folder, *step));
    }
}

/// Returns the latest undamaged checkpoint of a run, if there is one, and the errors of later ones.
pub(crate) fn latest(run: &Path) -> (Option<Saved>, Vec<CheckpointError>) {
    let folder = directory::checkpoints(run);
    let mut damaged = Vec::new();
    for step in steps(&folder).into_iter().rev() {
        match Saved::read(run, step) {
            Ok(mut saved) => {
                let step = saved.header.step;
                let added = Evaluated::read(&folder).filter(|added| added.step == step);
                if let (Some(added), header) = (added, &mut saved.header) {
                    (header.evaluated, header.best) = (added.evaluated, added.best);
                    header.bytes = added.bytes;
                }
                return (Some(saved), damaged);
            }
            Err(error) => damaged.push(error),
        }
    }
    (None, damaged)
}

/// A checkpoint as read from its file.
#[derive(Debug)]
pub(crate) struct Saved {
    path: PathBuf,
    pub(crate) header: Header,
    tensors: HashMap<String, (Vec<usize>, Vec<f32>)>,
}

impl Saved {
    /// Reads the checkpoint of a step.
    pub(crate) fn read(run: &Path, step: usize) -> Result<Saved, CheckpointError> {
        let path = &file(&directory::checkpoints(run), step);
        let damaged = |problem: String| damaged(path, &problem);
        let bytes = read_file(path, MAX_BYTES).map_err(|e| damaged(e.to_string()))?;
        let odd = |e: safetensors::SafeTensorError| damaged(e.to_string());
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(odd)?;
        let entry = metadata.metadata().as_ref().and_then(|map| map.get(ENTRY));
        let entry = entry.ok_or_else(|| damaged("it is no checkpoint of lapwing".to_owned()))?;
        let (checksum, header) = entry
            .split_once(' ')
            .ok_or_else(|| damaged("no checksum".to_owned()))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(odd)?;
        let mut views: Vec<(&str, TensorView<'_>)> = tensors.iter().collect();
        views.sort_by(|a, b| a.0.cmp(b.0));
        if checksum != format!("{:08x}", checksum_of(header, &views)) {
            return Err(damaged("its checksum is another".to_owned()));
        }
        // Other fields may differ in other versions.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
            version: String,
        }
        let odd = |e: serde_json::Error| damaged(e.to_string());
        let Version { format, version } = serde_json::from_str(header).map_err(odd)?;
        let other = || CheckpointError {
            path: path.clone(),
            problem: format!(
                "made by another build of lapwing (version {version}, format {format}; this is version {}, format {FORMAT}): \
                 continue with that one, or start a new run from the trained weights ({TRAINED_OPTIONS})",
                env!("CARGO_PKG_VERSION")
            ),
        };
        if format != FORMAT {
            return Err(other());
        }
        // The checksum is right, so it is not damaged: another build may have settings that are unknown here.
        let header = serde_json::from_str(header).map_err(|_| other())?;
        let values = |view: &TensorView<'_>| bytemuck::pod_collect_to_vec(view.data());
        Ok(Saved {
            path: path.clone(),
            header,
            tensors: views
                .iter()
                .map(|(name, view)| ((*name).to_owned(), (view.shape().to_vec(), values(view))))
                .collect(),
        })
    }

    /// Returns the snapshot for a state of this config and this model, whose parameters have these names.
    pub(crate) fn snapshot<'a>(
        mut self,
        config: &Config,
        (name, model): (&str, &str),
        names: impl Iterator<Item = &'a str>,
    ) -> Result<Snapshot, CheckpointError> {
        let (path, header) = (self.path, self.header);
        let refused = |problem: String| {
            let path = path.clone();
            Err(CheckpointError { path, problem })
        };
        let differences = differences(&header.config, config);
        if !differences.is_empty() {
            return refused(format!(
                "made with another config than the run has now: {}; change that back, or start a new run from the trained \
                 weights ({TRAINED_OPTIONS})",
                differences.join("; ")
            ));
        }
        let (done, steps) = (header.step, config.train.steps);
        if done > steps {
            // The file is DIR/checkpoints/NAME.
            let run = path.ancestors().nth(2).unwrap_or(&path).to_owned();
            let problem =
                format!("the run is at step {done}: wanted --steps {done} or more, found {steps}");
            return Err(CheckpointError { path: run, problem });
        }
        if header.model != model {
            return refused(format!(
                "made with another model: its files had the fingerprint {}, those of {name} have {model}; put the model back, \
                 or start a new run",
                header.model
            ));
        }
        let mut take = |name: String| {
            let found = self.tensors.remove(&name);
            found.ok_or_else(|| damaged(&path, &format!("it lacks {name}")))
        };
        let mut parameter = |name: &str| {
            let [first, second] = MOMENTS.map(|moment| take(format!("{name}.{moment}")));
            let (shape, values) = take(name.to_owned())?;
            Ok(ParameterState {
                name: name.to_owned(),
                shape,
                values,
                first_moment: first?.1,
                second_moment: second?.1,
            })
        };
        let parameters = names.map(&mut parameter).collect::<Result<_, _>>()?;
        let critic = match config.credit.method {
            AdvantageEstimator::Critic => &critic::NAMES[..],
            _ => &[],
        };
        let critic = critic.iter().map(|name| parameter(name));
        let critic = critic.collect::<Result<_, _>>()?;
        let memory = |(name, (shape, values)): (&String, &(Vec<usize>, Vec<f32>))| {
            let name = name.strip_prefix(MEMORY)?;
            Some((name.to_owned(), shape.clone(), values.clone()))
        };
        Ok(Snapshot {
            step: header.step,
            updates: header.updates,
            unsolved: header.unsolved.clone(),
            evaluated: header.evaluated,
            best: header.best,
            parameters,
            critic_updates: header.critic_updates,
            critic,
            memory: self.tensors.iter().filter_map(memory).collect(),
        })
    }
}

fn damaged(path: &Path, problem: &str) -> CheckpointError {
    CheckpointError {
        path: path.to_owned(),
        problem: format!("the checkpoint is damaged: {problem}"),
    }
}

fn file(folder: &Path, step: usize) -> PathBuf {
    folder.join(format!("step-{step:06}.safetensors"))
}

/// Returns the steps of the existing checkpoints, the earliest first.
fn steps(folder: &Path) -> Vec<usize> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut steps: Vec<usize> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_prefix("step-")?;
            name.strip_suffix(".safetensors")?.parse().ok()
        })
        .collect();
    steps.sort_unstable();
    steps
}

fn view<'a>(shape: &[usize], values: &'a [f32]) -> TensorView<'a> {
    let view = TensorView::new(Dtype::F32, shape.to_vec(), bytemuck::cast_slice(values));
    view.expect("as many values as the shape has")
}

fn serialized(header: &str, snapshot: &Snapshot) -> Vec<u8> {
    let mut views: Vec<(String, TensorView<'_>)> = Vec::new();
    for (name, shape, values) in &snapshot.memory {
        views.push((format!("{MEMORY}{name}"), view(shape, values)));
    }
    for one in snapshot.parameters.iter().chain(&snapshot.critic) {
        let [first, second] = MOMENTS.map(|moment| format!("{}.{moment}", one.name));
        views.push((one.name.clone(), view(&one.shape, &one.values)));
        views.push((first, view(&one.shape, &one.first_moment)));
        views.push((second, view(&one.shape, &one.second_moment)));
    }
    views.sort_by(|a, b| a.0.cmp(&b.0));
    let named: Vec<(&str, TensorView<'_>)> = views
        .iter()
        .map(|(name, view)| (&**name, view.clone()))
        .collect();
    let entry = format!("{:08x} {header}", checksum_of(header, &named));
    let metadata = HashMap::from([(ENTRY.to_owned(), entry)]);
    safetensors::serialize(named, Some(metadata)).expect("names and shapes are sound")
}

/// Returns the checksum of the header and of the tensors in the order of their names.
fn checksum_of(header: &str, tensors: &[(&str, TensorView<'_>)]) -> u32 {
    let sum = crc32c::crc32c(header.as_bytes());
    tensors.iter().fold(sum, |sum, (name, view)| {
        let sum = crc32c::crc32c_append(sum, name.as_bytes());
        crc32c::crc32c_append(sum, view.data())
    })
}

/// Describes each changed value, such as "train.lr was 0.001, is 0.002". Only values that may not change count.
pub fn differences(was: &Config, is: &Config) -> Vec<String> {
    let [was, is] = [was, is].map(|config| Value::try_from(config).expect("plain values"));
    let mut found = Vec::new();
    compare("", &was, &is, &mut found);
    found
}

fn compare(key: &str, was: &Value, is: &Value, found: &mut Vec<String>) {
    if FREE.contains(&key) || was == is {
        return;
    }
    let (Value::Table(before), Value::Table(now)) = (was, is) else {
        found.push(format!("{key} was {was}, is {is}"));
        return;
    };
    let under = |name: &str| match key {
        "" => name.to_owned(),
        key => format!("{key}.{name}"),
    };
    for (name, was) in before {
        match now.get(name) {
            Some(is) => compare(&under(name), was, is, found),
            None => found.push(format!("{} was {was}, is not set", under(name))),
        }
    }
    for (name, is) in now {
        if !before.contains_key(name) {
            found.push(format!("{} was not set, is {is}", under(name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_of_another_model_or_without_a_tensor_is_refused() {
        let saved = |tensors: &[&str]| Saved {
            path: "step-000001.safetensors".into(),
            header: Header {
                format: FORMAT,
                version: String::new(),
                config: Config::default(),
                model: "one".to_owned(),
                step: 1,
                updates: 1,
                critic_updates: 0,
                unsolved: Vec::new(),
                evaluated: None,
                best: None,
                bytes: [0; 2],
            },
            tensors: tensors
                .iter()
                .map(|name| ((*name).to_owned(), (vec![1], vec![0.5])))
                .collect(),
        };
        let all = ["a", "a.first_moment", "a.second_moment"];
        let outcome = |saved: Saved, model| {
            let snapshot = saved.snapshot(&Config::default(), ("MODEL", model), ["a"].into_iter());
            snapshot.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(outcome(saved(&all), "one"), Ok(()));
        insta::assert_snapshot!(outcome(saved(&all), "other").unwrap_err(), @"step-000001.safetensors: made with another model: its files had the fingerprint one, those of MODEL have other; put the model back, or start a new run");
        for lost in 0..3 {
            let mut left = all.to_vec();
            let lost = left.remove(lost);
            let error = outcome(saved(&left), "one").unwrap_err();
            assert!(error.ends_with(&format!("it lacks {lost}")), "{error}");
        }
    }

    #[test]
    fn a_sound_checkpoint_of_another_build_is_not_called_damaged() {
        let run = tempfile::tempdir().unwrap();
        fs::create_dir(directory::checkpoints(run.path())).unwrap();
        let refused = |header: &str| {
            let bytes = serialized(header, &Snapshot::default());
            fs::write(file(&directory::checkpoints(run.path()), 1), bytes).unwrap();
            let error = Saved::read(run.path(), 1).unwrap_err();
            error.problem.replace(env!("CARGO_PKG_VERSION"), "OURS")
        };
        let unknown = refused(r#"{ "format": 1, "version": "0.0.9", "config": { "unknown": 3 } }"#);
        insta::assert_snapshot!(unknown, @"made by another build of lapwing (version 0.0.9, format 1; this is version OURS, format 1): continue with that one, or start a new run from the trained weights (--adapter, --model if all weights were trained, or value.network for dqn and pqn)");
        let other = refused(r#"{ "format": 9, "version": "0.9.0" }"#);
        insta::assert_snapshot!(other, @"made by another build of lapwing (version 0.9.0, format 9; this is version OURS, format 1): continue with that one, or start a new run from the trained weights (--adapter, --model if all weights were trained, or value.network for dqn and pqn)");
    }
}
