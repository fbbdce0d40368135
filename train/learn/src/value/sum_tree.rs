//! Draws in proportion to changing weights: a binary tree whose leaves are the weights and whose nodes are the sums of
//! their two children (Schaul et al. 2016).

/// Weights by index, their sum, and draws in proportion to them.
#[derive(Debug, Clone)]
pub(crate) struct SumTree {
    /// node i has the children 2i and 2i + 1; the root is 1, the leaves are the second half
    nodes: Vec<f64>,
}

impl SumTree {
    /// Makes a tree of this many weights, all 0.
    pub(crate) fn new(count: usize) -> SumTree {
        assert!(count > 0, "a tree without leaves");
        SumTree {
            nodes: vec![0.0; 2 * count.next_power_of_two()],
        }
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// Sets one weight. The sums above it are computed again, so that they depend on the current weights only.
    pub(crate) fn set(&mut self, index: usize, weight: f64) {
        assert!(weight >= 0.0, "a weight of {weight}");
        let mut node = self.leaves() + index;
        self.nodes[node] = weight;
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1];
        }
    }

    /// Returns a weight.
    pub(crate) fn get(&self, index: usize) -> f64 {
        self.nodes[self.leaves() + index]
    }

    /// Returns the sum of all weights.
    pub(crate) fn total(&self) -> f64 {
        self.nodes[1]
    }

    /// Returns the index at which the running sum of the weights exceeds `at`, from 0 up to the total. Never one of weight 0 if
    /// there is another.
    pub(crate) fn find(&self, mut at: f64) -> usize {
        let mut node = 1;
        while node < self.leaves() {
            node *= 2;
            // Rounding may lead to an empty side: then take the other.
            if at >= self.nodes[node] && self.nodes[node + 1] > 0.0 {
                at -= self.nodes[node];
                node += 1;
            }
        }
        node - self.leaves()
    }

    /// Draws `count` indices, one from each of as many equal parts of the total (stratified sampling). `unit` returns random
    /// numbers from 0 up to 1.
    pub(crate) fn draw(&self, count: usize, mut unit: impl FnMut() -> f64) -> Vec<usize> {
        assert!(self.total() > 0.0, "nothing to draw from");
        let part = self.total() / count as f64;
        (0..count)
            .map(|i| self.find((i as f64 + unit()) * part))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use lapwing_tensor::random::Random;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_running_sum_leads_to_the_index() {
        let mut tree = SumTree::new(5);
        for (place, weight) in [1.0, 0.0, 2.0, 0.5, 4.0].into_iter().enumerate() {
            tree.set(place, weight);
        }
        assert_eq!(tree.total(), 7.5);
        let found = [0.0, 0.99, 1.0, 2.99, 3.0, 3.49, 3.5, 7.49, 7.5].map(|at| tree.find(at));
        assert_eq!(found, [0, 0, 2, 2, 3, 3, 4, 4, 4]);
        tree.set(4, 0.0);
        assert_eq!((tree.total(), tree.find(3.5), tree.get(2)), (3.5, 3, 2.0));
    }

    proptest! {
        /// The sums do not depend on earlier weights.
        #[test]
        fn sums_follow_from_the_weights_alone(changes in proptest::collection::vec((0usize..13, 0.0..10.0f64), 1..60)) {
            let mut tree = SumTree::new(13);
            let mut weights = [0.0; 13];
            for (place, weight) in &changes {
                tree.set(*place, *weight);
                weights[*place] = *weight;
            }
            let mut fresh = SumTree::new(13);
            weights.iter().enumerate().for_each(|(place, weight)| fresh.set(place, *weight));
            prop_assert_eq!(&tree.nodes, &fresh.nodes);
            prop_assert!((tree.total() - weights.iter().sum::<f64>()).abs() < 1e-9);
        }
    }

    /// Pearson's test of the frequencies of draws. 7 degrees of freedom; beyond 29.9 is one in ten thousand, and the
    /// seed is fixed.
    #[test]
    fn draws_are_as_frequent_as_the_weights() {
        let weights = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let mut tree = SumTree::new(8);
        for (place, weight) in weights.iter().enumerate() {
            tree.set(place, *weight);
        }
        let mut random = Random::new(11);
        let mut counts = [0.0; 8];
        // One at a time, because the test requires independent draws.
        for _ in 0..20_000 {
            for place in tree.draw(1, || random.uniform()) {
                counts[place] += 1.0;
            }
        }
        let of = |(count, weight): (&f64, &f64)| {
            let expected = 20_000.0 * weight / 36.0;
            (count - expected).powi(2) / expected
        };
        let chi_squared: f64 = counts.iter().zip(&weights).map(of).sum();
        assert!(chi_squared < 29.9, "{chi_squared}: {counts:?}");
    }

    /// An index with a third of the weight is drawn exactly three times in nine.
    #[test]
    fn a_stratified_draw_has_every_index_in_proportion() {
        let mut tree = SumTree::new(3);
        (0..3).for_each(|place| tree.set(place, 2.0));
        let mut random = Random::new(5);
        for _ in 0..50 {
            let places = tree.draw(9, || random.uniform());
            assert_eq!(places, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        }
    }
}
