//! Which groups are worth learning from: RAGEN-2's filter by the spread of returns ("top-p").

use crate::credit::spread;
use lapwing_play::Episode;

/// Whether each group is among those of the widest returns that together hold this share of all spread: the groups sorted
/// by the standard deviation of their returns, the widest first, until their sum is `share` of the whole sum. A share of 1
/// keeps all groups.
///
/// A policy that has settled in some scenes plays them almost alike; what differs there is mostly chance.
pub fn widest(groups: &[&[Episode]], share: f64) -> Vec<bool> {
    if share >= 1.0 {
        return vec![true; groups.len()];
    }
    let spreads: Vec<f64> = groups.iter().map(|group| spread(group)).collect();
    let wanted = share * spreads.iter().sum::<f64>();
    let mut order: Vec<usize> = (0..groups.len()).collect();
    // Stable, so that the first of equals comes first.
    order.sort_by(|a, b| spreads[*b].total_cmp(&spreads[*a]));
    let (mut kept, mut sum) = (vec![false; groups.len()], 0.0);
    for group in order {
        if sum >= wanted {
            break;
        }
        kept[group] = true;
        sum += spreads[group];
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use lapwing_play::Turn;

    /// Two episodes that returned so far apart.
    fn group(apart: f64) -> Vec<Episode> {
        let one = |reward| Episode {
            turns: vec![Turn {
                reward,
                ..Turn::default()
            }],
            ..Episode::default()
        };
        vec![one(0.0), one(apart)]
    }

    fn kept(apart: &[f64], share: f64) -> Vec<bool> {
        let groups: Vec<Vec<Episode>> = apart.iter().map(|a| group(*a)).collect();
        let groups: Vec<&[Episode]> = groups.iter().map(|g| &g[..]).collect();
        widest(&groups, share)
    }

    #[test]
    fn the_widest_are_kept() {
        let apart = [1.0, 6.0, 0.0, 3.0];
        assert_eq!(kept(&apart, 0.6), [false, true, false, false]);
        assert_eq!(kept(&apart, 0.65), [false, true, false, true]);
        assert_eq!(kept(&apart, 0.95), [true, true, false, true]);
        assert_eq!(kept(&apart, 1.0), [true; 4]);
        // Nothing is spread: there is nothing to keep, and nothing to divide by.
        assert_eq!(kept(&[0.0, 0.0], 0.9), [false; 2]);
    }

    proptest! {
        /// What is kept holds the share, would not without its narrowest, and is wider than what is not.
        #[test]
        fn as_few_as_hold_the_share(apart in proptest::collection::vec(0.0f64..5.0, 1..12), share in 0.05f64..0.99) {
            let kept = kept(&apart, share);
            let of = |wanted: bool| -> Vec<f64> {
                apart.iter().zip(&kept).filter(|(_, k)| **k == wanted).map(|(a, _)| *a).collect()
            };
            let (inside, outside) = (of(true), of(false));
            let narrowest = inside.iter().copied().fold(f64::INFINITY, f64::min);
            let (sum, all): (f64, f64) = (inside.iter().sum(), apart.iter().sum());
            prop_assert!(sum >= share * all - 1e-9);
            prop_assert!(inside.is_empty() || sum - narrowest < share * all + 1e-9);
            prop_assert!(outside.iter().all(|a| *a <= narrowest));
        }
    }
}
