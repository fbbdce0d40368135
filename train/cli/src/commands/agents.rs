//! Who is examined: what was trained, what it was before, and others that it is held against.

use std::fs;
use std::path::Path;

use anyhow::Result;
use lapwing_model::{Adapter, Model};
use lapwing_play::Progress;
use lapwing_train::Config;
use lapwing_train::base::files::Files;
use lapwing_train::config;
use lapwing_train::config::Place;
use lapwing_train::record::directory;
use lapwing_train::record::directory::Trained;
use lapwing_train::state::State;

use super::subject::InputError;
use crate::args;
use crate::hub::hub;

/// A model with an adapter on it, or as it is.
pub struct Agent {
    /// what it is called in tables
    pub name: String,
    model: Model,
    adapter: Option<Adapter>,
}

impl Agent {
    /// From now on it is the state's policy.
    pub fn takes_over(&self, state: &mut State) {
        state.learner.policy.model.clone_from(&self.model);
        state.learner.policy.adapter.clone_from(&self.adapter);
    }
}

/// Who plays as the config has it; and, if that has learned something, what it was before.
pub fn after_and_before(state: &State, progress: &dyn Progress) -> Result<(Agent, Option<Agent>)> {
    let (policy, config) = (&state.learner.policy, &state.config.model);
    let base = |model: Model| Agent {
        name: "model".to_owned(),
        model,
        adapter: None,
    };
    let agent = |name: &str| Agent {
        name: name.to_owned(),
        model: policy.model.clone(),
        adapter: policy.adapter.clone(),
    };
    if policy.adapter.is_some() {
        let before = base(policy.model.clone());
        return Ok((agent("model and adapter"), Some(before)));
    }
    let before = begun_from(config)?;
    if before == *config {
        return Ok((agent("model"), None));
    }
    let source = before.source()?;
    let loaded = Files::of(&source, hub(), progress);
    let loaded = loaded.and_then(|files| files.load(policy.model.gpu(), progress));
    if let Err(error) = &loaded {
        progress.note(&format!(
            "what it was before it was trained, {}, does not play beside it: {error}",
            source.name()
        ));
    }
    Ok((agent("trained model"), loaded.ok().map(base)))
}

/// What a directory holds, on the model that the config's began as: an adapter, or a model of the same shape and tokens.
pub fn other(dir: &Path, state: &State, progress: &dyn Progress) -> Result<Agent> {
    let gpu = state.learner.policy.model.gpu();
    let own = begun_from(&state.config.model)?;
    let (model, adapter) = match args::learned(dir)? {
        Trained::Model(place) => {
            let [files, own] = [
                Files::open(Some(&place))?,
                Files::of(&own.source()?, hub(), progress)?,
            ];
            let tokens =
                |files: &Files| fs::read(files.checkpoint.dir().join("tokenizer.json")).ok();
            let shape = |files: &Files| files.checkpoint.config().to_json("");
            if shape(&files) != shape(&own) || tokens(&files) != tokens(&own) {
                let problem = "is a model of another shape or with another tokenizer; play_evaluation it by itself (--model)";
                return Err(InputError::new(dir.display().to_string(), problem).into());
            }
            (files.load(gpu, progress)?, None)
        }
        Trained::Adapter(_) if own.source()? == state.config.model.source()? => {
            let model = state.learner.policy.model.clone();
            (model, Some(state.adapter(hub(), &args::adapter(dir)?)?))
        }
        Trained::Adapter(_) => {
            let files = Files::of(&own.source()?, hub(), progress)?;
            let stored = files.adapter(&args::adapter(dir)?)?;
            let model = files.load(gpu, progress)?;
            let adapter = Adapter::frozen(&model, &stored);
            (model, Some(adapter))
        }
    };
    Ok(Agent {
        name: dir.display().to_string(),
        model,
        adapter,
    })
}

/// The model as it was before training: without an adapter; or, where it is what a run has made of a whole model, what that
/// run began from.
pub fn begun_from(model: &config::Model) -> Result<config::Model> {
    // Beneath an adapter it is the base, whoever made it.
    let dir = model.dir.as_deref().filter(|_| model.adapter.is_none());
    let run = dir.and_then(Path::parent);
    let run = run.filter(|run| Place::of(run) == Place::Run);
    let is_of = |run: &&Path| {
        let kept = [directory::best(run), directory::model(run)];
        kept.iter().any(|kept| Some(&**kept) == dir)
    };
    let base = match run.filter(is_of) {
        Some(run) => Config::load(&directory::config(run).to_string_lossy(), &[])?.model,
        None => model.clone(),
    };
    Ok(config::Model {
        adapter: None,
        ..base
    })
}
