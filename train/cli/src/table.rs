//! Players beside each other, for people.

use lapwing_train::record::metrics::EvalMetrics;

/// A row for each player, and one for the best possible if that is known. The spread of the success rate is its standard
/// error. `with penalty` is the return that training sees, where replies that cannot be read cost something.
pub fn comparison(players: &[(&str, &EvalMetrics)], optimum: Option<f64>) -> String {
    const OPTIMUM: &str = "best possible";
    let names = players
        .iter()
        .map(|(name, _)| *name)
        .chain(optimum.map(|_| OPTIMUM));
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = format!(
        "{:width$}  success        return  with penalty  valid  length  episodes\n",
        ""
    );
    for (name, player) in players {
        let (success, episodes) = (player.success_rate, player.episodes);
        let error = (success * (1.0 - success) / episodes as f64).sqrt();
        text += &format!(
            "{name:width$}  {success:.3} ± {error:.3}  {:>6.3}  {:>12.3}  {:>5.2}  {:>6.1}  {episodes:>8}\n",
            player.return_mean,
            player.composite_return_mean,
            player.valid_action_rate,
            player.episode_length_mean,
        );
    }
    if let Some(best) = optimum {
        text += &format!("{OPTIMUM:width$}  {:13}  {best:>6.3}\n", "");
    }
    text
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn a_comparison_reads_so() {
        let player = |success_rate: f64, valid_action_rate: f64| EvalMetrics {
            game: "frozen-lake".to_owned(),
            episodes: 200,
            return_mean: success_rate,
            composite_return_mean: success_rate - 10.0 * (1.0 - valid_action_rate),
            success_rate,
            valid_action_rate,
            episode_length_mean: 7.25,
        };
        let (random, best) = (player(0.055, 0.5), player(1.0, 1.0));
        let players = [("random player", &random), ("trained", &best)];
        assert_snapshot!(comparison(&players, Some(1.0)));
        assert!(!comparison(&players, None).contains("possible"));
    }
}
