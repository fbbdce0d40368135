//! Evaluations: any player, on scenes that training never plays.

use lapwing_env::Scenario;

use crate::PlayError;
use crate::Progress;
use crate::metrics::{Baselines, PlayMetrics};
use crate::players::scripted::{RandomPlayer, ScriptedPlayer};
use crate::{Episode, Player, Referee, Seat};

/// Plays on these seats with one player against others, or without others on all sides. Sides are assigned in turn,
/// starting with this player. Returns only its own episodes.
///
/// # Errors
/// If the game or a player fails.
pub fn play_against(
    scenario: &dyn Scenario,
    referee: &Referee,
    seats: &[Seat],
    player: &mut dyn Player,
    others: &mut [&mut dyn Player],
    progress: &dyn Progress,
) -> Result<Vec<Episode>, PlayError> {
    let limit = referee.step_limit;
    let mut watch = |episodes: &[Episode]| progress.done(Episode::played(episodes, limit));
    let mut players: Vec<&mut dyn Player> = vec![&mut *player];
    for other in others {
        players.push(&mut **other);
    }
    let episodes = referee.play(scenario, seats, &mut players, &mut watch)?;
    if let Some(told) = Episode::accidents(&episodes) {
        progress.note(&told);
    }
    let (agents, sides) = (scenario.agents(), players.len());
    let is_own = |(e, _): &(usize, Episode)| (e % agents).is_multiple_of(sides);
    let own = episodes.into_iter().enumerate().filter(is_own);
    Ok(own.map(|(_, episode)| episode).collect())
}

/// Returns the baselines of an evaluation on these seats, which follow from `seed`.
///
/// # Errors
/// If the game fails.
pub fn baselines(
    scenario: &dyn Scenario,
    referee: &Referee,
    seats: &[Seat],
    seed: u64,
) -> Result<Baselines, PlayError> {
    let played = baseline_episodes(scenario, referee, seats, &mut [])?;
    let of = |episodes: Vec<Episode>| PlayMetrics::of(scenario.actions(), &episodes);
    Ok(Baselines {
        game: scenario.name().to_owned(),
        seed,
        random: played.random.map(of),
        scripted: played.scripted.map(of),
        best_possible: optimum(scenario, seats)?,
    })
}

/// The episodes of players without a model.
pub struct BaselineEpisodes {
    /// The random player, unless the game takes any text.
    pub random: Option<Vec<Episode>>,
    /// The game's own player, if it has one.
    pub scripted: Option<Vec<Episode>>,
}

/// Plays on these seats with the players that need no model, against the given others or, without others, on all sides.
///
/// # Errors
/// If the game fails.
pub fn baseline_episodes(
    scenario: &dyn Scenario,
    referee: &Referee,
    seats: &[Seat],
    others: &mut [&mut dyn Player],
) -> Result<BaselineEpisodes, PlayError> {
    let mut of =
        |player: &mut dyn Player| play_against(scenario, referee, seats, player, others, &());
    // Dropped before others play: an external environment may have few places.
    let scripted = {
        let game = scenario.start(seats[0].scene, seats[0].luck)?;
        game.best_actions(0).is_some()
    };
    Ok(BaselineEpisodes {
        random: match scenario.takes_text() {
            true => None,
            false => Some(of(&mut RandomPlayer::default())?),
        },
        scripted: match scripted {
            true => Some(of(&mut ScriptedPlayer::default())?),
            false => None,
        },
    })
}

/// Returns the highest mean return that any player can expect on these seats, if the game can compute it.
///
/// # Errors
/// If the game fails.
pub fn optimum(scenario: &dyn Scenario, seats: &[Seat]) -> Result<Option<f64>, PlayError> {
    let mut sum = 0.0;
    for seat in seats {
        let game = scenario.start(seat.scene, seat.luck)?;
        for agent in 0..scenario.agents() {
            match game.optimum(agent) {
                Some(best) => sum += best,
                None => return Ok(None),
            }
        }
    }
    Ok(Some(sum / (seats.len() * scenario.agents()) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenes::Scenes;

    #[test]
    fn the_scripted_player_crosses_firm_ice_and_the_random_one_hardly_does() {
        let lake =
            (lapwing_env::find("frozen-lake").unwrap().configure)(&serde_json::json!({})).unwrap();
        let seats = Scenes::of(&*lake)
            .unwrap()
            .evaluation(&*lake, 1, 200)
            .unwrap();
        let referee = Referee {
            step_limit: lake.step_limit(),
            format_penalty: 1.0,
        };
        let play = |player: &mut dyn Player| {
            let episodes = play_against(&*lake, &referee, &seats, player, &mut [], &()).unwrap();
            PlayMetrics::of(lake.actions(), &episodes)
        };
        let (scripted, random) = (
            play(&mut ScriptedPlayer::default()),
            play(&mut RandomPlayer::default()),
        );
        assert_eq!((scripted.success_rate, scripted.return_mean), (1.0, 1.0));
        assert_eq!(optimum(&*lake, &seats).unwrap(), Some(1.0));
        // About 0.06, with a standard error of 0.017.
        assert!(random.success_rate < 0.15, "{random:?}");
        assert_eq!(random.return_mean, random.success_rate);
        assert!(random.episode_length_mean <= lake.step_limit() as f64);
        assert_eq!(play(&mut RandomPlayer::default()), random);
    }
}
