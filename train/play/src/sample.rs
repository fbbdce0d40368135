//! Episodes that are kept whole, to be looked at: the lines of `episodes.jsonl`.

use lapwing_model::Message;
use serde::{Deserialize, Serialize};

use crate::PlayError;
use crate::prompt::Prompts;
use crate::{AgentView, Episode, EpisodeEnd, PromptWriter, UnreadReason};

/// What one agent of a game lived through, and what learning made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptEpisode {
    /// Training steps done when it was played.
    pub step: usize,
    /// Whether it was played to learn from or to examine.
    pub purpose: EpisodePurpose,
    /// The game, if it is one that is mixed in and not the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub game: Option<String>,
    /// The seed of the scene; equal numbers are equal scenes. As text, since it has more digits than JavaScript keeps.
    pub scene: String,
    /// Which agent of its game, from 0.
    pub agent: usize,
    /// What the game gave, without shaping.
    #[serde(rename = "return")]
    pub game_return: f64,
    /// The same with the shaping, which is what training goes by.
    pub composite_return: f64,
    /// How far it stood out in its group; only of what was played to learn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage: Option<f64>,
    /// Whether it was learned from; only of what was played to learn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<bool>,
    /// Whether the game counts it as won.
    pub success: bool,
    /// Whether the step limit ended it.
    pub truncated: bool,
    /// From the first to the last.
    pub turns: Vec<KeptTurn>,
    /// What the agent saw after the last turn.
    pub last: String,
}

/// What an episode was played for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EpisodePurpose {
    /// To learn from it.
    Training,
    /// To examine the policy.
    Evaluation,
}

/// One action of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptTurn {
    /// What the agent saw.
    pub observation: String,
    /// The whole prompt that this was put to the model in. Empty for a player that is no model of ours.
    pub prompt: String,
    /// The same as a conversation, which any model can be told; only where episodes are kept to be imitated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// What the model said.
    pub reply: String,
    /// The action; null if the reply could not be read.
    pub action: Option<String>,
    /// Why the reply could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<UnreadReason>,
    /// What the game gave.
    pub reward: f64,
    /// What the referee added: minus the format penalty, or zero.
    pub shaping: f64,
    /// How far the turn stood out; only of what was played to learn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage: Option<f64>,
}

/// Where an episode was played, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpisodeOrigin<'a> {
    /// Training steps done.
    pub step: usize,
    /// What for.
    pub purpose: EpisodePurpose,
    /// The game, if it is not the run's own.
    pub game: Option<&'a str>,
    /// The seed of the scene.
    pub scene: u64,
    /// Which agent.
    pub agent: usize,
}

impl KeptEpisode {
    /// An episode as it is kept.
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

    /// The same without prompts: of a player that is no model of ours.
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

    /// With what was told before each reply, as a conversation: so that another model can imitate it.
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

    /// With what learning made of it: the advantage of the whole and of each turn, and whether it was chosen.
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
