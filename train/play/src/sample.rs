//! Recorded episodes: the lines of `episodes.jsonl`.

use lapwing_model::Message;
use serde::{Deserialize, Serialize};

use crate::PlayError;
use crate::prompt::Prompts;
use crate::{AgentView, Episode, EpisodeEnd, PromptWriter, UnreadReason};

/// One agent's episode, with its advantages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptEpisode {
    /// Training steps done before it was played.
    pub step: usize,
    /// Whether it was played for training or evaluation.
    pub purpose: EpisodePurpose,
    /// The game, if it is mixed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub game: Option<String>,
    /// The seed of the scene, as text, since JavaScript would round it.
    pub scene: String,
    /// The agent of its game, from 0.
    pub agent: usize,
    /// The game's return, without shaping.
    #[serde(rename = "return")]
    pub game_return: f64,
    /// The return with shaping, which training uses.
    pub composite_return: f64,
    /// Its advantage; training episodes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage: Option<f64>,
    /// Whether it was selected for the update; training episodes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<bool>,
    /// Whether the game counts it as a success.
    pub success: bool,
    /// Whether the step limit ended it.
    pub truncated: bool,
    /// The turns, in order.
    pub turns: Vec<KeptTurn>,
    /// The observation after the last turn.
    pub last: String,
}

/// The purpose of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EpisodePurpose {
    /// Training.
    Training,
    /// Evaluation.
    Evaluation,
}

/// A turn of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptTurn {
    /// The observation.
    pub observation: String,
    /// The complete prompt. Empty if the player is not a local model.
    pub prompt: String,
    /// The prompt as messages, for imitation by any model; empty unless episodes are kept for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// The reply.
    pub reply: String,
    /// The action; null if the reply is unreadable.
    pub action: Option<String>,
    /// Why the reply is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<UnreadReason>,
    /// The game's reward.
    pub reward: f64,
    /// The referee's shaping: minus the format penalty, or zero.
    pub shaping: f64,
    /// The turn's advantage; training episodes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage: Option<f64>,
}

/// The origin of an episode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpisodeOrigin<'a> {
    /// Training steps done.
    pub step: usize,
    /// The purpose.
    pub purpose: EpisodePurpose,
    /// The game, if it is mixed in.
    pub game: Option<&'a str>,
    /// The seed of the scene.
    pub scene: u64,
    /// The agent.
    pub agent: usize,
}

impl KeptEpisode {
    /// Records an episode with its prompts.
    ///
    /// # Errors
    /// If a template fails.
    pub fn of(
        episode: &Episode,
        place: EpisodeOrigin<'_>,
        actions: &[String],
        prompts: &Prompts,
    ) -> Result<KeptEpisode, PlayError> {
        let mut sample = KeptEpisode::played(episode, place, actions);
        for (number, turn) in sample.turns.iter_mut().enumerate() {
            turn.prompt = prompts.text(&AgentView::turn(episode, number))?;
        }
        Ok(sample)
    }

    /// Records an episode without prompts, for a player that is not a local model.
    pub fn played(episode: &Episode, place: EpisodeOrigin<'_>, actions: &[String]) -> KeptEpisode {
        let turn = |turn: &crate::Turn| KeptTurn {
            observation: turn.observation.clone(),
            prompt: String::new(),
            messages: Vec::new(),
            reply: turn.text.clone(),
            action: turn.action.map(|action| actions[action].clone()),
            unread: turn.unread,
            reward: turn.reward,
            shaping: turn.shaping,
            advantage: None,
        };
        KeptEpisode {
            step: place.step,
            purpose: place.purpose,
            game: place.game.map(str::to_owned),
            scene: place.scene.to_string(),
            agent: place.agent,
            game_return: episode.game_return(),
            composite_return: episode.composite_return(),
            advantage: None,
            chosen: None,
            success: episode.success,
            truncated: episode.ending == Some(EpisodeEnd::Truncated),
            turns: episode.turns.iter().map(turn).collect(),
            last: episode.last.clone(),
        }
    }

    /// Adds the messages before each reply, so that another model can imitate it.
    ///
    /// # Errors
    /// If a template fails.
    pub fn told(
        mut self,
        episode: &Episode,
        framing: &PromptWriter,
    ) -> Result<KeptEpisode, PlayError> {
        for (number, turn) in self.turns.iter_mut().enumerate() {
            turn.messages = framing.messages(&AgentView::turn(episode, number))?;
        }
        Ok(self)
    }

    /// Adds the advantages of the episode and of each turn, and whether it was selected.
    #[must_use]
    pub fn learned(mut self, advantage: f64, turns: &[f64], chosen: bool) -> KeptEpisode {
        self.advantage = Some(advantage);
        self.chosen = Some(chosen);
        for (turn, advantage) in self.turns.iter_mut().zip(turns) {
            turn.advantage = Some(*advantage);
        }
        self
    }
}
