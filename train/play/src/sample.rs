//! Complete episodes as records: the lines of `episodes.jsonl`.

use lapwing_model::Message;
use serde::{Deserialize, Serialize};

use crate::PlayError;
use crate::prompt::Prompts;
use crate::{AgentView, Episode, PromptWriter, UnreadReason};

/// The episode of one agent, with its advantages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptEpisode {
    /// Training steps completed when it was played.
    pub step: usize,
    /// Whether it is from training or from an evaluation.
    pub purpose: EpisodePurpose,
    /// The game, if it is a mixed-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub game: Option<String>,
    /// The seed of the scene; equal seeds are equal scenes. Text, because JavaScript rounds large numbers.
    pub scene: String,
    /// Index of the agent in its game.
    pub agent: usize,
    /// Return of the game, without shaping.
    #[serde(rename = "return")]
    pub game_return: f64,
    /// Return with shaping, which training uses.
    pub composite_return: f64,
    /// Advantage of the episode; training only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage: Option<f64>,
    /// Whether the episode was selected for the update; training only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<bool>,
    /// Whether the game counts it as won.
    pub success: bool,
    /// Whether the step limit ended it.
    pub truncated: bool,
    /// The turns in order.
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
    /// Neither: of `lapwing play --json`.
    Play,
}

/// One action of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptTurn {
    /// The observation.
    pub observation: String,
    /// The whole prompt. Empty for a player that is not one of our models.
    pub prompt: String,
    /// The prompt as a conversation, which any model can read; only in episodes kept for imitation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// The reply.
    pub reply: String,
    /// The action; null if the reply was unreadable.
    pub action: Option<String>,
    /// Why the reply was unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<UnreadReason>,
    /// Reward of the game.
    pub reward: f64,
    /// Reward of the referee: minus the format penalty, or zero.
    pub shaping: f64,
    /// Advantage of the turn; training only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage: Option<f64>,
}

/// Where and when an episode was played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpisodeOrigin<'a> {
    /// Training steps completed.
    pub step: usize,
    /// Its purpose.
    pub purpose: EpisodePurpose,
    /// The game, if it is not the run's own.
    pub game: Option<&'a str>,
    /// The seed of the scene.
    pub scene: u64,
    /// Index of the agent.
    pub agent: usize,
}

impl KeptEpisode {
    /// Makes the record of an episode. Only our models have prompts.
    ///
    /// # Errors
    /// If a template fails.
    pub fn of(
        episode: &Episode,
        place: EpisodeOrigin<'_>,
        actions: &[String],
        prompts: Option<&Prompts>,
    ) -> Result<KeptEpisode, PlayError> {
        let turn = |(number, turn): (usize, &crate::Turn)| {
            let prompt = prompts.map(|prompts| prompts.text(&AgentView::turn(episode, number)));
            Ok(KeptTurn {
                observation: turn.observation.clone(),
                prompt: prompt.transpose()?.unwrap_or_default(),
                messages: Vec::new(),
                reply: turn.text.clone(),
                action: turn.action.map(|action| actions[action].clone()),
                unread: turn.unread,
                reward: turn.reward,
                shaping: turn.shaping,
                advantage: None,
            })
        };
        let turns = episode.turns.iter().enumerate().map(turn);
        Ok(KeptEpisode {
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
            truncated: episode.is_truncated(),
            turns: turns.collect::<Result<_, PlayError>>()?,
            last: episode.last.clone(),
        })
    }

    /// Adds the conversation before each reply, so that another model can imitate the episode.
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

    /// Adds the advantages of the episode and of each turn, and whether the episode was selected.
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
