//! Who reads what it is told, and who plays on as it is used to: the paper's second open question.
//!
//! A probe changes a game's instructions and its rewards with them. Where the scripted player would do one thing by the
//! changed instructions and another by the usual ones, an action shows which of the two a player goes by.

use crate::PlayError;
use crate::{ActionRequest, Player, Reply};

/// How often a player did what it was told and what it is used to, in the turns in which the two have no action in common.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Turns in which the two part.
    pub parted: usize,
    /// Of these, actions that the changed instructions ask for.
    pub told: usize,
    /// Of these, actions that the usual instructions would have asked for.
    pub habit: usize,
}

/// Plays as another does, and counts by which instructions that one goes.
pub struct ProbedPlayer<'a> {
    player: &'a mut dyn Player,
    /// what was counted
    pub followed: ProbeCounts,
}

impl<'a> ProbedPlayer<'a> {
    /// Watches this player.
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

/// What a player made of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It goes by what it is told, more often than by habit.
    Reads,
    /// It goes by habit, more often than by what it is told: what it learned has overridden the instructions.
    Overridden,
    /// Neither, as far as so few turns can show, or it hardly does either.
    Unclear,
    /// There is nothing to part the two: the probe changes words or signs, not what is good to do.
    SameMeaning,
}

impl Verdict {
    /// For people.
    pub fn in_words(self) -> &'static str {
        match self {
            Verdict::Reads => "reads",
            Verdict::Overridden => "overridden",
            Verdict::Unclear => "unclear",
            Verdict::SameMeaning => "same meaning",
        }
    }

    /// From what was counted: a sign test over the turns that went by one of the two, at two standard errors.
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
