//! The table of a run and its baselines.

use lapwing_lab::stats::wilson;
use lapwing_lab::text_table::TextTable;
use lapwing_play::metrics::{Baselines, PlayMetrics};

use crate::commands::eval::interval;

/// Returns a table of these players between the random and the scripted one, with the best possible return, over this
/// number of games. The success rate has its 95 % interval. "with penalty" is the return that training uses: invalid
/// replies reduce it.
pub fn comparison(
    baselines: &Baselines,
    players: &[(String, &PlayMetrics)],
    games: usize,
) -> String {
    let mut table = TextTable::new(&[
        "",
        "success",
        "95 %",
        "return",
        "with penalty",
        "valid",
        "length",
        "episodes",
    ]);
    let random = baselines.random.iter().map(|play| ("random player", play));
    let scripted = baselines.scripted.iter();
    let scripted = scripted.map(|play| ("scripted player", play));
    let players = players.iter().map(|(name, play)| (&**name, *play));
    for (name, play) in random.chain(players).chain(scripted) {
        table.row([
            name.to_owned(),
            format!("{:.3}", play.success_rate),
            interval(wilson(play.success_rate, games as f64)),
            format!("{:.3}", play.return_mean),
            format!("{:.3}", play.composite_return_mean),
            format!("{:.2}", play.valid_action_rate),
            format!("{:.1}", play.episode_length_mean),
            play.episodes.to_string(),
        ]);
    }
    if let Some(best) = baselines.best_possible {
        let mut cells = [const { String::new() }; 8];
        (cells[0], cells[3]) = ("best possible".to_owned(), format!("{best:.3}"));
        table.row(cells);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn players_are_compared() {
        let player = |success_rate: f64, valid_action_rate: f64| PlayMetrics {
            episodes: 200,
            return_mean: success_rate,
            composite_return_mean: success_rate - 10.0 * (1.0 - valid_action_rate),
            success_rate,
            valid_action_rate,
            episode_length_mean: 7.25,
            ..PlayMetrics::default()
        };
        let trained = player(0.5, 0.875);
        let baselines = Baselines {
            random: Some(player(0.055, 0.5)),
            scripted: Some(player(1.0, 1.0)),
            best_possible: Some(1.0),
            ..Baselines::default()
        };
        let players = [("after training".to_owned(), &trained)];
        assert_snapshot!(comparison(&baselines, &players, 200));
        let bare = Baselines {
            scripted: None,
            best_possible: None,
            ..baselines
        };
        let bare = comparison(&bare, &players, 200);
        assert!(
            !bare.contains("scripted") && !bare.contains("possible"),
            "{bare}"
        );
    }
}
