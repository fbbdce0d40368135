// tensor/src/ops/matmul.rs: matrix products for processors (lavapipe: eight threads in lockstep).
//
// On lavapipe a load costs a nanosecond per number and thread, and arithmetic almost nothing, so this kernel minimises
// loads. The eight threads of a workgroup share a tile of 32 x 32 (or of 16 or 64 rows). A thread loads blocks of four rows
// of `left` and of four columns of `right`. The threads exchange the blocks of `left` (exchange_subgroup.wgsl), so that
// each thread sums all rows of its four columns. matmul_shared.wgsl has the constants, the parameters, the bindings and
// the loads.

@group(0) @binding(2) var<storage, read_write> y: array<f32>;

/// Adds the residual and writes four columns of a row of y, which starts at `start`. It writes single numbers, for the
/// reason in matmul_tiles.wgsl.
fn store(start: u32, row: u32, column: u32, sum: vec4<f32>) {
    if row >= params.m || column >= params.n {
        return;
    }
    let i = start + row * params.y_step + column;
    if Y_WIDE == 1u {
        var four = sum;
        if HAS_RESIDUAL == 1u {
            four += residual[i / 4u];
        }
        y[i] = four.x;
        y[i + 1u] = four.y;
        y[i + 2u] = four.z;
        y[i + 3u] = four.w;
        return;
    }
    for (var j = 0u; j < min(4u, params.n - column); j++) {
        var one = sum[j];
        if HAS_RESIDUAL == 1u {
            one += residual[(i + j) / 4u][(i + j) % 4u];
        }
        y[i + j] = one;
    }
}

/// Rows of a tile: 16, 32 or 64. With 64 each block of `right` is used twice. With 16 half of the threads load all rows, and
/// the other half load them for the next four of k. The order of each sum is the same for all heights.
const HEIGHT: u32 = 32u;

/// Four rows (the columns of the result) by four of k.
fn left_block(row: u32, k: u32, end: u32) -> mat4x4<f32> {
    if LAYOUT == 2u {
        let i = min(vec4(k, k + 1u, k + 2u, k + 3u), vec4(end - 1u));
        let there = vec4<f32>(vec4(k, k + 1u, k + 2u, k + 3u) < vec4(end));
        return transpose(mat4x4(
            left_four(i.x, row, params.m) * there.x, left_four(i.y, row, params.m) * there.y,
            left_four(i.z, row, params.m) * there.z, left_four(i.w, row, params.m) * there.w,
        ));
    }
    let i = min(vec4(row, row + 1u, row + 2u, row + 3u), vec4(params.m - 1u));
    return mat4x4(left_four(i.x, k, end), left_four(i.y, k, end), left_four(i.z, k, end), left_four(i.w, k, end));
}

/// Four of k (the columns of the result) by four columns.
fn right_block(column: u32, k: u32, end: u32) -> mat4x4<f32> {
    if LAYOUT == 0u {
        let i = min(vec4(column, column + 1u, column + 2u, column + 3u), vec4(params.n - 1u));
        return transpose(mat4x4(right_four(i.x, k, end), right_four(i.y, k, end), right_four(i.z, k, end), right_four(i.w, k, end)));
    }
    let i = min(vec4(k, k + 1u, k + 2u, k + 3u), vec4(end - 1u));
    return mat4x4(
        right_four(i.x, column, params.n), right_four(i.y, column, params.n),
        right_four(i.z, column, params.n), right_four(i.w, column, params.n),
    );
}

fn low_block(row: u32, k: u32) -> mat4x4<f32> {
    let i = (min(vec4(row, row + 1u, row + 2u, row + 3u), vec4(params.m - 1u)) * params.rank + k) / 4u;
    return mat4x4(low[i.x], low[i.y], low[i.z], low[i.w]);
}

fn up_block(column: u32, k: u32) -> mat4x4<f32> {
    if LAYOUT == 0u {
        let i = min(vec4(column, column + 1u, column + 2u, column + 3u), vec4(params.n - 1u));
        let j = (params.up_at + i * params.up_step + k) / 4u;
        return transpose(mat4x4(up[j.x], up[j.y], up[j.z], up[j.w]));
    }
    let i = (params.up_at + vec4(k, k + 1u, k + 2u, k + 3u) * params.up_step + column) / 4u;
    return mat4x4(up[i.x], up[i.y], up[i.z], up[i.w]);
}

/// The four columns of a block.
const SLOTS: u32 = 4u;

fn offer_block(thread: u32, block: mat4x4<f32>) {
    offer(thread, 0u, block[0]);
    offer(thread, 1u, block[1]);
    offer(thread, 2u, block[2]);
    offer(thread, 3u, block[3]);
    offered();
}

