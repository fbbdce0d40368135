//! Drawing in proportion to weights that change: a binary tree whose leaves are the weights and whose nodes are the sums of
//! their two children (Schaul et al. 2016).

/// Weights by place, their sum, and draws in proportion to them.
#[derive(Debug, Clone)]
pub struct SumTree {
    /// Node i has the children 2i and 2i + 1; the root is 1, the leaves are the second half.
    nodes: Vec<f64>,
}

impl SumTree {
    /// So many places of weight 0.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(places: usize) -> SumTree {
        assert!(places > 0, "a tree without leaves");
        SumTree {
            nodes: vec![0.0; 2 * places.next_power_of_two()],
        }
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// Changes one weight. Sums are added anew from the leaf up, so that they follow from the weights alone, however often
    /// those were changed.
    ///
    /// # Panics
    /// If there is no such place, or the weight is negative or no number.
    pub fn set(&mut self, place: usize, weight: f64) {
        assert!(weight >= 0.0, "a weight of {weight}");
        let mut node = self.leaves() + place;
        self.nodes[node] = weight;
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1];
        }
    }

    /// The weight of a place.
    pub fn get(&self, place: usize) -> f64 {
        self.nodes[self.leaves() + place]
    }

    /// The sum of all weights.
    pub fn total(&self) -> f64 {
        self.nodes[1]
    }

    /// The place at which the running sum of weights passes `at`, which is from 0 up to the total. A place of weight 0 is
    /// never it, while there is another.
    pub fn find(&self, mut at: f64) -> usize {
        let mut node = 1;
        while node < self.leaves() {
            node *= 2;
            // Rounding may lead to where there is nothing: then the other side it is.
            if at >= self.nodes[node] && self.nodes[node + 1] > 0.0 {
                at -= self.nodes[node];
                node += 1;
            }
        }
        node - self.leaves()
    }

    /// `count` places, one from each of as many equal parts of the total (stratified), so that a batch holds the likely
    /// ones nearly as often as they should be; `unit` gives numbers from 0 up to 1.
    ///
    /// # Panics
    /// If the total is 0.
    pub fn draw(&self, count: usize, mut unit: impl FnMut() -> f64) -> Vec<usize> {
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
    fn the_running_sum_leads_to_the_place() {
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
        /// Whatever was set before, the sums are those of the weights that are there now.
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

    /// Pearson's test: draws as often as the weights say. 7 degrees of freedom; beyond 29.9 is one in ten thousand, and the
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
        // One at a time, so that the draws are independent of each other, as the test wants them.
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

    /// Of nine parts of the total each gives one draw: a place with a third of the weight comes three times in nine, always.
    #[test]
    fn a_stratified_batch_has_every_place_as_often_as_it_should() {
        let mut tree = SumTree::new(3);
        (0..3).for_each(|place| tree.set(place, 2.0));
        let mut random = Random::new(5);
        for _ in 0..50 {
            let places = tree.draw(9, || random.uniform());
            assert_eq!(places, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        }
    }
}
