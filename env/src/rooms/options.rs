//! The options of rooms.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use crate::options::{
    GameOption, OptionsError, Put, View, option, read, unless_null, unless_usual, within,
};

pub(super) const OPTIONS: &[GameOption] = &[
    option(
        "task",
        "what is asked for",
        "goto-local, goto-maze, pickup-loc, pickup-dist, put-next-local, unlock-local, unlock-pickup, blocked-unlock-pickup or unlock-to-unlock",
    ),
    option(
        "goal",
        "whether the mission is to be done or left undone",
        "do or avoid",
    ),
    option(
        "swapped",
        "the words left and right have changed their meaning",
        "true or false",
    ),
    option(
        "wording",
        "how rules and missions are put",
        "usual or other",
    ),
    option(
        "symbols",
        "sentences as always or without \"You see\", and the signs of the picture",
        "usual or other",
    ),
    option(
        "step_limit",
        "steps of an episode, also for what success brings",
        "1 to 100000",
    ),
    option(
        "view",
        "what the agent sees, or the whole house",
        "board or full",
    ),
];

/// The tasks, after levels of BabyAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
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

/// What is to become of the mission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Goal {
    #[default]
    Do,
    Avoid,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Options {
    pub task: Task,
    #[serde(serialize_with = "unless_usual")]
    pub goal: Goal,
    #[serde(serialize_with = "unless_usual")]
    pub swapped: bool,
    #[serde(serialize_with = "unless_usual")]
    pub wording: Put,
    #[serde(serialize_with = "unless_usual")]
    pub symbols: Put,
    #[serde(deserialize_with = "unless_null")]
    step_limit: Option<usize>,
    pub view: View,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            task: Task::GotoLocal,
            goal: Goal::Do,
            swapped: false,
            wording: Put::Usual,
            symbols: Put::Usual,
            step_limit: None,
            view: View::Board,
        }
    }
}

impl Options {
    /// Reads the options and settles the step limit, which each task has its own of.
    pub fn checked(given: &Value) -> Result<Options, OptionsError> {
        let mut options: Options = read(NAME, given)?;
        within(NAME, "step_limit", options.step_limit(), 1..=100_000)?;
        options.step_limit = Some(options.step_limit());
        Ok(options)
    }

    pub fn step_limit(&self) -> usize {
        self.step_limit.unwrap_or(match self.task {
            Task::GotoMaze | Task::UnlockToUnlock => 60,
            Task::BlockedUnlockPickup => 40,
            _ => 20,
        })
    }

    /// Whether the agent is told to do something else than the usual instructions say.
    pub fn changed(&self) -> bool {
        self.goal != Goal::Do || self.swapped
    }

    /// What an action word does, and the word that does it: swapping is its own inverse.
    pub fn meaning(&self, action: usize) -> usize {
        match action {
            0 | 1 if self.swapped => 1 - action,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_option() {
        let listed: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
        assert_eq!(listed, crate::options::names::<Options>());
    }
}
