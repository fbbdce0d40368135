// tensor/src/ops/rms_norm.rs: rows divided by their root mean square and weighted column by column.

const GROUP: u32 = 64u;
/// Threads that share a row, a power of two up to GROUP.
const LANES: u32 = 1u;

/// `chunk`: rows that one thread of `weight_backward` adds up.
struct Params { rows: u32, cols: u32, eps: f32, chunk: u32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;        // (rows, cols)
@group(0) @binding(1) var<storage, read> weight: array<f32>;   // (cols)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;  // (rows, cols)
/// 1 / root mean square of each row: kept for the gradients.
@group(0) @binding(3) var<storage, read_write> inverse: array<f32>;

@group(0) @binding(2) var<storage, read> kept_inverse: array<f32>;
@group(0) @binding(3) var<storage, read> dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> x_slope: array<f32>;

// weight_backward: kept_inverse and dy as above
@group(0) @binding(1) var<storage, read_write> chunk_sums: array<f32>;  // (chunks, cols)

alias Shared = f32;

fn combine(a: f32, b: f32) -> f32 {
    return a + b;
}

@compute @workgroup_size(GROUP)
fn forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    // Threads beyond the last row do a row again and write nothing: they must reach the barriers.
    let row = flat_thread(group, groups, local, GROUP) / LANES;
    let first = min(row, params.rows - 1u) * params.cols;
    var squares = 0.0;
    for (var c = local % LANES; c < params.cols; c += LANES) {
        let v = x[first + c];
        squares += v * v;
    }
    let scale = 1.0 / sqrt(combined(squares, local, LANES) / f32(params.cols) + params.eps);
    if row >= params.rows {
        return;
    }
    for (var c = local % LANES; c < params.cols; c += LANES) {
        y[first + c] = x[first + c] * scale * weight[c];
    }
    if local % LANES == 0u {
        inverse[row] = scale;
    }
}

@compute @workgroup_size(GROUP)
fn backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row = flat_thread(group, groups, local, GROUP) / LANES;
    let first = min(row, params.rows - 1u) * params.cols;
    var along = 0.0;
    for (var c = local % LANES; c < params.cols; c += LANES) {
        along += dy[first + c] * weight[c] * x[first + c];
    }
    let total = combined(along, local, LANES);
    if row >= params.rows {
        return;
    }
    let scale = kept_inverse[row];
    let pull = total * scale * scale * scale / f32(params.cols);
    for (var c = local % LANES; c < params.cols; c += LANES) {
        x_slope[first + c] = dy[first + c] * weight[c] * scale - x[first + c] * pull;
    }
}

/// Sums of dy x / rms over `chunk` rows, column by column.
@compute @workgroup_size(GROUP)
fn weight_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = flat_thread(group, groups, local, GROUP);
    let start = i / params.cols * params.chunk;
    let col = i % params.cols;
    if start >= params.rows {
        return;
    }
    var sum = 0.0;
    for (var row = start; row < min(start + params.chunk, params.rows); row += 1u) {
        let at = row * params.cols + col;
        sum += dy[at] * x[at] * kept_inverse[row];
    }
    chunk_sums[i] = sum;
}
