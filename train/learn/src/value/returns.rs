//! What a turn is worth by what came after it: sums over a few turns, and Q(lambda). Plain numbers, no network.

/// Some turns of an episode as one transition: from a state, by an action, over up to n turns to another state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The turn it starts with.
    pub start: usize,
    /// Σ γ^k r over its turns.
    pub reward: f64,
    /// The state that it leads to, as the number of the turn that starts there (the number of turns: the state after the
    /// last); `None` if nothing is to be expected from there.
    pub next: Option<usize>,
    /// γ to the number of its turns: what the value of that state counts.
    pub discount: f64,
}

/// The spans of an episode, one for each of its turns, each of `n` turns or of as many as there are left. So the last turns
/// of an episode are there too, and none reaches beyond it.
///
/// `goes_on`: the episode was stopped and not over, so that the state after its last turn is worth something.
///
/// # Panics
/// If `n` is 0.
pub fn n_step(rewards: &[f64], n: usize, gamma: f64, goes_on: bool) -> Vec<Span> {
    assert!(n > 0, "a span of no turns");
    let turns = rewards.len();
    let span = |start: usize| {
        let end = (start + n).min(turns);
        let sum = |sum, reward: &f64| reward + gamma * sum;
        Span {
            start,
            reward: rewards[start..end].iter().rev().fold(0.0, sum),
            next: (end < turns || goes_on).then_some(end),
            discount: gamma.powi((end - start) as i32),
        }
    };
    (0..turns).map(span).collect()
}

/// Q(lambda) (Peng and Williams 1996, as in Gallici et al. 2024): for each turn of an episode
///
/// ```text
/// y_t = r_t + γ (λ y_{t+1} + (1 - λ) v_{t+1})          y = r + γ v of the state after the last turn
/// ```
///
/// `values` has v = max over the actions of Q for the state of every turn, and behind them that of the state after the last
/// turn if the episode was stopped and not over; what is over is worth 0.
///
/// # Panics
/// If there are fewer values than turns, or more than one beyond.
pub fn q_lambda(rewards: &[f64], values: &[f64], gamma: f64, lambda: f64) -> Vec<f64> {
    let turns = rewards.len();
    assert!(
        values.len() == turns || values.len() == turns + 1,
        "{} values for {turns} turns",
        values.len()
    );
    let mut targets = vec![0.0; turns];
    // What is expected from the next state on.
    let mut ahead = values.get(turns).copied().unwrap_or(0.0);
    for turn in (0..turns).rev() {
        targets[turn] = rewards[turn] + gamma * ahead;
        ahead = lambda * targets[turn] + (1.0 - lambda) * values[turn];
    }
    targets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Six steps over a lake whose only reward is at the end. What is cleared at the end without being stored, or runs into
    /// the next episode, is what others got wrong.
    #[test]
    fn an_episode_of_six_turns_gives_six_spans_and_the_end_is_among_them() {
        let rewards = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let spans = n_step(&rewards, 3, 0.5, false);
        let span = |start, reward, next, discount| Span {
            start,
            reward,
            next,
            discount,
        };
        assert_eq!(
            spans,
            [
                span(0, 0.0, Some(3), 0.125),
                span(1, 0.0, Some(4), 0.125),
                span(2, 0.0, Some(5), 0.125),
                span(3, 0.25, None, 0.125),
                span(4, 0.5, None, 0.25),
                span(5, 1.0, None, 0.5),
            ]
        );
    }

    #[test]
    fn what_was_stopped_goes_on_and_what_is_over_does_not() {
        let stopped = n_step(&[1.0, 2.0], 3, 0.5, true);
        assert_eq!(stopped[0].next, Some(2));
        assert_eq!((stopped[0].reward, stopped[0].discount), (2.0, 0.25));
        assert_eq!(
            (stopped[1].next, stopped[1].reward, stopped[1].discount),
            (Some(2), 2.0, 0.5)
        );
        let over = n_step(&[1.0, 2.0], 3, 0.5, false);
        assert_eq!((over[0].next, over[1].next), (None, None));
        assert!(n_step(&[], 3, 0.5, true).is_empty());

        assert_eq!(q_lambda(&[1.0], &[7.0, 4.0], 0.5, 0.9), [3.0]);
        assert_eq!(q_lambda(&[1.0], &[7.0], 0.5, 0.9), [1.0]);
    }

    /// By hand: gamma 0.5, lambda 0.5, over.
    /// y_2 = 4; y_1 = 2 + 0.5 (0.5 x 4 + 0.5 x 6) = 4.5; y_0 = 1 + 0.5 (0.5 x 4.5 + 0.5 x 8) = 4.125
    #[test]
    fn q_lambda_by_hand() {
        assert_eq!(
            q_lambda(&[1.0, 2.0, 4.0], &[9.0, 8.0, 6.0], 0.5, 0.5),
            [4.125, 4.5, 4.0]
        );
    }

    fn episode() -> impl Strategy<Value = (Vec<f64>, Vec<f64>, bool)> {
        (1usize..12, any::<bool>()).prop_flat_map(|(turns, goes_on)| {
            let numbers = |count| proptest::collection::vec(-2.0..2.0f64, count);
            (numbers(turns), numbers(turns + 1), Just(goes_on))
        })
    }

    proptest! {
        /// Lambda 1 is the discounted return, lambda 0 the next value: the two ends that both learners share.
        #[test]
        fn the_ends_of_q_lambda_are_sums_of_all_turns_and_of_one((rewards, mut values, goes_on) in episode(), gamma in 0.0..1.0f64) {
            if !goes_on {
                values.pop();
            }
            let turns = rewards.len();
            for (lambda, n) in [(1.0, turns), (0.0, 1)] {
                let wanted = n_step(&rewards, n, gamma, goes_on);
                for (target, span) in q_lambda(&rewards, &values, gamma, lambda).iter().zip(wanted) {
                    let wanted = span.reward + span.next.map_or(0.0, |next| span.discount * values[next]);
                    prop_assert!((target - wanted).abs() < 1e-12);
                }
            }
        }

        /// One for each turn, of n turns or to the end, and nothing of another episode.
        #[test]
        fn spans_stay_within_their_episode((rewards, _, goes_on) in episode(), n in 1usize..6) {
            let turns = rewards.len();
            let spans = n_step(&rewards, n, 1.0, goes_on);
            prop_assert_eq!(spans.len(), turns);
            for (turn, span) in spans.iter().enumerate() {
                let end = (turn + n).min(turns);
                prop_assert_eq!(span.start, turn);
                prop_assert_eq!(span.next, (end < turns || goes_on).then_some(end));
                prop_assert!((span.reward - rewards[turn..end].iter().sum::<f64>()).abs() < 1e-12);
            }
        }
    }
}
