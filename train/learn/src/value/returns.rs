//! Targets from the rewards of an episode: n-step returns and Q(lambda) (f64, on the host).

/// Up to n turns of an episode as one transition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TurnSpan {
    /// First turn.
    pub(crate) start: usize,
    /// Sum of γ^k r over the turns.
    pub(crate) reward: f64,
    /// Index of the state after the turns (the number of turns: the state after the last turn). `None` if it is terminal.
    pub(crate) next: Option<usize>,
    /// Discount of that state's value: γ to the number of turns.
    pub(crate) discount: f64,
}

/// Returns one span for each turn of an episode, of `n` turns or of those that are left. With `bootstraps` the episode was
/// truncated, and the state after its last turn has a value.
pub(crate) fn n_step(rewards: &[f64], n: usize, gamma: f64, bootstraps: bool) -> Vec<TurnSpan> {
    assert!(n > 0, "n-step returns of no turns");
    let turns = rewards.len();
    let span = |start: usize| {
        let end = (start + n).min(turns);
        let sum = |sum, reward: &f64| reward + gamma * sum;
        TurnSpan {
            start,
            reward: rewards[start..end].iter().rev().fold(0.0, sum),
            next: (end < turns || bootstraps).then_some(end),
            discount: gamma.powi((end - start) as i32),
        }
    };
    (0..turns).map(span).collect()
}

/// Returns Q(lambda) (Peng and Williams 1996, as in Gallici et al. 2024) for each turn of an episode:
///
/// ```text
/// y_t = r_t + γ (λ y_{t+1} + (1 - λ) v_{t+1})          y = r + γ v of the state after the last turn
/// ```
///
/// `values` has v = max over the actions of Q for the state of every turn, and for a truncated episode that of the state after
/// the last turn. A terminal state has the value 0.
pub(crate) fn q_lambda(rewards: &[f64], values: &[f64], gamma: f64, lambda: f64) -> Vec<f64> {
    let turns = rewards.len();
    assert!(
        values.len() == turns || values.len() == turns + 1,
        "{} values for {turns} turns",
        values.len()
    );
    let mut targets = vec![0.0; turns];
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

    /// Six steps over a lake whose only reward is at the end. Common bugs lose the last turns, or mix them with the next episode.
    #[test]
    fn an_episode_of_six_turns_has_six_spans() {
        let rewards = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let spans = n_step(&rewards, 3, 0.5, false);
        let span = |start, reward, next, discount| TurnSpan {
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
    fn truncated_episodes_bootstrap_and_terminated_ones_do_not() {
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

    /// By hand: gamma 0.5, lambda 0.5, terminated.
    /// y_2 = 4; y_1 = 2 + 0.5 (0.5 x 4 + 0.5 x 6) = 4.5; y_0 = 1 + 0.5 (0.5 x 4.5 + 0.5 x 8) = 4.125
    #[test]
    fn q_lambda_by_hand() {
        assert_eq!(
            q_lambda(&[1.0, 2.0, 4.0], &[9.0, 8.0, 6.0], 0.5, 0.5),
            [4.125, 4.5, 4.0]
        );
    }

    fn episode() -> impl Strategy<Value = (Vec<f64>, Vec<f64>, bool)> {
        (1usize..12, any::<bool>()).prop_flat_map(|(turns, bootstraps)| {
            let numbers = |count| proptest::collection::vec(-2.0..2.0f64, count);
            (numbers(turns), numbers(turns + 1), Just(bootstraps))
        })
    }

    proptest! {
        /// Lambda 1 is the discounted return, lambda 0 the one-step target.
        #[test]
        fn the_ends_of_q_lambda_are_n_step_returns((rewards, mut values, bootstraps) in episode(), gamma in 0.0..1.0f64) {
            if !bootstraps {
                values.pop();
            }
            let turns = rewards.len();
            for (lambda, n) in [(1.0, turns), (0.0, 1)] {
                let wanted = n_step(&rewards, n, gamma, bootstraps);
                for (target, span) in q_lambda(&rewards, &values, gamma, lambda).iter().zip(wanted) {
                    let wanted = span.reward + span.next.map_or(0.0, |next| span.discount * values[next]);
                    prop_assert!((target - wanted).abs() < 1e-12);
                }
            }
        }

        /// One for each turn, of n turns or to the end.
        #[test]
        fn spans_stay_within_their_episode((rewards, _, bootstraps) in episode(), n in 1usize..6) {
            let turns = rewards.len();
            let spans = n_step(&rewards, n, 1.0, bootstraps);
            prop_assert_eq!(spans.len(), turns);
            for (turn, span) in spans.iter().enumerate() {
                let end = (turn + n).min(turns);
                prop_assert_eq!(span.start, turn);
                prop_assert_eq!(span.next, (end < turns || bootstraps).then_some(end));
                prop_assert!((span.reward - rewards[turn..end].iter().sum::<f64>()).abs() < 1e-12);
            }
        }
    }
}
