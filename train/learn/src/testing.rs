//! Learners for tests: the presets' settings with changes, over the base model in `fixtures/base`.

use std::path::Path;

use lapwing_model::{Adapter, KvArena, LoraConfig, ModelDirectory, Precision, TextFiles};
use lapwing_play::Seat;
use lapwing_play::config::{GameConfig, PolicyConfig};
use lapwing_play::players::model::{Policy, Reference};
use lapwing_play::seeds;
use lapwing_play::world::World;
use lapwing_tensor::check::gpu;
use serde::Deserialize;

use crate::communicator::Alone;
use crate::config::StepOptions;
use crate::config::{
    AdvantageEstimator, CreditConfig, CriticConfig, DqnConfig, LearnerKind, PqnConfig, TrainConfig,
    ValueConfig,
};
use crate::critic::Head;
use crate::language::LanguageLearner;
use crate::value::learner::{NetworkLearner, NetworkOptions};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// The config sections that learners read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TestSettings {
    pub learner: LearnerKind,
    pub game: GameConfig,
    pub policy: PolicyConfig,
    pub lora: LoraConfig,
    pub train: TrainConfig,
    pub credit: CreditConfig,
    pub critic: CriticConfig,
    pub value: ValueConfig,
    pub dqn: DqnConfig,
    pub pqn: PqnConfig,
}

impl TestSettings {
    /// Reads a preset and applies `KEY=VALUE` changes.
    pub fn load(preset: &str, changes: &[&str]) -> TestSettings {
        let path = Path::new(FOLDER).join(format!("../presets/{preset}.toml"));
        let mut all: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        for change in changes {
            let (key, value) = change.split_once('=').unwrap();
            let value = format!("it = {value}").parse().map_or_else(
                |_| toml::Value::from(value),
                |mut parsed: toml::Table| parsed.remove("it").unwrap(),
            );
            let (sections, name) = key.rsplit_once('.').unwrap_or(("", key));
            let mut table = &mut all;
            for section in sections.split('.').filter(|section| !section.is_empty()) {
                let empty = || toml::Table::new().into();
                let section = table.entry(section).or_insert_with(empty);
                table = section.as_table_mut().unwrap();
            }
            table.insert(name.to_owned(), value);
        }
        all.try_into().unwrap()
    }

    pub fn options(&self) -> StepOptions<'_> {
        StepOptions {
            policy: &self.policy,
            train: &self.train,
            credit: &self.credit,
            critic: &self.critic,
        }
    }

    pub fn network_options(&self) -> NetworkOptions<'_> {
        NetworkOptions {
            learner: self.learner,
            train: &self.train,
            value: &self.value,
            dqn: &self.dqn,
            pqn: &self.pqn,
        }
    }

    /// A value network on this game.
    pub fn network(&self) -> NetworkLearner {
        let scenario = self.game.scenario().unwrap();
        NetworkLearner::new(&gpu(), scenario, &self.network_options()).unwrap()
    }

    /// The base model with a new adapter, and with a critic if the settings need one.
    pub fn language(&self) -> LanguageLearner {
        let dir = Path::new(FOLDER).join("../../fixtures/base");
        let files = ModelDirectory::open(&dir).unwrap();
        let text = TextFiles::trusted(&dir);
        let tokenizer = text.tokenizer(files.config()).unwrap();
        let mut template = text.template().unwrap();
        template
            .set(self.policy.template_variables().unwrap())
            .unwrap();
        let games = vec![self.game.scenario().unwrap()];
        let worlds = World::all(games, &self.game, &[], &self.policy, &tokenizer, template);

        let gpu = gpu();
        let model = files.load(&gpu, Precision::Auto, &mut |_, _| ());
        let model = model.unwrap();
        let seed = seeds::derive(self.train.seed, "adapter", &[]);
        let (adapter, parameters) = Adapter::new(&model, self.lora.clone(), seed).unwrap();
        let critic = (self.credit.method == AdvantageEstimator::Critic).then(|| {
            let seed = seeds::derive(self.train.seed, "critic", &[]);
            Head::new(&gpu, model.config().width, self.critic.hidden, seed)
        });
        LanguageLearner {
            worlds: worlds.unwrap(),
            policy: Policy {
                arena: KvArena::new(&model, 4096, 1 << 16),
                reference: Some(Reference {
                    model: model.clone(),
                    adapter: None,
                }),
                adapter: Some(adapter),
                model,
            },
            parameters: Some(parameters),
            critic,
            unsolved: Vec::new(),
            temperature: self.policy.temperature,
            companions: None,
            gradient: None,
            ranks: Box::new(Alone),
            tokens_computed: 0,
        }
    }
}

/// The first seats of an evaluation.
pub fn evaluation_seats(world: &World, count: usize) -> Vec<Seat> {
    world.scenes.evaluation(&*world.scenario, 1, count).unwrap()
}
