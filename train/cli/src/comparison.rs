//! Tables of players and their scores.

use lapwing_lab::stats::wilson;
use lapwing_lab::text_table::TextTable;
use lapwing_play::metrics::{Baselines, PlayMetrics};

/// A row of a table: names of columns and cells.
pub type Row = Vec<(&'static str, String)>;

/// Returns the row of a player. "with penalty" is the return that training uses: invalid replies reduce it. Without the
/// interval of the mean return, its standard deviation is left out, too; without `replies`, the columns about them.
pub fn row(
    name: &str,
    play: &PlayMetrics,
    success: [f64; 2],
    returns: Option<[f64; 2]>,
    replies: bool,
) -> Row {
    let mut row = vec![
        ("", name.to_owned()),
        ("success", format!("{:.3}", play.success_rate)),
        ("95 %", interval(success)),
        ("return", format!("{:.3}", play.return_mean)),
    ];
    if let Some(returns) = returns {
        row.push(("std", format!("{:.3}", play.return_std)));
        row.push(("95 %", interval(returns)));
    }
    if replies {
        row.push(("with penalty", format!("{:.3}", play.composite_return_mean)));
        row.push(("valid", format!("{:.2}", play.valid_action_rate)));
    }
    row.push(("length", format!("{:.1}", play.episode_length_mean)));
    row.push(("episodes", play.episodes.to_string()));
    row
}

/// Returns the last row.
pub fn best_possible(best: f64) -> Row {
    let name = ("", "best possible".to_owned());
    vec![name, ("return", format!("{best:.3}"))]
}

/// Formats an interval; a dash for that of a single game, or of equal results, which show no spread.
pub fn interval([low, high]: [f64; 2]) -> String {
    match low.is_finite() && low < high {
        true => format!("{low:.3} to {high:.3}"),
        false => "-".to_owned(),
    }
}

/// Returns a table of these players between the random and the scripted one, with the best possible return, over this
/// number of games.
pub fn comparison(
    baselines: &Baselines,
    players: &[(String, &PlayMetrics)],
    games: usize,
) -> String {
    let random = baselines.random.iter().map(|play| ("random player", play));
    let scripted = baselines.scripted.iter();
    let scripted = scripted.map(|play| ("scripted player", play));
    let replies = players.iter().any(|(_, play)| play.replies.is_some());
    let players = players.iter().map(|(name, play)| (&**name, *play));
    let row = |(name, play): (&str, &PlayMetrics)| {
        let success = wilson(play.success_rate, games as f64);
        row(name, play, success, None, replies)
    };
    let rows = random.chain(players).chain(scripted).map(row);
    TextTable::of(rows.chain(baselines.best_possible.map(best_possible))).text()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use lapwing_play::metrics::ReplyMetrics;

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
            replies: Some(ReplyMetrics::default()),
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
        // A network makes no invalid reply.
        let network = PlayMetrics {
            replies: None,
            ..player(0.5, 1.0)
        };
        let players = [("after training".to_owned(), &network)];
        assert_snapshot!(comparison(&Baselines::default(), &players, 200), @"
                        success            95 %  return  length  episodes
        after training    0.500  0.431 to 0.569   0.500     7.2       200
        ");
    }
}
