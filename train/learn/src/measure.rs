//! Measures the noise of a step's gradient, to compare credit assignment, sampling and group sizes.
//!
//! The episodes of every group are split into two halves. Each half gets its own advantages and its own selection, as if the
//! other had not been played. a and b are the gradients of the halves (means over the groups), which are independent given
//! the scenes.
//!
//! ```text
//! signal       a . b                                 on average |mean gradient|^2
//! variance     |a - b|^2 / 4                         on average that of (a + b) / 2
//! agreement    a . b / (|a| |b|)                     -1 to 1, whatever the gradient's scale: 0 is pure noise
//! by scenes    sum |g_k - mean g|^2 / (K (K - 1))    that of the mean over K groups, including the scenes' part
//! alignment    the cosine to the gradient of the step before
//! ```
//!
//! The gradient is that of the policy loss without the KL penalty. Measuring costs a forward and a backward pass over about
//! as many tokens as the update, and changes nothing.
//!
//! Only projections are kept (Charikar, Chen and Farach-Colton 2002): each component is added to one of 1024 sums, with a
//! sign, both chosen by its index. Products of projections equal those of the gradients on average, and err by about a
//! thirtieth of the lengths.

use lapwing_env::rng::Stream;
use lapwing_tensor::rl::Kl;

use crate::LearnError;
use crate::batch::{Group, count, pack, selected};
use crate::config::StepOptions;
use crate::config::TrainConfig;
use crate::language::LanguageLearner;
use crate::metrics::GradientNoise;

/// Sums that a gradient is projected to.
const SUMS: usize = 1024;

/// A projected gradient.
type Sketch = Vec<f64>;

/// Measures the gradient of these groups with the current policy. `prepare` computes the advantages of the halves and
/// selects episodes of them. `None` if nothing is selected from one of the halves.
pub(crate) fn gradient_noise(
    learner: &mut LanguageLearner,
    options: &StepOptions<'_>,
    groups: &[Group],
    prepare: &dyn Fn(&mut [Group], &TrainConfig),
) -> Result<Option<GradientNoise>, LearnError> {
    let before = learner.gradient.take();
    let first = half(learner, options, groups, 0, prepare)?;
    let second = half(learner, options, groups, 1, prepare)?;
    let pairs = first.iter().zip(&second);
    let together: Vec<Sketch> = pairs.map(|(a, b)| mean(&[a.clone(), b.clone()])).collect();
    let measured = estimates(&mean(&first), &mean(&second), &together, before.as_ref());
    learner.gradient = Some(mean(&together));
    Ok(measured)
}

/// Computes the estimates from the gradients of the halves and of the groups.
fn estimates(
    a: &Sketch,
    b: &Sketch,
    groups: &[Sketch],
    before: Option<&Sketch>,
) -> Option<GradientNoise> {
    let (signal, lengths) = (dot(a, b), (dot(a, a) * dot(b, b)).sqrt());
    if lengths == 0.0 {
        return None;
    }
    let whole = mean(groups);
    let count = groups.len() as f64;
    let from_mean = groups.iter().map(|group| squared_distance(group, &whole));
    let cosine = |before: &Sketch| {
        let lengths = (dot(&whole, &whole) * dot(before, before)).sqrt();
        (lengths > 0.0).then(|| dot(&whole, before) / lengths)
    };
    Some(GradientNoise {
        gradient_signal: signal,
        gradient_variance: squared_distance(a, b) / 4.0,
        gradient_agreement: signal / lengths,
        gradient_variance_scenes: (groups.len() > 1)
            .then(|| from_mean.sum::<f64>() / (count * (count - 1.0))),
        gradient_alignment: before.and_then(cosine),
    })
}

/// Returns the gradient of each group's half, scaled so that their mean is the gradient of the loss.
fn half(
    learner: &mut LanguageLearner,
    options: &StepOptions<'_>,
    groups: &[Group],
    which: usize,
    prepare: &dyn Fn(&mut [Group], &TrainConfig),
) -> Result<Vec<Sketch>, LearnError> {
    let mut halves: Vec<Group> = groups.iter().map(|group| half_of(group, which)).collect();
    let train = TrainConfig {
        learn: options.train.learn.div_ceil(2),
        ..options.train.clone()
    };
    prepare(&mut halves, &train);

    let all = selected(&halves);
    let over = count(all.iter().map(|c| c.episode), train.aggregation);
    let policy = &learner.policy;
    let parameters = learner.parameters.as_mut().expect("a learner that trains");
    let mut sketches = Vec::with_capacity(halves.len());
    for group in &halves {
        let own = selected(std::slice::from_ref(group));
        for batch in pack(&own, train.aggregation, over, train.tokens_per_batch) {
            let log_probs = batch.on(policy.model.gpu()).log_probs(
                &policy.model,
                policy.adapter.as_ref(),
                learner.temperature as f32,
            );
            // The first update clips nothing.
            let of = log_probs.policy_loss(&batch.tokens, (1.0, 1.0), 0.0, Kl::K3);
            parameters.accumulate(&of.loss.backward());
        }
        let gradient = parameters.gathered()?;
        parameters.discard();
        sketches.push(sketch(&gradient, groups.len() as f64));
    }
    Ok(sketches)
}

/// Every other episode of a group.
fn half_of(group: &Group, which: usize) -> Group {
    let episodes = group.episodes.iter().skip(which).step_by(2);
    let values = group.values.iter().skip(which).step_by(2);
    Group {
        world: group.world,
        scene: group.scene,
        agent: group.agent,
        episodes: episodes.cloned().collect(),
        values: values.cloned().collect(),
        ..Group::default()
    }
}

/// Projects `factor` times a gradient.
fn sketch(gradient: &[f32], factor: f64) -> Sketch {
    let mut sums = vec![0.0; SUMS];
    // The same indices and signs each time.
    let mut random = Stream::new(0, "projection");
    for number in gradient {
        let drawn = random.below(2 * SUMS);
        let sign = if drawn < SUMS { factor } else { -factor };
        sums[drawn % SUMS] += sign * f64::from(*number);
    }
    sums
}

fn mean(sketches: &[Sketch]) -> Sketch {
    let mut mean = vec![0.0; SUMS];
    for sketch in sketches {
        for (sum, number) in mean.iter_mut().zip(sketch) {
            *sum += number / sketches.len() as f64;
        }
    }
    mean
}

fn dot(a: &Sketch, b: &Sketch) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn squared_distance(a: &Sketch, b: &Sketch) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

#[cfg(test)]
mod tests;
