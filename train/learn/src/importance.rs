//! Importance correction of draws without replacement (`train.correction`).

/// Returns the importance of each episode in a draw of `count`: the inverse of its inclusion probability, scaled so that it
/// is 1 if all weights are equal.
pub(crate) fn weights(log_weights: &[f64], count: usize) -> Vec<f64> {
    let even = count as f64 / log_weights.len() as f64;
    let probabilities = inclusion(log_weights, count).into_iter();
    // A probability below what f64 can hold still gives a finite importance.
    probabilities
        .map(|p| even / p.max(f64::MIN_POSITIVE))
        .collect()
}

/// Returns the probability of each episode to be among `count` drawn ones.
///
/// In the exponential race of AAW, episode i is drawn if fewer than `count` others come before it. Given its own time t,
/// another of weight w comes before it with probability 1 - exp(-w t), independently; adding the others one at a time gives
/// the distribution of their number. The integral over t is taken over u = exp(-w_i t), uniform on (0, 1), by Gauss-Legendre
/// quadrature on panels that get finer towards both ends, where the integrand bends. Only ratios of weights matter, and
/// they may be infinite.
pub(crate) fn inclusion(log_weights: &[f64], count: usize) -> Vec<f64> {
    if count >= log_weights.len() {
        return vec![1.0; log_weights.len()];
    }
    let nodes = quadrature();
    (0..log_weights.len())
        .map(|i| {
            let ratios: Vec<f64> = log_weights
                .iter()
                .map(|w| (w - log_weights[i]).exp())
                .collect();
            let included = |u: f64| {
                let time = -u.ln();
                // before[k]: probability that exactly k of the others so far came before
                let mut before = vec![0.0; count];
                before[0] = 1.0;
                for (j, ratio) in ratios.iter().enumerate() {
                    if j == i {
                        continue;
                    }
                    let earlier = -(-ratio * time).exp_m1();
                    for k in (0..count).rev() {
                        let from_below = if k > 0 { before[k - 1] * earlier } else { 0.0 };
                        before[k] = before[k] * (1.0 - earlier) + from_below;
                    }
                }
                before.iter().sum::<f64>()
            };
            nodes
                .iter()
                .map(|(u, weight)| weight * included(*u))
                .sum::<f64>()
                .min(1.0)
        })
        .collect()
}

/// Returns points in (0, 1) and their weights.
fn quadrature() -> Vec<(f64, f64)> {
    // Five-point Gauss-Legendre on (-1, 1).
    const POINTS: [(f64, f64); 5] = [
        (-0.906_179_845_938_664, 0.236_926_885_056_189_1),
        (-0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
        (0.0, 0.568_888_888_888_888_9),
        (0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
        (0.906_179_845_938_664, 0.236_926_885_056_189_1),
    ];
    // Edges at 2^-k from both ends: an episode of tiny weight is drawn only at u near 1.
    let halves = (1..=40).rev().map(|k| 0.5f64.powi(k));
    let mut edges: Vec<f64> = std::iter::once(0.0).chain(halves).collect();
    let mirrored: Vec<f64> = edges.iter().rev().skip(1).map(|e| 1.0 - e).collect();
    edges.extend(mirrored);
    edges
        .windows(2)
        .flat_map(|edge| {
            let (middle, half) = ((edge[0] + edge[1]) / 2.0, (edge[1] - edge[0]) / 2.0);
            POINTS.map(|(x, weight)| (middle + half * x, half * weight))
        })
        .collect()
}
