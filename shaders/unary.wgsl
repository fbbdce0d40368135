// tensor/src/ops/unary.rs: functions of one number, and their gradients.

const GROUP: u32 = 64u;
/// The numbering is that of `UnaryFunction` in unary.rs.
const FUNCTION: u32 = 0u;

/// `low` and `high`: the bounds of a clamp, -delta and delta of the Huber loss; `low`: the factor of mul.
struct Params { count: u32, low: f32, high: f32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> x_slope: array<f32>;

fn sigmoid(v: f32) -> f32 {
    return 1.0 / (1.0 + exp(-v));
}

fn value(v: f32) -> f32 {
    switch FUNCTION {
        case 0u: { return -v; }
        case 1u: { return exp(v); }
        case 2u: { return v * sigmoid(v); }
        case 3u: { return v * v; }
        case 4u: { return clamp(v, params.low, params.high); }
        case 5u: { return max(v, 0.0); }
        case 7u: { return v * params.low; }
        default: { let cut = clamp(v, params.low, params.high); return cut * (v - 0.5 * cut); }
    }
}

fn slope(v: f32) -> f32 {
    switch FUNCTION {
        case 0u: { return -1.0; }
        case 1u: { return exp(v); }
        case 2u: { let s = sigmoid(v); return s * (1.0 + v * (1.0 - s)); }
        case 3u: { return 2.0 * v; }
        case 4u: { return select(0.0, 1.0, v >= params.low && v <= params.high); }
        case 5u: { return select(0.0, 1.0, v > 0.0); }
        case 7u: { return params.low; }
        default: { return clamp(v, params.low, params.high); }
    }
}

@compute @workgroup_size(GROUP)
fn forward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i < params.count {
        y[i] = value(x[i]);
    }
}

@compute @workgroup_size(GROUP)
fn backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i < params.count {
        x_slope[i] = dy[i] * slope(x[i]);
    }
}
