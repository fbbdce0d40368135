//! `--player`: somebody else than a model of ours plays.

use std::time::Duration;

use crate::folders;
use anyhow::{Result, bail};
use lapwing_play::players::api::{Account, Api, Settings};
use lapwing_play::players::scripted::{Random, Scripted};
use lapwing_play::{Ask, Form, Framing, PlayError, Player, Reply};
use lapwing_train::{Config, Error};

use crate::args::{ApiPlayer, Who};

/// Who plays in place of the model.
pub enum Seated {
    /// A model behind an API.
    Api(Box<Api>),
    /// The game's own player, which says its actions in the form that is asked for.
    Scripted(Scripted, Form),
    /// Any action.
    Random(Random, Form),
}

/// The player that was asked for, at the game that is put in this way. The key of an API is taken from OPENAI_API_KEY.
///
/// # Errors
/// If there is no model named, or the API's address, key or cache is of no use.
///
/// # Panics
/// If none was asked for.
pub fn player(arguments: &ApiPlayer, framing: Framing, config: &Config) -> Result<Seated> {
    let form = config.policy.reply;
    let url = match arguments.player.as_ref().expect("one was asked for") {
        Who::Scripted => return Ok(Seated::Scripted(Scripted::default(), form)),
        Who::Random => return Ok(Seated::Random(Random::default(), form)),
        Who::OpenAi(url) => url,
    };
    let Some(model) = &arguments.player_model else {
        bail!("--player {url:?} needs --player-model NAME: what the server calls its model");
    };
    let usual = || folders::cache().map(|cache| cache.join("api"));
    let Some(cache) = arguments.player_cache.clone().or_else(usual) else {
        bail!(
            "--player {url:?} needs --player-cache DIR: the environment does not say where the user's cache is"
        );
    };
    let settings = Settings {
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
    let api = Api::new(settings, framing)
        .map_err(PlayError::from)
        .map_err(Error::from)?;
    Ok(Seated::Api(Box::new(api)))
}

impl Seated {
    /// What an API was asked, and what it cost.
    pub fn account(&self) -> Option<Account> {
        match self {
            Seated::Api(api) => Some(api.account()),
            _ => None,
        }
    }
}

impl Player for Seated {
    fn act(&mut self, asks: &[Ask<'_>]) -> Result<Vec<Reply>, PlayError> {
        let (replies, form) = match self {
            Seated::Api(api) => return api.act(asks),
            Seated::Scripted(scripted, form) => (scripted.act(asks)?, form),
            Seated::Random(random, form) => (random.act(asks)?, form),
        };
        // Whoever imitates them is to be read.
        let said = |reply: Reply| Reply {
            text: form.say(&reply.text),
            ..reply
        };
        Ok(replies.into_iter().map(said).collect())
    }
}
