//! Scores of players on the same scenes, and their differences.

use serde::{Deserialize, Serialize};

use crate::stats::{interval, mean, success_interval};
use lapwing_env::Scenario;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::{Episode, Seat};

/// The result of one agent in one episode: a line of the file that `lapwing eval --out` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SceneScore {
    pub(crate) game: String,
    pub(crate) player: String,
    /// The seed of the scene, as text, since JavaScript would round it.
    pub(crate) scene: String,
    /// The agent of the game, from 0.
    pub(crate) agent: usize,
    /// The return of the game, without shaping.
    #[serde(rename = "return")]
    pub(crate) game_return: f64,
    /// The return with shaping, which training uses.
    pub(crate) composite_return: f64,
    /// Whether the game was won.
    pub(crate) success: bool,
    /// Whether the step limit ended it.
    pub(crate) truncated: bool,
    /// The number of turns.
    pub(crate) length: usize,
    /// The number of valid replies.
    pub(crate) valid: usize,
}

/// The scores of a player on some scenes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlayerScores {
    /// The player.
    pub player: String,
    /// Means over the episodes.
    #[serde(flatten)]
    pub play: PlayMetrics,
    /// The 95 % confidence interval of the mean return over the games, by Student's t.
    pub return_interval: [f64; 2],
    /// The 95 % confidence interval of the success rate over the games, after Wilson.
    pub success_interval: [f64; 2],
    /// The score of each scene.
    #[serde(skip)]
    pub scenes: Vec<SceneScore>,
}

impl PlayerScores {
    /// Computes the scores of a player from its episodes on these seats.
    ///
    /// # Panics
    /// If there are no episodes.
    pub fn of(
        scenario: &dyn Scenario,
        player: &str,
        seats: &[Seat],
        episodes: &[Episode],
    ) -> PlayerScores {
        let agents = episodes.len() / seats.len();
        let scene = |(number, episode): (usize, &Episode)| SceneScore {
            game: scenario.name().to_owned(),
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
        PlayerScores {
            player: player.to_owned(),
            play: PlayMetrics::of(scenario.actions(), episodes),
            return_interval: interval(&of_games(&scenes, |scene| scene.game_return)),
            success_interval: success_interval(&of_games(&scenes, success), agents),
            scenes,
        }
    }
}

/// The differences between two players, paired by scene.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The player.
    pub player: String,
    /// The player whose scores are subtracted.
    pub against: String,
    /// Mean difference of the returns.
    pub return_mean: f64,
    /// Its 95 % confidence interval over the games, by Student's t.
    pub return_interval: [f64; 2],
    /// Difference of the success rates.
    pub success_rate: f64,
    /// Its 95 % confidence interval over the games, by Student's t.
    pub success_interval: [f64; 2],
}

impl Difference {
    /// Computes the differences between two players.
    ///
    /// # Panics
    /// If they played different scenes.
    pub fn between(player: &PlayerScores, against: &PlayerScores) -> Difference {
        let pairs: Vec<_> = player.scenes.iter().zip(&against.scenes).collect();
        let same = |(a, b): &(&SceneScore, &SceneScore)| a.scene == b.scene && a.agent == b.agent;
        assert!(
            player.scenes.len() == against.scenes.len() && pairs.iter().all(same),
            "{} and {} played different scenes",
            player.player,
            against.player
        );
        let differences = |of: fn(&SceneScore) -> f64| -> Vec<f64> {
            let [own, other] = [player, against].map(|scores| of_games(&scores.scenes, of));
            own.iter().zip(other).map(|(a, b)| a - b).collect()
        };
        let returns = differences(|scene| scene.game_return);
        let successes = differences(success);
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

/// Returns the mean over the agents of each game: the agents of one game are not independent.
fn of_games(scenes: &[SceneScore], of: fn(&SceneScore) -> f64) -> Vec<f64> {
    let games = scenes.chunk_by(|_, next| next.agent > 0);
    games
        .map(|game| mean(&game.iter().map(of).collect::<Vec<_>>()))
        .collect()
}

fn success(scene: &SceneScore) -> f64 {
    f64::from(u8::from(scene.success))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_play::Turn;

    fn scores(player: &str, returns: &[f64]) -> PlayerScores {
        scores_of(player, returns, 1)
    }

    /// The scores of games whose agents all have the same return.
    fn scores_of(player: &str, returns: &[f64], agents: usize) -> PlayerScores {
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
        let seated = returns.iter().flat_map(|value| vec![value; agents]);
        let episodes: Vec<Episode> = seated.map(episode).collect();
        let (kind, options) = lapwing_env::find_variant("frozen-lake").unwrap();
        let scenario = (kind.configure)(&options).unwrap();
        PlayerScores::of(&*scenario, player, &seats, &episodes)
    }

    /// The scenes differ more than the players do: only the paired difference is significant.
    #[test]
    fn paired_differences_show_what_means_hide() {
        let scenes: Vec<f64> = (0..20).map(|i| f64::from(i * i)).collect();
        let better: Vec<f64> = scenes.iter().map(|value| value + 1.0).collect();
        let (one, other) = (scores("one", &better), scores("other", &scenes));
        let difference = Difference::between(&one, &other);
        assert_eq!(difference.return_mean, 1.0);
        assert_eq!(difference.return_interval, [1.0, 1.0]);
        assert!(one.return_interval[0] < other.return_interval[1]);
        let back = Difference::between(&other, &one);
        assert_eq!(back.return_mean, -1.0);
        // The only scene that is lost without the extra point.
        assert!((difference.success_rate - 0.05).abs() < 1e-12);
    }

    /// Two agents share the reward of each game, so two seats of a game say no more than one.
    #[test]
    fn agents_of_a_game_are_one_observation() {
        let returns: Vec<f64> = (0..20).map(|i| f64::from(i % 3)).collect();
        let [alone, both] = [1, 2].map(|agents| scores_of("one", &returns, agents));
        assert_eq!((alone.scenes.len(), both.scenes.len()), (20, 40));
        assert_eq!(both.return_interval, alone.return_interval);
        assert_eq!(both.success_interval, alone.success_interval);
        let nobody = scores_of("nobody", &[0.0; 20], 2);
        let alone = Difference::between(&alone, &scores("nobody", &[0.0; 20]));
        let both = Difference::between(&both, &nobody);
        assert_eq!(both.return_interval, alone.return_interval);
    }

    #[test]
    #[should_panic(expected = "played different scenes")]
    fn different_scenes_are_an_error() {
        Difference::between(&scores("a", &[1.0, 2.0]), &scores("b", &[1.0]));
    }
}
