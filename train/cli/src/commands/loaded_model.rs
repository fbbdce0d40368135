//! A model outside of any game, and token ids from the user, for `score`, `generate` and `serve`.

use std::fmt::Display;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Result;
use lapwing_model::{Adapter, KvArena, Model, ModelConfig, SPARE_ROWS, StoredAdapter, read_text};
use lapwing_play::Progress;
use lapwing_train::Config;
use lapwing_train::base::files::Files;
use lapwing_train::base::source::ModelSource;
use lapwing_train::config::ModelChoice;
use lapwing_train::memory::{MemoryDemand, MemoryPlan};
use lapwing_train::record::directory::{self, Trained};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::{self, DeviceArgs, ModelArgs};
use crate::hub::hub;
use crate::progress::Terminal;
use crate::{out, records};

/// An argument or an input file is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputError(String);

impl InputError {
    pub fn new(origin: impl Display, problem: impl Display) -> InputError {
        InputError(format!("{origin}: {problem}"))
    }
}

/// Opens the files of the selected model, or of the built-in one, and reads its adapter.
pub fn open(arguments: &ModelArgs) -> Result<(Files, Option<StoredAdapter>)> {
    let (mut choice, adapter) = selected(arguments)?;
    choice.quantise = arguments.quantise.unwrap_or(choice.quantise);
    choice.tokenizer = arguments.tokenizer.clone().or(choice.tokenizer);
    let files = Files::of(&choice, hub(), &Terminal::new())?;
    let adapter = adapter.map(|dir| files.adapter(&dir)).transpose()?;
    Ok((files, adapter))
}

/// Returns the selected model, or the built-in one, and the directory of its adapter. Those of a run are its model and its
/// trained adapter, or its trained model.
fn selected(arguments: &ModelArgs) -> Result<(ModelChoice, Option<PathBuf>)> {
    let Some(run) = &arguments.run else {
        let model = arguments.model.as_deref().map(args::model).transpose()?;
        let adapter = arguments.adapter.as_ref();
        let adapter = adapter.map(|dir| args::adapter("--adapter", dir));
        let model = model.unwrap_or(ModelSource::BuiltIn);
        return Ok((model.into(), adapter.transpose()?));
    };
    if arguments.model.is_some() || arguments.adapter.is_some() {
        let problem = "the first argument is a run, which has its own model: leave out --model and --adapter; a text \
                       follows --prompt or --text";
        return Err(InputError::new(run.display(), problem).into());
    }
    let config = Config::of_run(run)?;
    let trained = directory::trained(run)?;
    out::note(&format!("uses {}", records::described(run, &trained)));
    Ok(match trained {
        Trained::Adapter(adapter) => (config.model, Some(adapter)),
        Trained::Model(dir) => (ModelSource::Local(dir).into(), None),
    })
}

/// A model on a device, with an arena for its keys and values.
pub struct LoadedModel {
    pub model: Model,
    pub adapter: Option<Adapter>,
    pub arena: KvArena,
}

impl LoadedModel {
    /// Loads the model for one text of `ids` tokens, of which `more` more are sampled.
    pub fn for_text(
        device: DeviceArgs,
        files: &Files,
        stored: Option<&StoredAdapter>,
        ids: usize,
        more: usize,
    ) -> Result<LoadedModel> {
        let demand = MemoryDemand {
            longest: ids + more,
            reply: ids + more - 1,
            episodes: 1,
            cure: "use a shorter text or fewer tokens",
            ..MemoryDemand::default()
        };
        // A reply may be much shorter than the longest.
        let first = ids + more.min(256);
        let name = "the text and its continuation";
        LoadedModel::load(device, files, stored, demand, first, name)
    }

    /// Loads the model for as many sequences at once as the demand has episodes; fewer if the memory does not suffice.
    /// `first` is the initial size of the arena in tokens, and `name` names the longest sequence in an error.
    pub fn load(
        device: DeviceArgs,
        files: &Files,
        stored: Option<&StoredAdapter>,
        demand: MemoryDemand,
        first: usize,
        name: &str,
    ) -> Result<LoadedModel> {
        let gpu = device.open()?;
        let (longest, cure) = (demand.longest, demand.cure);
        let demand = MemoryDemand {
            frozen: true,
            used: stored.map_or(0, StoredAdapter::parameters),
            rank: stored.map_or(0, StoredAdapter::rank),
            ..demand
        };
        let plan = MemoryPlan::new(gpu.caps(), &files.checkpoint, &demand)?;
        if longest + SPARE_ROWS > plan.arena_rows {
            let most = plan.arena_rows.saturating_sub(SPARE_ROWS);
            let problem = format!("{longest} tokens, and the device's memory holds {most}; {cure}");
            return Err(InputError::new(name, problem).into());
        }
        let terminal = Terminal::new();
        if plan.is_tight() {
            terminal.line(&plan.to_string());
        }
        let model = files.load(&gpu, &terminal)?;
        let adapter = stored.map(|stored| Adapter::frozen(&model, stored));
        let most = match demand.episodes {
            1 => longest + SPARE_ROWS,
            _ => plan.arena_rows,
        };
        let arena = KvArena::new(&model, first, most);
        Ok(LoadedModel {
            model,
            adapter,
            arena,
        })
    }
}

pub fn read_ids(path: &Path, config: &ModelConfig) -> Result<Vec<u32>> {
    const WANTED: &str = "wanted a list of token ids, such as [1, 2, 3]";
    let origin = origin(path);
    let list: Vec<Value> = read_json(path, WANTED)?;
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| InputError::new(origin.clone(), format!("{WANTED}; found {value}")))
    };
    let ids = list.iter().map(id).collect::<Result<Vec<u32>, _>>()?;
    check_ids(origin, &ids, config)?;
    Ok(ids)
}

/// Refuses an empty list, tokens outside of the vocabulary, and more tokens than the model supports.
pub fn check_ids(origin: String, ids: &[u32], config: &ModelConfig) -> Result<()> {
    let (vocab, found, most) = (config.vocab, ids.len(), config.max_positions);
    let problem = match ids.iter().find(|&&id| id as usize >= vocab) {
        _ if ids.is_empty() => "there is no token in it".to_owned(),
        Some(id) => format!("token {id} is outside of the model's vocabulary of {vocab}"),
        None if found > most => {
            format!("{found} tokens, and the model supports {most} (max_position_embeddings)")
        }
        None => return Ok(()),
    };
    Err(InputError::new(origin, problem).into())
}

/// Maximum size of an input file: the longest contexts of published models are a few megabytes.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a JSON file or standard input.
pub fn read_json<T: DeserializeOwned>(path: &Path, wanted: &str) -> Result<T> {
    let wrong = |problem: String| InputError::new(origin(path), problem);
    let text = match path == Path::new("-") {
        true => {
            io::read_to_string(io::stdin().take(MAX_BYTES)).map_err(|e| wrong(e.to_string()))?
        }
        false => read_text(path, MAX_BYTES)?,
    };
    Ok(serde_json::from_str(&text).map_err(|e| wrong(format!("{wanted}: {e}")))?)
}

/// Returns the name of an input file in messages.
pub fn origin(path: &Path) -> String {
    match path == Path::new("-") {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}
