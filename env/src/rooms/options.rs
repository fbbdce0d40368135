//! The options of rooms.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use crate::OptionRange::Whole;
use crate::options::{LONGEST_EPISODE, OptionsError, Phrasing, View};
use crate::{DeclaredOptions, Scenario};

crate::options! {
    pub(super) struct RoomsOptions;
    /// the level of BabyAI, see the variants
    task: RoomsTask = RoomsTask::GotoLocal;
    /// whether to do the mission, or to avoid it: doing it then costs what it would bring
    goal: MissionGoal = MissionGoal::Do, if changed;
    /// the words left and right swap their meanings
    swapped: bool = false, if changed;
    /// the words of rules and missions
    wording: Phrasing = Phrasing::Usual, if changed;
    /// sentences with or without "You see" as in BALROG, and the signs of the picture
    symbols: Phrasing = Phrasing::Usual, if changed;
    /// steps of an episode, which rewards depend on; for `goto-maze` and `unlock-to-unlock` 60, for
    /// `blocked-unlock-pickup` 40
    step_limit: Option<usize> = None, in Whole(1, LONGEST_EPISODE);
    /// the field of view, or the whole house
    view: View = View::Board;
}

/// The tasks, after levels of BabyAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RoomsTask {
    GotoLocal,
    GotoMaze,
    PickupLoc,
    PickupDist,
    PutNextLocal,
    UnlockLocal,
    UnlockPickup,
    BlockedUnlockPickup,
    UnlockToUnlock,
}

/// Whether to do the mission: option `goal`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MissionGoal {
    Do,
    Avoid,
}

impl RoomsOptions {
    /// Reads the options and settles the step limit, whose default depends on the task.
    pub(crate) fn checked(given: &Value) -> Result<RoomsOptions, OptionsError> {
        let mut options = RoomsOptions::read(NAME, given)?;
        options.step_limit = Some(Scenario::step_limit(&options));
        Ok(options)
    }

    /// Whether the meaning of the instructions differs from the usual one.
    pub(crate) fn changed(&self) -> bool {
        self.goal != MissionGoal::Do || self.swapped
    }
}
