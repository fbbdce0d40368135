//! What `score`, `generate` and `serve` have in common: a model outside of any game, and token ids from the user.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Result;
use lapwing_model::{Adapter, KvArena, Model, ModelConfig, SPARE_ROWS};
use lapwing_play::Progress;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::base::files::Files;
use lapwing_train::base::source::Source;
use lapwing_train::memory::{Demand, Plan};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args;
use crate::hub::hub;
use crate::progress::Terminal;

/// Something that was typed, or a file that was named, is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct InputError {
    origin: String,
    problem: String,
}

impl InputError {
    pub fn new(origin: impl Into<String>, problem: impl ToString) -> InputError {
        let (origin, problem) = (origin.into(), problem.to_string());
        InputError { origin, problem }
    }
}

/// The files of the model that was asked for, or of the embedded one.
pub fn open(model: &Option<String>) -> Result<Files> {
    Ok(Files::of(&typed(model), hub(), &Terminal::new())?)
}

/// The model that was asked for, or the embedded one.
pub fn typed(model: &Option<String>) -> Source {
    let typed = |text: &str| Source::typed(&args::model(text));
    model.as_deref().map_or(Source::BuiltIn, typed)
}

/// A loaded model, with room for what is to be done with it.
pub struct Subject {
    pub model: Model,
    pub adapter: Option<Adapter>,
    pub arena: KvArena,
}

/// What an arena is to hold.
pub struct Room {
    /// tokens of the longest sequence
    pub longest: usize,
    /// of these, those that are drawn
    pub reply: usize,
    /// sequences at once, if the memory suffices; else fewer
    pub sequences: usize,
    /// tokens that it can hold at once from the start; it grows
    pub first: usize,
    /// what the sequence is called in an error
    pub name: &'static str,
    /// what to do if it is too long
    pub cure: &'static str,
}

impl Subject {
    /// Loads for `ids` and so many more tokens; the ids are checked before anything is loaded.
    pub fn load(
        open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
        chosen: &args::Chosen,
        files: &Files,
        ids: usize,
        more: usize,
    ) -> Result<Subject> {
        let room = Room {
            longest: ids + more,
            reply: ids + more - 1,
            sequences: 1,
            // A reply may be much shorter than the longest.
            first: ids + more.min(256),
            name: "the text and what follows",
            cure: "use a shorter text or fewer tokens",
        };
        Subject::load_with(open_gpu, chosen, files, &room)
    }

    /// Loads for more than one text.
    pub fn load_with(
        open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
        chosen: &args::Chosen,
        files: &Files,
        room: &Room,
    ) -> Result<Subject> {
        let stored = chosen.adapter.as_deref();
        let stored = stored.map(|dir| files.adapter(&args::adapter(dir)?));
        let stored = stored.transpose()?;
        let gpu = open_gpu()?;
        let longest = room.longest;
        let demand = Demand {
            trained: 0,
            whole: false,
            frozen: true,
            used: stored.as_ref().map_or(0, |adapter| adapter.parameters()),
            critic: 0,
            states: 0,
            rank: stored.as_ref().map_or(0, |adapter| adapter.rank()),
            tokens_per_batch: 0,
            longest,
            reply: room.reply,
            shared: 0,
            episodes: room.sequences,
            cure: room.cure,
        };
        let plan = Plan::new(gpu.caps(), &files.checkpoint, &demand)?;
        if longest + SPARE_ROWS > plan.arena_rows {
            let most = plan.arena_rows.saturating_sub(SPARE_ROWS);
            let problem = format!(
                "{longest} tokens, and {most} fit this adapter's memory; {}",
                room.cure
            );
            return Err(InputError::new(room.name, problem).into());
        }
        let terminal = Terminal::new();
        terminal.note(&plan.to_string());
        let model = files.load(&gpu, &terminal)?;
        drop(terminal);
        let adapter = stored.map(|stored| Adapter::frozen(&model, &stored));
        let most = match room.sequences {
            1 => longest + SPARE_ROWS,
            _ => plan.arena_rows,
        };
        let arena = KvArena::new(&model, room.first, most);
        Ok(Subject {
            model,
            adapter,
            arena,
        })
    }
}

/// Token ids of a JSON file.
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

/// Complains of no tokens, of tokens that the model does not have, and of more than it was made for.
pub fn check_ids(origin: String, ids: &[u32], config: &ModelConfig) -> Result<()> {
    let wrong = |problem: String| Err(InputError::new(origin.clone(), problem).into());
    if ids.is_empty() {
        return wrong("there is no token in it".into());
    }
    if let Some(id) = ids.iter().find(|&&id| id as usize >= config.vocab) {
        return wrong(format!(
            "token {id} is beyond the model's vocabulary of {}",
            config.vocab
        ));
    }
    if ids.len() > config.max_positions {
        let (found, most) = (ids.len(), config.max_positions);
        return wrong(format!(
            "{found} tokens, and the model was made for {most} (max_position_embeddings)"
        ));
    }
    Ok(())
}

/// Bytes of a file or an input: the longest contexts of published models are a few megabytes.
const LONGEST: u64 = 64 << 20;

/// A JSON file of some form, or standard input.
pub fn read_json<T: DeserializeOwned>(path: &Path, wanted: &str) -> Result<T> {
    let origin = origin(path);
    let wrong = |problem: String| InputError::new(origin.clone(), problem);
    let text = read(path).map_err(|e| wrong(e.to_string()))?;
    if text.len() as u64 > LONGEST {
        return Err(wrong(format!("larger than {} MiB", LONGEST >> 20)).into());
    }
    Ok(serde_json::from_str(&text).map_err(|e| wrong(format!("{wanted}: {e}")))?)
}

/// What a file is called: `-` is standard input.
pub fn origin(path: &Path) -> String {
    match path == Path::new("-") {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        io::stdin().take(LONGEST + 1).read_to_string(&mut text)?;
    } else if std::fs::metadata(path)?.is_file() {
        File::open(path)?
            .take(LONGEST + 1)
            .read_to_string(&mut text)?;
    } else {
        return Err(io::Error::other("not a plain file (- is standard input)"));
    }
    Ok(text)
}
