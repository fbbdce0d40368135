// tensor/src/ops/norm.rs: RMS norm and layer norm of rows, each row then scaled column by column.

const GROUP: u32 = 64u;
/// Threads that share a row, a power of two up to GROUP.
const LANES: u32 = 1u;
/// Columns that a thread reads at once: 4 in rows of a multiple of four.
const STEP: u32 = 1u;
/// 0: RMS norm. 1: layer norm, which subtracts the mean of the row and adds a bias.
const CENTERED: u32 = 0u;

/// `chunk`: rows that one thread of `weight_backward` sums.
struct Params { rows: u32, cols: u32, eps: f32, chunk: u32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;       // (rows, cols)
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;  // (cols)
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>;    // (cols), read if CENTERED
@group(0) @binding(3) var<storage, read_write> y: array<f32>;       // (rows, cols)
/// For the gradients, per row: the inverse root mean square or standard deviation; if CENTERED, then the mean.
@group(0) @binding(4) var<storage, read_write> kept: array<f32>;  // (rows, 1 + CENTERED)

@group(0) @binding(2) var<storage, read> read_kept: array<f32>;
@group(0) @binding(3) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> x_gradient: array<f32>;

@group(0) @binding(1) var<storage, read_write> chunk_sums: array<f32>;  // (chunks, cols)

alias Shared = vec2<f32>;

fn combine(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return a + b;
}

/// STEP numbers of x from `i` on, and zeros. The next three functions do the same with others.
fn x_at(i: u32) -> vec4<f32> {
    if STEP == 4u {
        return x[i / 4u];
    }
    return vec4(x[i / 4u][i % 4u], 0.0, 0.0, 0.0);
}

fn weight_at(i: u32) -> vec4<f32> {
    if STEP == 4u {
        return weight[i / 4u];
    }
    return vec4(weight[i / 4u][i % 4u], 0.0, 0.0, 0.0);
}

fn bias_at(i: u32) -> vec4<f32> {
    if STEP == 4u {
        return bias[i / 4u];
    }
    return vec4(bias[i / 4u][i % 4u], 0.0, 0.0, 0.0);
}

fn dy_at(i: u32) -> vec4<f32> {
    if STEP == 4u {
        return dy[i / 4u];
    }
    return vec4(dy[i / 4u][i % 4u], 0.0, 0.0, 0.0);
}

/// The sum and STEP numbers, one after the other.
fn plus(sum: f32, numbers: vec4<f32>) -> f32 {
    if STEP == 4u {
        return sum + numbers.x + numbers.y + numbers.z + numbers.w;
    }
    return sum + numbers.x;
}

/// The scale of a row, and its mean (0 for RMS norm).
fn moments_of(row: u32) -> vec2<f32> {
    if CENTERED == 1u {
        return vec2(read_kept[2u * row], read_kept[2u * row + 1u]);
    }
    return vec2(read_kept[row], 0.0);
}

@compute @workgroup_size(GROUP)
fn forward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // Surplus threads repeat the last row and write nothing: all threads must reach the barriers.
    let row = flat_thread(id, local, GROUP) / LANES;
    let first = min(row, params.rows - 1u) * params.cols;
    var mean = 0.0;
    if CENTERED == 1u {
        var sum = 0.0;
        for (var c = local % LANES * STEP; c < params.cols; c += LANES * STEP) {
            sum = plus(sum, x_at(first + c));
        }
        mean = combined(vec2(sum, 0.0), local, LANES).x / f32(params.cols);
        if LANES > 1u {
            workgroupBarrier();
        }
    }
    var squares = 0.0;
    for (var c = local % LANES * STEP; c < params.cols; c += LANES * STEP) {
        let v = x_at(first + c) - mean;
        squares = plus(squares, v * v);
    }
    let variance = combined(vec2(squares, 0.0), local, LANES).x / f32(params.cols);
    let scale = 1.0 / sqrt(variance + params.eps);
    if row >= params.rows {
        return;
    }
    for (var c = local % LANES * STEP; c < params.cols; c += LANES * STEP) {
        var normal = (x_at(first + c) - mean) * scale * weight_at(c);
        if CENTERED == 1u {
            normal += bias_at(c);
        }
        for (var j = 0u; j < STEP; j += 1u) {
            y[first + c + j] = normal[j];
        }
    }
    if local % LANES == 0u {
        kept[row * (1u + CENTERED)] = scale;
        if CENTERED == 1u {
            kept[2u * row + 1u] = mean;
        }
    }
}

@compute @workgroup_size(GROUP)
fn backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = flat_thread(id, local, GROUP) / LANES;
    let first = min(row, params.rows - 1u) * params.cols;
    let moments = moments_of(min(row, params.rows - 1u));
    let scale = moments.x;
    let mean = moments.y;
    var sums = vec2(0.0);
    for (var c = local % LANES * STEP; c < params.cols; c += LANES * STEP) {
        let slope = dy_at(first + c) * weight_at(c);
        if CENTERED == 1u {
            sums = vec2(plus(sums.x, slope), plus(sums.y, slope * (x_at(first + c) - mean) * scale));
        } else {
            sums = vec2(plus(sums.x, slope * x_at(first + c)), 0.0);
        }
    }
    let totals = combined(sums, local, LANES);
    if row >= params.rows {
        return;
    }
    let means = totals / f32(params.cols);
    let pull = totals.x * scale * scale * scale / f32(params.cols);
    for (var c = local % LANES * STEP; c < params.cols; c += LANES * STEP) {
        let slope = dy_at(first + c) * weight_at(c);
        var gradient = slope * scale - x_at(first + c) * pull;
        if CENTERED == 1u {
            gradient = scale * (slope - means.x - (x_at(first + c) - mean) * scale * means.y);
        }
        for (var j = 0u; j < STEP; j += 1u) {
            x_gradient[first + c + j] = gradient[j];
        }
    }
}

/// Sums dy times the normalised x over `chunk` rows, column by column.
@compute @workgroup_size(GROUP)
fn weight_backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    let start = i / params.cols * params.chunk;
    let col = i % params.cols;
    if start >= params.rows {
        return;
    }
    var sum = 0.0;
    for (var row = start; row < min(start + params.chunk, params.rows); row += 1u) {
        let at = row * params.cols + col;
        let moments = moments_of(row);
        sum += dy[at / 4u][at % 4u] * (x[at / 4u][at % 4u] - moments.y) * moments.x;
    }
    chunk_sums[i] = sum;
}
