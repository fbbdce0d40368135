// tensor/src/ops/rl/policy_loss.rs: the clipped objective with its KL penalty, summed in a fixed order.

const GROUP: u32 = 64u;
/// Limit of the logarithm of a ratio: e^60 is large enough and does not overflow.
const MAX_LOG: f32 = 60.0;

struct Params {
    /// pairs
    count: u32,
    /// loss tokens of all pairs
    tokens: u32,
    /// 2 or 3
    estimator: u32,
    beta: f32,
    /// the bounds of the ratio, 1 - eps_low and 1 + eps_high
    low: f32,
    high: f32,
    first_group: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> log_probs: array<f32>;
/// The loss tokens of a pair are tokens[starts[pair]..starts[pair + 1]].
@group(0) @binding(1) var<storage, read> starts: array<u32>;
/// advantage, weight, old log-prob, reference log-prob
@group(0) @binding(2) var<storage, read> tokens: array<vec4<f32>>;
/// For each pair the sums of: weighted loss, KL, clipped tokens.
@group(0) @binding(3) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> gradient: array<f32>;

/// e^x that is exactly 1 at 0, so that an unchanged policy has a ratio of exactly 1. WGSL does not guarantee this of exp.
fn ratio_of(x: f32) -> f32 {
    return select(exp(min(x, MAX_LOG)), 1.0, x == 0.0);
}

/// e^x - 1 - x, near 0 by its series, since the difference would be mostly rounding error for a small KL, as at the start
/// of training. The next term of the series is below 2e-8 of the sum.
fn exp_beyond_line(x: f32) -> f32 {
    let near = x * x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x * (1.0 / 720.0 + x / 5040.0)))));
    return select(exp(min(x, MAX_LOG)) - 1.0 - x, near, abs(x) < 0.25);
}

/// The KL estimate of a token and its slope, for d = log-prob - reference log-prob.
fn kl_of(d: f32) -> vec2<f32> {
    switch params.estimator {
        case 2u: {
            return vec2<f32>(0.5 * d * d, d);
        }
        default: {
            let k = exp_beyond_line(-d);
            // 1 - e^-d
            return vec2<f32>(k, d - k);
        }
    }
}

/// One thread per pair. Many loss tokens use the same log-prob where equal states were merged.
@compute @workgroup_size(GROUP)
fn losses(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let pair = flat_thread(id, local, GROUP);
    if pair >= params.count {
        return;
    }
    let log_prob = log_probs[pair];
    var sum = vec3<f32>(0.0);
    var slope = 0.0;
    for (var i = starts[pair]; i < starts[pair + 1u]; i += 1u) {
        let advantage = tokens[i].x;
        let weight = tokens[i].y;
        let ratio = ratio_of(log_prob - tokens[i].z);
        let free = ratio * advantage;
        let bounded = clamp(ratio, params.low, params.high) * advantage;
        let clipped = bounded < free;
        let kl = kl_of(log_prob - tokens[i].w);
        sum += vec3<f32>(weight * (params.beta * kl.x - min(free, bounded)), kl.x, select(0.0, 1.0, clipped));
        slope += weight * (params.beta * kl.y - select(free, 0.0, clipped));
    }
    sums[pair] = vec4<f32>(sum, 0.0);
    gradient[pair] = slope;
}

alias Shared = vec3<f32>;

fn combine(a: vec3<f32>, b: vec3<f32>) -> vec3<f32> {
    return a + b;
}

@group(0) @binding(0) var<storage, read> read_sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> loss: array<f32>;
@group(0) @binding(2) var<storage, read_write> mean_kl: array<f32>;
@group(0) @binding(3) var<storage, read_write> clip_fraction: array<f32>;

/// The loss, the mean KL and the share of clipped tokens, in one workgroup.
@compute @workgroup_size(GROUP)
fn total(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    var sum = vec3<f32>(0.0);
    for (var pair = local; pair < params.count; pair += GROUP) {
        sum += read_sums[pair].xyz;
    }
    let whole = combined(sum, local, GROUP);
    if local == 0u {
        loss[0] = whole.x;
        mean_kl[0] = whole.y / f32(params.tokens);
        clip_fraction[0] = whole.z / f32(params.tokens);
    }
}

@group(0) @binding(0) var<storage, read> slopes: array<f32>;
@group(0) @binding(1) var<storage, read> upstream: array<f32>;
@group(0) @binding(2) var<storage, read_write> scaled: array<f32>;

/// The gradient of the log-probs.
@compute @workgroup_size(GROUP)
fn backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let pair = flat_thread(id, local, GROUP);
    if pair < params.count {
        scaled[pair] = slopes[pair] * upstream[0];
    }
}
