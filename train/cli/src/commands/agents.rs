//! The models and adapters of an evaluation: the trained one, its initial model, and others to compare with.

use std::path::Path;

use anyhow::Result;
use lapwing_model::{Adapter, Model};
use lapwing_play::Progress;
use lapwing_train::Config;
use lapwing_train::base::files::Files;
use lapwing_train::config::{self, PathKind};
use lapwing_train::record::directory::{self, Trained};
use lapwing_train::state::State;

use super::loaded_model::InputError;
use crate::args;
use crate::hub::hub;

/// A model with or without an adapter.
pub struct ModelAgent {
    /// Name in tables.
    pub name: String,
    model: Model,
    adapter: Option<Adapter>,
}

impl ModelAgent {
    pub fn set_policy(&self, state: &mut State) {
        state.learner.policy.model.clone_from(&self.model);
        state.learner.policy.adapter.clone_from(&self.adapter);
    }
}

/// Returns the config's policy and, if it is a trained one, its initial model.
pub fn trained_and_initial(
    state: &State,
    progress: &dyn Progress,
) -> Result<(ModelAgent, Option<ModelAgent>)> {
    let (policy, config) = (&state.learner.policy, &state.config.model);
    let agent = |name: &str, model: &Model, adapter: &Option<Adapter>| ModelAgent {
        name: name.to_owned(),
        model: model.clone(),
        adapter: adapter.clone(),
    };
    let trained = |name| agent(name, &policy.model, &policy.adapter);
    if policy.adapter.is_some() {
        let initial = agent("model", &policy.model, &None);
        return Ok((trained("model and adapter"), Some(initial)));
    }
    let initial = initial_model(config)?;
    if initial == *config {
        return Ok((trained("model"), None));
    }
    let loaded = Files::of(&initial, hub(), progress);
    let loaded = loaded.and_then(|files| files.load(policy.model.gpu(), progress));
    if let Err(error) = &loaded {
        let name = initial.source()?.name();
        let text = format!("the initial model {name} is not compared: {error}");
        progress.note(&text);
    }
    let initial = loaded.ok().map(|model| agent("model", &model, &None));
    Ok((trained("trained model"), initial))
}

/// Loads the adapter or model of a directory, to be compared with the state's policy.
pub fn other(dir: &Path, state: &State, progress: &dyn Progress) -> Result<ModelAgent> {
    let gpu = state.learner.policy.model.gpu();
    let initial = initial_model(&state.config.model)?;
    let (model, adapter) = match args::learned(dir)? {
        Trained::Model(place) => {
            let files = Files::open(Some(&place), None)?;
            let own = Files::of(&initial, hub(), progress)?;
            let tokens = |files: &Files| files.checkpoint.text_file("tokenizer.json").ok();
            let shape = |files: &Files| files.checkpoint.config().to_json("");
            if shape(&files) != shape(&own) || tokens(&files) != tokens(&own) {
                let problem =
                    "the model's shape or tokenizer differs; evaluate it by itself (--model)";
                return Err(InputError::new(dir.display(), problem).into());
            }
            (files.load(gpu, progress)?, None)
        }
        Trained::Adapter(_) => {
            let files = Files::of(&initial, hub(), progress)?;
            let stored = files.adapter(&args::adapter("--against", dir)?)?;
            let model = match initial.source()? == state.config.model.source()? {
                true => state.learner.policy.model.clone(),
                false => files.load(gpu, progress)?,
            };
            let adapter = Adapter::frozen(&model, &stored);
            (model, Some(adapter))
        }
    };
    Ok(ModelAgent {
        name: dir.display().to_string(),
        model,
        adapter,
    })
}

/// Returns the model before training: without its adapter, or, if a run trained all of its weights, the initial model of
/// that run.
pub fn initial_model(model: &config::ModelChoice) -> Result<config::ModelChoice> {
    // Below an adapter, even a trained model is the initial one.
    let dir = model.dir.as_deref().filter(|_| model.adapter.is_none());
    let run = dir.and_then(Path::parent);
    let is_trained = |run: &&Path| {
        let trained = [directory::best(run), directory::model(run)];
        PathKind::of(run) == PathKind::Run && trained.iter().any(|path| Some(&**path) == dir)
    };
    let initial = match run.filter(is_trained) {
        Some(run) => Config::of_run(run)?.model,
        None => model.clone(),
    };
    Ok(config::ModelChoice {
        adapter: None,
        ..initial
    })
}
