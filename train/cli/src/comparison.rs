//! The table of a run and its baselines.

use lapwing_lab::text_table::TextTable;
use lapwing_play::metrics::{Baselines, PlayMetrics};

/// Returns a table of these players between the random and the scripted one, with the best possible return. The success
/// rate has its standard error. "with penalty" is the return that training uses: invalid replies reduce it.
pub fn comparison(baselines: &Baselines, players: &[(String, &PlayMetrics)]) -> String {
    let mut table = TextTable::new(&[
        "",
        "success",
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
        let (success, episodes) = (play.success_rate, play.episodes);
        let error = (success * (1.0 - success) / episodes as f64).sqrt();
        table.row([
            name.to_owned(),
            format!("{success:.3} ± {error:.3}"),
            format!("{:.3}", play.return_mean),
            format!("{:.3}", play.composite_return_mean),
            format!("{:.2}", play.valid_action_rate),
            format!("{:.1}", play.episode_length_mean),
            episodes.to_string(),
        ]);
    }
    if let Some(best) = baselines.best_possible {
        let mut cells = [const { String::new() }; 7];
        (cells[0], cells[2]) = ("best possible".to_owned(), format!("{best:.3}"));
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
        assert_snapshot!(comparison(&baselines, &players));
        let bare = Baselines {
            scripted: None,
            best_possible: None,
            ..baselines
        };
        let bare = comparison(&bare, &players);
        assert!(
            !bare.contains("scripted") && !bare.contains("possible"),
            "{bare}"
        );
    }
}
