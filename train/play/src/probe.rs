//! Probes: does a player follow its instructions or its habits? This is the paper's second open question.
//!
//! A probe changes a game's instructions and its rewards with them. If the good actions by the changed and by the usual
//! instructions are disjoint, an action shows which of the two a player follows.
//!
//! The two sets of good actions differ in size, so a player that draws its actions evenly takes more actions of the larger
//! one. Each episode therefore has a lead: of its turns in which the instructions part, those that follow the changed
//! instructions minus those that follow the usual ones, minus what such a player would expect in the same turns. The turns
//! of an episode depend on each other, so the verdict counts episodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PlayError;
use crate::metrics::Lead;
use crate::{ActionRequest, Player, Reply};

/// Counts of the actions that follow the changed and the usual instructions, in the turns in which the two have no good
/// action in common.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeCounts {
    /// Turns in which the two have no good action in common.
    pub parted: usize,
    /// Actions in these turns that are good by the changed instructions.
    pub changed: usize,
    /// Actions in these turns that are good by the usual instructions.
    pub usual: usize,
    /// What a player that draws its actions evenly expects of `changed` in these turns.
    pub changed_by_chance: f64,
    /// The same of `usual`.
    pub usual_by_chance: f64,
}

impl ProbeCounts {
    /// Returns these counts as shares of the turns in which the instructions part, in the order of the fields; `None` if
    /// there is no such turn.
    pub fn shares(&self) -> Option<[f64; 4]> {
        let (changed, usual) = (self.changed as f64, self.usual as f64);
        let counts = [changed, usual, self.changed_by_chance, self.usual_by_chance];
        (self.parted > 0).then(|| counts.map(|count| count / self.parted as f64))
    }
}

/// The number of standard errors of a verdict. A game has several probes: at two, one verdict in twenty on a random player
/// would be wrong.
const CLEAR: f64 = 3.0;

/// A player that passes requests to another one and counts which instructions its actions follow.
pub struct ProbedPlayer<'a> {
    player: &'a mut dyn Player,
    /// the counts
    pub followed: ProbeCounts,
    /// The lead of each game with changed rules. The agents of a game share one.
    leads: BTreeMap<usize, f64>,
}

impl<'a> ProbedPlayer<'a> {
    /// Wraps this player.
    pub fn new(player: &'a mut dyn Player) -> ProbedPlayer<'a> {
        ProbedPlayer {
            player,
            followed: ProbeCounts::default(),
            leads: BTreeMap::new(),
        }
    }

    /// Returns the verdict on the episodes so far.
    pub fn verdict(&self) -> Verdict {
        let mut lead = Lead::default();
        self.leads.values().for_each(|episode| lead.add(*episode));
        match lead.standard_errors() {
            _ if self.leads.is_empty() => Verdict::SameMeaning,
            _ if self.followed.parted == 0 => Verdict::NotMet,
            ahead if ahead > CLEAR => Verdict::Reads,
            ahead if ahead < -CLEAR => Verdict::Overridden,
            _ => Verdict::Unclear,
        }
    }
}

impl Player for ProbedPlayer<'_> {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        let replies = self.player.act(asks)?;
        for (ask, reply) in asks.iter().zip(&replies) {
            let (Some(changed), Some(usual)) =
                (ask.game.best_actions(ask.agent), ask.game.habit(ask.agent))
            else {
                continue;
            };
            let lead = self.leads.entry(ask.episode - ask.agent).or_default();
            if changed.iter().any(|action| usual.contains(action)) {
                continue;
            }
            let followed = &mut self.followed;
            followed.parted += 1;
            let Some(action) = reply.action else { continue };
            let taken = |good: &[usize]| usize::from(good.contains(&action));
            let chance = |good: &[usize]| good.len() as f64 / ask.actions.len() as f64;
            let (new, old) = (taken(&changed), taken(&usual));
            let (new_by_chance, old_by_chance) = (chance(&changed), chance(&usual));
            followed.changed += new;
            followed.usual += old;
            followed.changed_by_chance += new_by_chance;
            followed.usual_by_chance += old_by_chance;
            *lead += (new as f64 - new_by_chance) - (old as f64 - old_by_chance);
        }
        Ok(replies)
    }
}

/// The verdict on a player in a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It follows the changed instructions more often than the usual ones, compared with chance.
    Reads,
    /// It follows the usual instructions more often: what it learned overrides the changed ones.
    Overridden,
    /// The difference is too small for this number of episodes.
    Unclear,
    /// In no turn did the two ask for different actions: too few episodes.
    NotMet,
    /// The probe changes words or signs only, so the good actions are the same.
    SameMeaning,
}

impl Verdict {
    /// Returns the text of the tables.
    pub fn in_words(self) -> &'static str {
        match self {
            Verdict::Reads => "reads",
            Verdict::Overridden => "overridden",
            Verdict::Unclear => "unclear",
            Verdict::NotMet => "not met",
            Verdict::SameMeaning => "same meaning",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Referee;
    use crate::evaluate::play_against;
    use crate::players::scripted::{RandomPlayer, ScriptedPlayer, word};
    use crate::scenes::Scenes;

    /// Plays by the usual instructions.
    struct HabitPlayer;

    impl Player for HabitPlayer {
        fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
            let habit = |ask: &ActionRequest<'_>| ask.game.habit(ask.agent).expect("changed rules");
            Ok(asks.iter().map(|ask| word(ask, habit(ask)[0])).collect())
        }
    }

    fn verdict(game: &str, probe: &str, episodes: usize, player: &mut dyn Player) -> Verdict {
        let kind = lapwing_env::find(game).unwrap();
        let options = (kind.probe(probe).unwrap().options)();
        let scenario = (kind.configure)(&options).unwrap();
        let scenes = Scenes::of(&*scenario).unwrap();
        let seats = scenes.evaluation(&*scenario, 1, episodes).unwrap();
        let referee = Referee::of(&*scenario, 1.0);
        let mut probed = ProbedPlayer::new(player);
        play_against(&*scenario, &referee, &seats, &mut probed, &mut [], &()).unwrap();
        probed.verdict()
    }

    /// A sign test of turns had a verdict on the random player in `holes`, `poison`, `avoid` and `low`.
    const PROBES: [(&str, &str); 7] = [
        ("frozen-lake", "holes"),
        ("frozen-lake", "swapped"),
        ("snake", "poison"),
        ("snake", "fires"),
        ("sokoban", "off"),
        ("rooms", "avoid"),
        ("2048", "low"),
    ];

    #[test]
    fn only_who_follows_the_changed_instructions_reads() {
        for (game, probe) in PROBES {
            let of = |player: &mut dyn Player| verdict(game, probe, 100, player);
            let name = format!("{game} {probe}");
            assert_eq!(of(&mut RandomPlayer::default()), Verdict::Unclear, "{name}");
            assert_eq!(of(&mut ScriptedPlayer::default()), Verdict::Reads, "{name}");
            assert_eq!(of(&mut HabitPlayer), Verdict::Overridden, "{name}");
        }
        let of_random = |probe| verdict("frozen-lake", probe, 20, &mut RandomPlayer::default());
        assert_eq!(of_random("wording"), Verdict::SameMeaning);
        let mut scripted = ScriptedPlayer::default();
        let few = verdict("frozen-lake", "exact", 1, &mut scripted);
        assert_eq!(few, Verdict::NotMet);
    }

    #[test]
    fn turns_of_one_episode_are_no_evidence_by_themselves() {
        let few = verdict("frozen-lake", "holes", 9, &mut ScriptedPlayer::default());
        assert_eq!(few, Verdict::Unclear);
    }
}
