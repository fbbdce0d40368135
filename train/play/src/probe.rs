//! Probes: does a player follow its instructions or its habits? This is the paper's second open question.
//!
//! A probe changes a game's instructions and its rewards with them. If the good actions by the changed and by the usual
//! instructions are disjoint, an action shows which of the two a player follows.

use crate::PlayError;
use crate::{ActionRequest, Player, Reply};

/// Counts of actions that follow the changed and the usual instructions, over the turns in which the two have no good
/// action in common.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct ProbeCounts {
    /// Turns in which the two have no good action in common.
    pub parted: usize,
    /// Actions in these turns that are good by the changed instructions.
    pub told: usize,
    /// Actions in these turns that are good by the usual instructions.
    pub habit: usize,
}

/// A player that passes requests to another one and counts which instructions its actions follow.
pub struct ProbedPlayer<'a> {
    player: &'a mut dyn Player,
    /// the counts
    pub followed: ProbeCounts,
}

impl<'a> ProbedPlayer<'a> {
    /// Wraps this player.
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

/// The verdict on a player in a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It follows the changed instructions more often than habit.
    Reads,
    /// It follows habit more often than the changed instructions: what it learned overrides them.
    Overridden,
    /// The difference is too small for this number of turns.
    Unclear,
    /// The probe changes words or signs only, so there is always a common good action.
    SameMeaning,
}

impl Verdict {
    /// Returns the text of the tables.
    pub fn in_words(self) -> &'static str {
        match self {
            Verdict::Reads => "reads",
            Verdict::Overridden => "overridden",
            Verdict::Unclear => "unclear",
            Verdict::SameMeaning => "same meaning",
        }
    }

    /// Returns the verdict of a sign test over the turns that followed one of the two, at two standard errors.
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
