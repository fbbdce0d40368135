// tensor/src/ops/matmul.rs: products of matrices on a GPU.
//
// The 256 threads of a group share a tile of 64 x 64. Sixteen of k at a time, they stage their rows of `left` and
// columns of `right` in workgroup memory; then each thread sums four rows of four columns.
// The constants, the parameters, the bindings and the loads are those of matmul_lanes.wgsl, line for line.

/// 0: left (m, k), right (n, k) transposed. 1: left (m, k), right (k, n). 2: left (k, m) transposed, right (k, n).
const LAYOUT: u32 = 0u;
/// How `right` is stored. 0: f32. 1: f16. 2: bf16.
const FORMAT: u32 = 0u;
/// 1 where every row and the first number used start at a multiple of four numbers: of left and right, and of y (read by matmul_lanes.wgsl
/// alone).
const WIDE: u32 = 1u;
const Y_WIDE: u32 = 1u;
/// 1 where there is a low-rank term, a bias, a residual.
const HAS_LOW: u32 = 0u;
const HAS_BIAS: u32 = 0u;
const HAS_RESIDUAL: u32 = 0u;

/// y = alpha left right + low up + bias + residual, k summed in ascending order. Of the seven buffers, those of absent
/// terms are bound to something else and not read.
struct Params {
    /// y has m rows of n columns. The low-rank term has the layout of the main one and sums over rank.
    m: u32, n: u32, k: u32, rank: u32,
    /// In numbers, from one stored row to the next.
    left_step: u32, right_step: u32, up_step: u32, y_step: u32,
    /// In numbers, before the first one used.
    left_at: u32, right_at: u32, up_at: u32, y_at: u32,
    /// How much of k one slice sums, and how far apart the results of the slices are.
    slice: u32, y_slice: u32,
    alpha: f32, padding: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> left: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> right: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> low: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> up: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read> residual: array<vec4<f32>>;

/// Where the numbers `at` .. `at` + 4 of a row are that begins at `start` and has `end` numbers; the last stands in
/// for those past the end.
fn places(start: u32, at: u32, end: u32) -> vec4<u32> {
    return start + min(vec4(at, at + 1u, at + 2u, at + 3u), vec4(end - 1u));
}

/// Four numbers of a row of `left`, from `at`; 0 past the end.
fn left_four(row: u32, at: u32, end: u32) -> vec4<f32> {
    let start = params.left_at + row * params.left_step;
    if WIDE == 1u {
        return left[(start + at) / 4u];
    }
    let i = places(start, at, end);
    let four = vec4(left[i.x / 4u][i.x % 4u], left[i.y / 4u][i.y % 4u], left[i.z / 4u][i.z % 4u], left[i.w / 4u][i.w % 4u]);
    return select(vec4<f32>(), four, vec4(at, at + 1u, at + 2u, at + 3u) < vec4(end));
}

/// Four numbers of a row of `right`, from `at`; anything finite past the end, where `left` is 0 or nobody looks.
fn right_four(row: u32, at: u32, end: u32) -> vec4<f32> {
    let start = params.right_at + row * params.right_step;
    let first = start + at;
    if FORMAT != 0u {
        let half = first / 4u % 2u * 2u;
        let pairs = vec2(right[first / 8u][half], right[first / 8u][half + 1u]);
        if FORMAT == 1u {
            return vec4(unpack2x16float(pairs.x), unpack2x16float(pairs.y));
        }
        return bitcast<vec4<f32>>(vec4(pairs.x << 16u, pairs.x & 0xffff0000u, pairs.y << 16u, pairs.y & 0xffff0000u));
    }
    if WIDE == 1u {
        return bitcast<vec4<f32>>(right[first / 4u]);
    }
    let i = places(start, at, end);
    let four = vec4(right[i.x / 4u][i.x % 4u], right[i.y / 4u][i.y % 4u], right[i.z / 4u][i.z % 4u], right[i.w / 4u][i.w % 4u]);
    return bitcast<vec4<f32>>(four);
}

/// Four numbers of the bias.
fn bias_four(column: u32) -> vec4<f32> {
    if HAS_BIAS == 0u {
        return vec4<f32>();
    }
    let i = places(params.y_at, column, params.n);
    return vec4(bias[i.x], bias[i.y], bias[i.z], bias[i.w]);
}

// End of what the two files share.

@group(0) @binding(2) var<storage, read_write> y: array<f32>;

/// Adds the residual and writes four columns of a row of the y that begins at `start`. One number at a time, as staging
/// does: a store to one component of a vector may touch the whole vector (it does on Metal), and the neighbours are
/// other threads'.
fn store(start: u32, row: u32, column: u32, sum: vec4<f32>) {
    if row >= params.m || column >= params.n {
        return;
    }
    let i = start + row * params.y_step + column;
    for (var j = 0u; j < min(4u, params.n - column); j++) {
        var one = sum[j];
        if HAS_RESIDUAL == 1u {
            one += residual[(i + j) / 4u][(i + j) % 4u];
        }
        y[i + j] = one;
    }
}

/// Sixteen of k by 64 rows, and by 64 columns.
var<workgroup> rows: array<f32, 1024>;
var<workgroup> columns: array<f32, 1024>;

/// Puts four numbers of k, of one row or column, where they are read four rows or columns at a time.
fn stage_rows(row: u32, k: u32, four: vec4<f32>) {
    rows[k * 64u + row] = four.x;
    rows[(k + 1u) * 64u + row] = four.y;
    rows[(k + 2u) * 64u + row] = four.z;
    rows[(k + 3u) * 64u + row] = four.w;
}

fn stage_columns(column: u32, k: u32, four: vec4<f32>) {
    columns[k * 64u + column] = four.x;
    columns[(k + 1u) * 64u + column] = four.y;
    columns[(k + 2u) * 64u + column] = four.z;
    columns[(k + 3u) * 64u + column] = four.w;
}

/// Each of the 256 threads stages four numbers of `left`; 0 past the end of k.
fn stage_left(thread: u32, first_row: u32, k: u32, end: u32) {
    if LAYOUT == 2u {
        let i = thread / 16u;
        let row = min(first_row + thread % 16u * 4u, params.m - 1u);
        let four = left_four(min(k + i, end - 1u), row, params.m) * f32(k + i < end);
        for (var j = 0u; j < 4u; j++) {
            rows[thread * 4u + j] = four[j];
        }
        return;
    }
    let i = thread % 4u * 4u;
    let row = min(first_row + thread / 4u, params.m - 1u);
    stage_rows(thread / 4u, i, left_four(row, min(k + i, end - 1u), end) * f32(k + i < end));
}

fn stage_right(thread: u32, first_column: u32, k: u32, end: u32) {
    if LAYOUT == 0u {
        let i = thread % 4u * 4u;
        let column = min(first_column + thread / 4u, params.n - 1u);
        stage_columns(thread / 4u, i, right_four(column, min(k + i, end - 1u), end));
        return;
    }
    let column = min(first_column + thread % 16u * 4u, params.n - 1u);
    let four = right_four(min(k + thread / 16u, end - 1u), column, params.n);
    for (var j = 0u; j < 4u; j++) {
        columns[thread * 4u + j] = four[j];
    }
}

/// The same for the low-rank term, which is always wide.
fn stage_low(thread: u32, first_row: u32, k: u32) {
    let i = k + thread % 4u * 4u;
    let row = min(first_row + thread / 4u, params.m - 1u);
    let four = low[(row * params.rank + min(i, params.rank - 4u)) / 4u];
    stage_rows(thread / 4u, thread % 4u * 4u, four * f32(i < params.rank));
}

fn stage_up(thread: u32, first_column: u32, k: u32) {
    if LAYOUT == 0u {
        let i = min(k + thread % 4u * 4u, params.rank - 4u);
        let column = min(first_column + thread / 4u, params.n - 1u);
        stage_columns(thread / 4u, thread % 4u * 4u, up[(params.up_at + column * params.up_step + i) / 4u]);
        return;
    }
    let i = min(k + thread / 16u, params.rank - 1u);
    let column = min(first_column + thread % 16u * 4u, params.n - 1u);
    let four = up[(params.up_at + i * params.up_step + column) / 4u];
    for (var j = 0u; j < 4u; j++) {
        columns[thread * 4u + j] = four[j];
    }
}

/// What is staged, multiplied: the four columns are those of `sum`'s rows, the four rows its columns.
fn multiply(sum: mat4x4<f32>, row: u32, column: u32) -> mat4x4<f32> {
    var total = sum;
    for (var k = 0u; k < 16u; k++) {
        let i = k * 64u + row * 4u;
        let j = k * 64u + column * 4u;
        let a = vec4(rows[i], rows[i + 1u], rows[i + 2u], rows[i + 3u]);
        let b = vec4(columns[j], columns[j + 1u], columns[j + 2u], columns[j + 3u]);
        total += mat4x4(b * a.x, b * a.y, b * a.z, b * a.w);
    }
    return total;
}

@compute @workgroup_size(256)
fn product(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let across = (params.n + 63u) / 64u;
    let tiles = across * ((params.m + 63u) / 64u);
    let flat = flat_group(group, groups);
    let slice = flat / tiles;
    let first_row = flat % tiles / across * 64u;
    let first_column = flat % across * 64u;
    let row = thread / 16u;
    let column = thread % 16u;

    var sum: mat4x4<f32>;
    let end = min(params.k, (slice + 1u) * params.slice);
    for (var k = slice * params.slice; k < end; k += 16u) {
        stage_left(thread, first_row, k, end);
        stage_right(thread, first_column, k, end);
        workgroupBarrier();
        sum = multiply(sum, row, column);
        workgroupBarrier();
    }
    sum *= params.alpha;
    if HAS_LOW == 1u {
        for (var k = 0u; k < params.rank; k += 16u) {
            stage_low(thread, first_row, k);
            stage_up(thread, first_column, k);
            workgroupBarrier();
            sum = multiply(sum, row, column);
            workgroupBarrier();
        }
    }
    if slice * params.slice >= max(params.k, 1u) {
        return;
    }
    let start = params.y_at + slice * params.y_slice;
    let more = bias_four(first_column + column * 4u);
    for (var i = 0u; i < 4u; i++) {
        store(start, first_row + row * 4u + i, first_column + column * 4u, sum[i] + more);
    }
}
