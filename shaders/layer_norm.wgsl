// tensor/src/ops/layer_norm.rs: rows brought to mean 0 and variance 1, then weighted and shifted column by column.

const GROUP: u32 = 64u;
/// Threads that share a row, a power of two up to GROUP.
const LANES: u32 = 1u;

/// `chunk`: rows that one thread of `weight_backward` adds up.
struct Params { rows: u32, cols: u32, eps: f32, chunk: u32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;        // (rows, cols)
@group(0) @binding(1) var<storage, read> weight: array<f32>;   // (cols)
@group(0) @binding(2) var<storage, read> bias: array<f32>;     // (cols)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;  // (rows, cols)
/// Mean and 1 / standard deviation of each row: kept for the gradients.
@group(0) @binding(4) var<storage, read_write> moments: array<vec2<f32>>;

@group(0) @binding(2) var<storage, read> kept: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> x_slope: array<f32>;

// weight_backward: kept and dy as above
@group(0) @binding(1) var<storage, read_write> chunk_sums: array<f32>;  // (chunks, cols)

alias Shared = vec2<f32>;

fn combine(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
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
    var sum = 0.0;
    for (var c = local % LANES; c < params.cols; c += LANES) {
        sum += x[first + c];
    }
    let mean = combined(vec2(sum, 0.0), local, LANES).x / f32(params.cols);
    if LANES > 1u {
        workgroupBarrier();
    }
    var squares = 0.0;
    for (var c = local % LANES; c < params.cols; c += LANES) {
        let v = x[first + c] - mean;
        squares += v * v;
    }
    let variance = combined(vec2(squares, 0.0), local, LANES).x / f32(params.cols);
    let scale = 1.0 / sqrt(variance + params.eps);
    if row >= params.rows {
        return;
    }
    for (var c = local % LANES; c < params.cols; c += LANES) {
        y[first + c] = (x[first + c] - mean) * scale * weight[c] + bias[c];
    }
    if local % LANES == 0u {
        moments[row] = vec2(mean, scale);
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
    let moment = kept[min(row, params.rows - 1u)];
    var sums = vec2(0.0);
    for (var c = local % LANES; c < params.cols; c += LANES) {
        let slope = dy[first + c] * weight[c];
        sums += vec2(slope, slope * (x[first + c] - moment.x) * moment.y);
    }
    let means = combined(sums, local, LANES) / f32(params.cols);
    if row >= params.rows {
        return;
    }
    for (var c = local % LANES; c < params.cols; c += LANES) {
        let normal = (x[first + c] - moment.x) * moment.y;
        x_slope[first + c] = moment.y * (dy[first + c] * weight[c] - means.x - normal * means.y);
    }
}

/// Sums of dy (x - mean) / deviation over `chunk` rows, column by column.
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
        sum += dy[at] * (x[at] - kept[row].x) * kept[row].y;
    }
    chunk_sums[i] = sum;
}
