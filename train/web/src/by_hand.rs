//! A game that a person plays against the model, one turn at a time.

use std::collections::BTreeMap;

use lapwing_play::players::model::ModelPlayer;
use lapwing_play::players::scripted::word;
use lapwing_play::{ActionRequest, AgentView, Episode, PlayError, Player, Reply, Seat};
use lapwing_train::state::State;
use serde::Serialize;

use crate::words::{Word, words};

/// A game by hand. Every turn plays the game again from its start, with the replies so far, so that the usual referee
/// can be used, which does not pause.
pub struct ByHand {
    state: State,
    seat: Seat,
    /// the agents that the person plays
    human: Vec<usize>,
    /// by agent and turn
    replies: BTreeMap<(usize, usize), Reply>,
    turns: usize,
}

/// The game after a turn.
#[derive(Debug, Serialize)]
pub struct HandView {
    game: String,
    /// what the first agent of the person sees; without one, the first agent
    observation: String,
    actions: Vec<String>,
    turn: usize,
    over: bool,
    success: bool,
    agents: Vec<AgentScore>,
    /// the model's replies of the last turn
    moves: Vec<ModelMove>,
}

#[derive(Debug, Serialize)]
struct AgentScore {
    human: bool,
    #[serde(rename = "return")]
    game_return: f64,
}

#[derive(Debug, Serialize)]
struct ModelMove {
    agent: usize,
    prompt: String,
    reply: String,
    action: Option<String>,
    words: Vec<Word>,
}

/// Takes the replies so far, asks the model for those of the next turn, and leaves after it.
struct HandPlayer<'a> {
    model: ModelPlayer<'a>,
    human: &'a [usize],
    replies: &'a mut BTreeMap<(usize, usize), Reply>,
    /// the person's action in the last turn
    action: Option<usize>,
    turns: usize,
    /// what each agent saw when the player left
    seen: BTreeMap<usize, String>,
}

impl Player for HandPlayer<'_> {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        if asks[0].turn == self.turns {
            let seen = |ask: &ActionRequest<'_>| (ask.agent, ask.seen.observation.to_owned());
            self.seen = asks.iter().map(seen).collect();
            return Err(PlayError::Left);
        }
        for ask in asks {
            let at = (ask.agent, ask.turn);
            if self.replies.contains_key(&at) {
                continue;
            }
            let reply = match self.action.filter(|_| self.human.contains(&ask.agent)) {
                Some(action) => word(ask, action),
                None => {
                    let ask = std::slice::from_ref(ask);
                    self.model.act(ask)?.remove(0)
                }
            };
            self.replies.insert(at, reply);
        }
        let replies = asks
            .iter()
            .map(|ask| self.replies[&(ask.agent, ask.turn)].clone());
        Ok(replies.collect())
    }
}

impl ByHand {
    /// Starts a game on this scene. The state must be one for playing.
    pub fn new(state: State, seed: u64, human: Vec<usize>) -> ByHand {
        ByHand {
            state,
            seat: Seat::of(seed),
            human,
            replies: BTreeMap::new(),
            turns: 0,
        }
    }

    /// Plays a turn, with this action of the person.
    ///
    /// # Errors
    /// If there is no such action, or it is missing; if the game or the model fails.
    pub fn play(&mut self, action: Option<&str>) -> Result<HandView, String> {
        let actions = self.state.world().scenario.actions();
        let action = match (action, self.human.is_empty()) {
            (Some(name), false) => {
                let found = actions.iter().position(|action| action == name);
                Some(found.ok_or_else(|| format!("{name} is none of {}", actions.join(", ")))?)
            }
            (None, false) => return Err(format!("choose one of {}", actions.join(", "))),
            (_, true) => None,
        };
        self.turns += 1;
        self.show(action)
    }

    /// Returns the game as it is.
    ///
    /// # Errors
    /// If the game or the model fails.
    pub fn view(&mut self) -> Result<HandView, String> {
        self.show(None)
    }

    fn show(&mut self, action: Option<usize>) -> Result<HandView, String> {
        let temperature = self.state.config.eval.temperature;
        let (scenario, referee, model) = self.state.seated(0, temperature);
        let mut player = HandPlayer {
            model,
            human: &self.human,
            replies: &mut self.replies,
            action,
            turns: self.turns,
            seen: BTreeMap::new(),
        };
        let seats = std::slice::from_ref(&self.seat);
        let played = referee.play(scenario, seats, &mut [&mut player], &mut |_| ());
        let episodes = played.map_err(|e| e.to_string())?;
        let seen = player.seen;
        let viewer = self.human.first().copied().unwrap_or(0);
        let own = &episodes[viewer];
        let actions = scenario.actions().to_vec();
        let score = |(agent, episode): (usize, &Episode)| AgentScore {
            human: self.human.contains(&agent),
            game_return: episode.game_return(),
        };
        Ok(HandView {
            game: scenario.name().to_owned(),
            observation: seen.get(&viewer).unwrap_or(&own.last).clone(),
            turn: own.turns.len(),
            over: own.ending.is_some(),
            success: own.success,
            agents: episodes.iter().enumerate().map(score).collect(),
            moves: self.moves(&episodes, &actions)?,
            actions,
        })
    }

    /// Returns the model's replies of the last turn.
    fn moves(
        &mut self,
        episodes: &[Episode],
        actions: &[String],
    ) -> Result<Vec<ModelMove>, String> {
        let mut moves = Vec::new();
        let Some(last) = self.turns.checked_sub(1) else {
            return Ok(moves);
        };
        let learner = &mut self.state.learner;
        for (agent, episode) in episodes.iter().enumerate() {
            let Some(turn) = episode.turns.get(last) else {
                continue;
            };
            if self.human.contains(&agent) {
                continue;
            }
            let prompts = &learner.worlds[0].prompts;
            let prompt = prompts.text(&AgentView::turn(episode, last));
            let prompt = prompt.map_err(|e| e.to_string())?;
            let words = words(&mut learner.policy, prompts.tokenizer(), &prompt, true)?;
            moves.push(ModelMove {
                agent,
                prompt,
                reply: turn.text.clone(),
                action: turn.action.map(|action| actions[action].clone()),
                words,
            });
        }
        Ok(moves)
    }
}
