// tensor/src/ops/adamw.rs: the norm of the accumulated gradients, and the update.

const GROUP: u32 = 64u;
/// elements of an arena whose squares one workgroup sums
const SPAN: u32 = 4096u;

struct Params {
    /// elements of the arena, or partial sums
    count: u32,
    /// index of the first partial sum of this arena
    first: u32,
    max_norm: f32,
    /// 1 - rate * weight decay
    decay: f32,
    /// rate / (1 - beta1^step)
    rate: f32,
    /// 1 / sqrt(1 - beta2^step)
    correction: f32,
    eps: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    first_group: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> gradients: array<f32>;

alias Shared = f32;

fn combine(a: f32, b: f32) -> f32 {
    return a + b;
}

@group(0) @binding(0) var<storage, read> read_gradients: array<f32>;
@group(0) @binding(1) var<storage, read_write> partials: array<f32>;

/// One workgroup sums the squares of SPAN gradients.
@compute @workgroup_size(GROUP)
fn square_sums(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let span = flat_group(id);
    let end = min((span + 1u) * SPAN, params.count);
    var sum = 0.0;
    for (var i = span * SPAN + local; i < end; i += GROUP) {
        sum += read_gradients[i] * read_gradients[i];
    }
    let total = combined(sum, local, GROUP);
    if local == 0u && span * SPAN < params.count {
        partials[params.first + span] = total;
    }
}

@group(0) @binding(0) var<storage, read> read_partials: array<f32>;
@group(0) @binding(1) var<storage, read_write> norm: array<f32>;

/// The square root of the sum of the partial sums, in one workgroup.
@compute @workgroup_size(GROUP)
fn finish_norm(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    var sum = 0.0;
    for (var i = local; i < params.count; i += GROUP) {
        sum += read_partials[i];
    }
    let total = combined(sum, local, GROUP);
    if local == 0u {
        norm[0] = sqrt(total);
    }
}

@group(0) @binding(1) var<storage, read_write> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> first_moment: array<f32>;
@group(0) @binding(3) var<storage, read_write> second_moment: array<f32>;
@group(0) @binding(4) var<storage, read> read_norm: array<f32>;

/// One AdamW step of an arena, which also clears its gradients. If the norm is infinite or not a number, nothing else
/// changes.
@compute @workgroup_size(GROUP)
fn update(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i >= params.count {
        return;
    }
    let raw = gradients[i];
    gradients[i] = 0.0;
    let total = read_norm[0];
    // Tests the exponent, since a compiler may assume that x == x.
    if (bitcast<u32>(total) & 0x7f800000u) == 0x7f800000u {
        return;
    }
    let g = raw * min(1.0, params.max_norm / (total + 1e-6));
    let m = params.beta1 * first_moment[i] + params.one_minus_beta1 * g;
    let v = params.beta2 * second_moment[i] + params.one_minus_beta2 * g * g;
    first_moment[i] = m;
    second_moment[i] = v;
    values[i] = params.decay * values[i] - params.rate * m / (sqrt(v) * params.correction + params.eps);
}
