//! Whether a player follows changed instructions or its habits: the paper's second open question.
//!
//! A probe changes a game's instructions and its rewards with them. In turns where the scripted player's best actions
//! under the changed and the usual instructions are disjoint, an action shows which instructions a player follows.

use crate::PlayError;
use crate::{ActionRequest, Player, Reply};

/// Counts over the turns in which the changed and the usual instructions have no best action in common.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Number of these turns.
    pub parted: usize,
    /// Actions of the changed instructions.
    pub told: usize,
    /// Actions of the usual instructions.
    pub habit: usize,
}

/// A player that passes requests to another and counts which instructions that one follows.
pub struct ProbedPlayer<'a> {
    player: &'a mut dyn Player,
    /// The counts so far.
    pub followed: ProbeCounts,
}

impl<'a> ProbedPlayer<'a> {
    /// Creates a player that counts the actions of `player`.
    pub fn new(player: &'a mut dyn Player) -> ProbedPlayer<'a> {
        ProbedPlayer {
            player,
            followed: ProbeCounts::default(),
        }
    }
}

impl Player for ProbedPlayer<'_> {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        let replies = self.player.act(asks)?;
        for (ask, reply) in asks.iter().zip(&replies) {
            let (Some(told), Some(habit)) =
                (ask.game.best_actions(ask.agent), ask.game.habit(ask.agent))
            else {
                continue;
            };
            if told.iter().any(|action| habit.contains(action)) {
                continue;
            }
            let followed = &mut self.followed;
            followed.parted += 1;
            let Some(action) = reply.action else { continue };
            followed.told += usize::from(told.contains(&action));
            followed.habit += usize::from(habit.contains(&action));
        }
        Ok(replies)
    }
}

/// The conclusion from a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It follows the changed instructions more often than the usual ones.
    Reads,
    /// It follows the usual instructions more often: training has overridden the changed ones.
    Overridden,
    /// Neither is significant, or it rarely follows either.
    Unclear,
    /// The probe changes words or symbols only, so that the best actions are the same.
    SameMeaning,
}

impl Verdict {
    /// Returns the verdict in plain words.
    pub fn in_words(self) -> &'static str {
        match self {
            Verdict::Reads => "reads",
            Verdict::Overridden => "overridden",
            Verdict::Unclear => "unclear",
            Verdict::SameMeaning => "same meaning",
        }
    }

    /// Computes the verdict: a sign test over the turns that followed either, at two standard errors.
    pub fn of(followed: &ProbeCounts) -> Verdict {
        if followed.parted == 0 {
            return Verdict::SameMeaning;
        }
        let (told, habit) = (followed.told as f64, followed.habit as f64);
        let error = (told + habit).sqrt();
        match told - habit {
            ahead if ahead > 2.0 * error => Verdict::Reads,
            ahead if -ahead > 2.0 * error => Verdict::Overridden,
            _ => Verdict::Unclear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_more_than_chance() {
        let of = |told, habit| {
            Verdict::of(&ProbeCounts {
                parted: 100,
                told,
                habit,
            })
        };
        assert_eq!(of(60, 20), Verdict::Reads);
        assert_eq!(of(20, 60), Verdict::Overridden);
        assert_eq!(of(30, 25), Verdict::Unclear);
        assert_eq!(of(0, 0), Verdict::Unclear);
        assert_eq!(Verdict::of(&ProbeCounts::default()), Verdict::SameMeaning);
    }
}
