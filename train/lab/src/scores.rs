//! How players did on the same scenes: scene by scene, in all, and against each other.

use serde::{Deserialize, Serialize};

use crate::stats::interval;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::{Episode, Seat};

/// How one agent of one game went: a line of the file that `lapwing eval --out` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SceneScore {
    /// The game.
    pub game: String,
    /// Who played.
    pub player: String,
    /// The seed of the scene; equal numbers are equal scenes. As text, since it has more digits than JavaScript keeps.
    pub scene: String,
    /// Which agent of its game, from 0.
    pub agent: usize,
    /// What the game gave, without shaping.
    #[serde(rename = "return")]
    pub game_return: f64,
    /// The same with the shaping, which is what training goes by.
    pub composite_return: f64,
    /// Whether the game counts it as won.
    pub success: bool,
    /// Whether the step limit ended it.
    pub truncated: bool,
    /// Turns.
    pub length: usize,
    /// Replies that could be read.
    pub valid: usize,
}

/// How a player did on some scenes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scores {
    /// Who played.
    pub player: String,
    /// How it went in all.
    #[serde(flatten)]
    pub play: PlayMetrics,
    /// The 95 % bootstrap interval of the mean return, over the episodes.
    pub return_interval: [f64; 2],
    /// That of the success rate.
    pub success_interval: [f64; 2],
    /// Scene by scene; written to a file of their own.
    #[serde(skip)]
    pub scenes: Vec<SceneScore>,
}

impl Scores {
    /// Those of a player who played these episodes of a game on these seats; `actions` are the words of the game.
    ///
    /// # Panics
    /// If there are no episodes.
    pub fn of(
        game: &str,
        player: &str,
        actions: &[String],
        seats: &[Seat],
        episodes: &[Episode],
    ) -> Scores {
        let agents = episodes.len() / seats.len();
        let scene = |(number, episode): (usize, &Episode)| SceneScore {
            game: game.to_owned(),
            player: player.to_owned(),
            scene: seats[number / agents].scene.to_string(),
            agent: number % agents,
            game_return: episode.game_return(),
            composite_return: episode.composite_return(),
            success: episode.success,
            truncated: episode.is_truncated(),
            length: episode.turns.len(),
            valid: episode.turns.iter().filter(|t| t.action.is_some()).count(),
        };
        let scenes: Vec<SceneScore> = episodes.iter().enumerate().map(scene).collect();
        Scores {
            player: player.to_owned(),
            play: PlayMetrics::of(actions, episodes),
            return_interval: over(&scenes, |scene| scene.game_return),
            success_interval: over(&scenes, won),
            scenes,
        }
    }
}

/// How far one player is ahead of another, scene by scene. Pairs take out what makes scenes easy or hard for both, so that
/// small differences show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Who is ahead, if the difference is above 0.
    pub player: String,
    /// Of whom.
    pub against: String,
    /// Mean difference of the returns.
    pub return_mean: f64,
    /// Its 95 % bootstrap interval, over the scenes.
    pub return_interval: [f64; 2],
    /// Difference of the success rates.
    pub success_rate: f64,
    /// Its 95 % bootstrap interval, over the scenes.
    pub success_interval: [f64; 2],
}

impl Difference {
    /// Between two who played the same scenes.
    ///
    /// # Panics
    /// If they did not.
    pub fn between(player: &Scores, against: &Scores) -> Difference {
        let pairs: Vec<_> = player.scenes.iter().zip(&against.scenes).collect();
        let same = |(a, b): &(&SceneScore, &SceneScore)| a.scene == b.scene && a.agent == b.agent;
        assert!(
            player.scenes.len() == against.scenes.len() && pairs.iter().all(same),
            "{} and {} played different scenes",
            player.player,
            against.player
        );
        let ahead = |of: fn(&SceneScore) -> f64| -> Vec<f64> {
            pairs.iter().map(|(a, b)| of(a) - of(b)).collect()
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (returns, successes) = (ahead(|scene| scene.game_return), ahead(won));
        Difference {
            player: player.player.clone(),
            against: against.player.clone(),
            return_mean: mean(&returns),
            return_interval: interval(&returns),
            success_rate: mean(&successes),
            success_interval: interval(&successes),
        }
    }
}

fn over(scenes: &[SceneScore], of: impl Fn(&SceneScore) -> f64) -> [f64; 2] {
    interval(&scenes.iter().map(of).collect::<Vec<f64>>())
}

fn won(scene: &SceneScore) -> f64 {
    f64::from(u8::from(scene.success))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_play::Turn;

    fn scores(player: &str, returns: &[f64]) -> Scores {
        let seat = |scene| Seat {
            scene,
            luck: 0,
            reply: 0,
        };
        let seats: Vec<Seat> = (0..returns.len() as u64).map(seat).collect();
        let episode = |reward: &f64| Episode {
            turns: vec![Turn {
                reward: *reward,
                action: Some(0),
                ..Turn::default()
            }],
            success: *reward > 0.0,
            ..Episode::default()
        };
        let episodes: Vec<Episode> = returns.iter().map(episode).collect();
        Scores::of("game", player, &["go".to_owned()], &seats, &episodes)
    }

    /// Scenes differ by far more than the players do; by pairs the difference is certain, by means it is not.
    #[test]
    fn pairs_show_what_means_hide() {
        let scenes: Vec<f64> = (0..20).map(|i| f64::from(i * i)).collect();
        let better: Vec<f64> = scenes.iter().map(|value| value + 1.0).collect();
        let (one, other) = (scores("one", &better), scores("other", &scenes));
        let difference = Difference::between(&one, &other);
        assert_eq!(difference.return_mean, 1.0);
        assert_eq!(difference.return_interval, [1.0, 1.0]);
        assert!(one.return_interval[0] < other.return_interval[1]);
        let back = Difference::between(&other, &one);
        assert_eq!(back.return_mean, -1.0);
        // The one scene that is lost without the point.
        assert!((difference.success_rate - 0.05).abs() < 1e-12);
    }

    #[test]
    #[should_panic(expected = "played different scenes")]
    fn different_scenes_are_no_pairs() {
        Difference::between(&scores("a", &[1.0, 2.0]), &scores("b", &[1.0]));
    }
}
