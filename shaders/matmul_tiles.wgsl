// tensor/src/ops/matmul.rs: matrix products for GPUs.
//
// The 256 threads of a workgroup share a tile of 64 x 64. In steps of 16 of k they stage rows of `left` and columns of
// `right` in workgroup memory, then each thread sums four rows of four columns. matmul_shared.wgsl has the constants, the
// parameters, the bindings and the loads.

@group(0) @binding(2) var<storage, read_write> y: array<f32>;

/// Adds the residual and writes four columns of a row of y, which starts at `start`. It writes single numbers: a store to
/// a component of a vector may write the whole vector (as on Metal), and other threads write the other components.
fn store(start: u32, row: u32, column: u32, sum: vec4<f32>) {
    if GATED == 1u {
        store_gated(start, row, column / 2u, sum);
        return;
    }
    if row >= params.m || column >= part.n {
        return;
    }
    let i = start + row * part.y_step + column;
    for (var j = 0u; j < min(4u, part.n - column); j++) {
        var one = sum[j];
        if params.has_residual == 1u {
            one += residual[(i + j) / 4u][(i + j) % 4u];
        }
        y[i + j] = one;
    }
}

/// 16 of k by 64 rows, and by 64 columns.
var<workgroup> rows: array<f32, 1024>;
var<workgroup> columns: array<f32, 1024>;

/// Stages four numbers of a row along k, transposed, so that `multiply` reads four rows at a time.
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

/// Each thread stages four numbers of `left`; 0 beyond the end of k.
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
        let column = thread / 4u;
        let start = right_starts(first_column + column / 4u * 4u)[column % 4u];
        stage_columns(column, i, right_four(start, min(k + i, end - 1u), end));
        return;
    }
    let column = min(first_column + thread % 16u * 4u, part.n - 1u);
    let start = params.right_at + min(k + thread / 16u, end - 1u) * params.right_step;
    let four = right_four(start, column, part.n);
    for (var j = 0u; j < 4u; j++) {
        columns[thread * 4u + j] = four[j];
    }
}

/// The same for the low-rank term, whose rows are multiples of four.
fn stage_low(thread: u32, first_row: u32, k: u32) {
    let i = k + thread % 4u * 4u;
    let row = min(first_row + thread / 4u, params.m - 1u);
    let four = low[low_place(row, min(i, end_of_low() - 4u))];
    stage_rows(thread / 4u, thread % 4u * 4u, four * f32(i < end_of_low()));
}

fn stage_up(thread: u32, first_column: u32, k: u32) {
    if LAYOUT == 0u {
        let i = min(k + thread % 4u * 4u, end_of_low() - 4u);
        let column = thread / 4u;
        let start = up_starts(first_column + column / 4u * 4u)[column % 4u];
        stage_columns(column, thread % 4u * 4u, up_four(start, column % 4u >= 2u, i));
        return;
    }
    let i = min(k + thread / 16u, params.rank - 1u);
    let column = min(first_column + thread % 16u * 4u, part.n - 1u);
    let four = up[(params.up_at + i * params.up_step + column) / 4u];
    for (var j = 0u; j < 4u; j++) {
        columns[thread * 4u + j] = four[j];
    }
}

/// Adds the product of the staged tiles. `sum` has a column for each of the four rows of y.
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
fn product(id: Invocation) {
    let thread = id.local;
    let flat = choose_part(flat_group(id), 64u, 64u);
    let across = tiles_across(64u);
    let tiles = across * ((params.m + 63u) / 64u);
    let slice = slice_of(flat_group(id), 64u, 64u);
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
    for (var k = 0u; k < end_of_low(); k += 16u) {
        stage_low(thread, first_row, k);
        stage_up(thread, first_column, k);
        workgroupBarrier();
        sum = multiply(sum, row, column);
        workgroupBarrier();
    }
    if slice * params.slice >= max(params.k, 1u) {
        return;
    }
    let start = part.y_at + slice * params.y_slice;
    let more = bias_four(first_column + column * 4u);
    for (var i = 0u; i < 4u; i++) {
        store(start, first_row + row * 4u + i, first_column + column * 4u, sum[i] + more);
    }
}