/// The block that `thread` offered.
fn taken_block(own: mat4x4<f32>, thread: u32) -> mat4x4<f32> {
    return mat4x4(
        taken(own[0], 0u, thread), taken(own[1], 1u, thread),
        taken(own[2], 2u, thread), taken(own[3], 3u, thread),
    );
}

/// The 32 rows of the four columns of a thread. An array would be in memory instead of registers.
struct Tile {
    r0: mat4x4<f32>, r1: mat4x4<f32>, r2: mat4x4<f32>, r3: mat4x4<f32>,
    r4: mat4x4<f32>, r5: mat4x4<f32>, r6: mat4x4<f32>, r7: mat4x4<f32>,
}

/// The first 16 rows, from four threads starting at `thread`.
fn multiply_half(tile: ptr<function, Tile>, left: mat4x4<f32>, thread: u32, right: mat4x4<f32>) {
    (*tile).r0 += right * taken_block(left, thread);
    (*tile).r1 += right * taken_block(left, thread + 1u);
    (*tile).r2 += right * taken_block(left, thread + 2u);
    (*tile).r3 += right * taken_block(left, thread + 3u);
}

fn multiply(tile: ptr<function, Tile>, local: u32, left: mat4x4<f32>, right: mat4x4<f32>) {
    offer_block(local, left);
    multiply_half(tile, left, 0u, right);
    (*tile).r4 += right * taken_block(left, 4u);
    (*tile).r5 += right * taken_block(left, 5u);
    (*tile).r6 += right * taken_block(left, 6u);
    (*tile).r7 += right * taken_block(left, 7u);
    all_taken();
}

fn store_block(start: u32, row: u32, column: u32, sum: mat4x4<f32>) {
    let more = bias_four(column);
    store(start, row, column, sum[0] + more);
    store(start, row + 1u, column, sum[1] + more);
    store(start, row + 2u, column, sum[2] + more);
    store(start, row + 3u, column, sum[3] + more);
}

fn store_tile(start: u32, row: u32, column: u32, tile: Tile) {
    store_block(start, row, column, tile.r0);
    store_block(start, row + 4u, column, tile.r1);
    store_block(start, row + 8u, column, tile.r2);
    store_block(start, row + 12u, column, tile.r3);
    if HEIGHT == 16u {
        return;
    }
    store_block(start, row + 16u, column, tile.r4);
    store_block(start, row + 20u, column, tile.r5);
    store_block(start, row + 24u, column, tile.r6);
    store_block(start, row + 28u, column, tile.r7);
}

@compute @workgroup_size(8)
fn product(id: Invocation) {
    let thread = id.local;
    let across = (params.n + 31u) / 32u;
    let tiles = across * ((params.m + HEIGHT - 1u) / HEIGHT);
    let flat = flat_group(id);
    let slice = flat / tiles;
    let first_row = flat % tiles / across * HEIGHT;
    let row = min(first_row + 4u * thread % HEIGHT, params.m - 1u);
    let row_below = min(first_row + 32u + 4u * thread, params.m - 1u);
    let column = flat % across * 32u + 4u * thread;
    let loaded = min(column, params.n - 1u);

    var tile: Tile;
    var below: Tile;
    let end = min(params.k, (slice + 1u) * params.slice);
    if HEIGHT == 16u {
        for (var k = slice * params.slice; k < end; k += 8u) {
            let more = k + 4u < end;
            let ahead = select(k, k + 4u, more && thread >= 4u);
            let left = left_block(row, ahead, end) * params.alpha;
            offer_block(thread, left);
            multiply_half(&tile, left, 0u, right_block(loaded, k, end));
            if more {
                multiply_half(&tile, left, 4u, right_block(loaded, k + 4u, end));
            }
            all_taken();
        }
    } else {
        for (var k = slice * params.slice; k < end; k += 4u) {
            let right = right_block(loaded, k, end);
            multiply(&tile, thread, left_block(row, k, end) * params.alpha, right);
            if HEIGHT == 64u {
                multiply(&below, thread, left_block(row_below, k, end) * params.alpha, right);
            }
        }
    }
    if HAS_LOW == 1u {
        for (var k = 0u; k < params.rank; k += 4u) {
            let right = up_block(loaded, k);
            multiply(&tile, thread, low_block(row, k), right);
            if HEIGHT == 64u {
                multiply(&below, thread, low_block(row_below, k), right);
            }
        }
    }
    if slice * params.slice >= max(params.k, 1u) {
        return;
    }
    let start = params.y_at + slice * params.y_slice;
    store_tile(start, first_row, column, tile);
    if HEIGHT == 64u {
        store_tile(start, first_row + 32u, column, below);
    }
}
