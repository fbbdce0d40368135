//! Players that are not a local language model: those of `--player`, and trained value networks.

use std::time::Duration;

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_learn::value::learner::NetworkLearner;
use lapwing_play::config::GameConfig;
use lapwing_play::players::api::{Api, ApiSettings, ApiUsage};
use lapwing_play::players::scripted::{RandomPlayer, ScriptedPlayer};
use lapwing_play::{ActionRequest, PlayError, Player, PromptWriter, Reply, ReplyForm};
use lapwing_train::Config;

use super::loaded_model::InputError;
use crate::args::{DeviceArgs, OtherPlayer, PlayerArgs};
use crate::{folders, interrupt};

/// A player in place of the model.
pub enum Substitute {
    Network(Box<NetworkLearner>),
    /// A model behind an API.
    Api(Box<Api>),
    /// A player of action words, with replies in this form.
    Words(Box<dyn Player>, ReplyForm),
}

/// Returns the selected player, or else the network of the config. The key of an API is read from OPENAI_API_KEY.
pub fn load(
    arguments: &PlayerArgs,
    device: DeviceArgs,
    scenario: &dyn Scenario,
    framing: &PromptWriter,
    config: &Config,
) -> Result<Substitute> {
    let form = config.policy.reply;
    let url = match &arguments.player {
        None => {
            // Made for boards of one shape, which few games share.
            let game = GameConfig::of(scenario).scenario()?;
            let network = NetworkLearner::trained(&device.open()?, game, &config.network())?;
            return Ok(Substitute::Network(Box::new(network)));
        }
        Some(OtherPlayer::Scripted) => {
            if scenario.start(0, 0)?.best_actions(0).is_none() {
                let problem = format!("{} has none; random plays every game", scenario.name());
                return Err(InputError::new("--player scripted", problem).into());
            }
            return Ok(Substitute::Words(Box::new(ScriptedPlayer::default()), form));
        }
        Some(OtherPlayer::Random) => {
            return Ok(Substitute::Words(Box::new(RandomPlayer::default()), form));
        }
        Some(OtherPlayer::OpenAi(url)) => url,
    };
    if config.policy.constrain {
        let problem =
            format!("{url:?} cannot be restricted to words: --set policy.constrain=false");
        return Err(InputError::new("--player", problem).into());
    }
    let Some(model) = &arguments.player_model else {
        let problem =
            format!("{url:?} needs --player-model NAME, the name of the model in requests");
        return Err(InputError::new("--player", problem).into());
    };
    let default = || folders::cache().map(|cache| cache.join("api"));
    let Some(cache) = arguments.player_cache.clone().or_else(default) else {
        let problem = format!(
            "{url:?} needs --player-cache DIR: the environment does not name the user's cache directory"
        );
        return Err(InputError::new("--player", problem).into());
    };
    let settings = ApiSettings {
        url: url.clone(),
        model: model.clone(),
        key: std::env::var("OPENAI_API_KEY").ok(),
        temperature: config.eval.temperature,
        max_new_tokens: config.policy.max_new_tokens,
        template_variables: config.policy.template_variables()?,
        concurrency: arguments.player_concurrency,
        timeout: Duration::from_secs(arguments.player_timeout),
        budget: arguments.player_budget,
        cache,
    };
    let api = Api::new(settings, framing.clone());
    let api = api.map_err(|error| InputError::new("--player", error))?;
    Ok(Substitute::Api(Box::new(api)))
}

impl Substitute {
    pub fn account(&self) -> Option<ApiUsage> {
        match self {
            Substitute::Api(api) => Some(api.account()),
            _ => None,
        }
    }
}

impl Player for Substitute {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        if interrupt::is_asked() {
            return Err(PlayError::Left);
        }
        let (replies, form) = match self {
            Substitute::Network(network) => return network.greedy_player().act(asks),
            Substitute::Api(api) => return api.act(asks),
            Substitute::Words(player, form) => (player.act(asks)?, form),
        };
        // In the form of a model's reply, so that it can be imitated.
        let formatted = |reply: Reply| Reply {
            text: form.say(&reply.text),
            ..reply
        };
        Ok(replies.into_iter().map(formatted).collect())
    }
}
