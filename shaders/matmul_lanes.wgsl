// tensor/src/ops/matmul.rs: matrix products for processors (lavapipe: eight threads in lockstep).
//
// On lavapipe a load takes 0.6 ns per number and thread, as long as eight multiplications and additions, so this kernel
// minimises loads. The eight threads of a workgroup share a tile of up to 32 x 64. A thread loads blocks of four rows of
// `left` and of four columns of `right`. The threads exchange the blocks of `left` (exchange_subgroup.wgsl), so that each
// thread sums all rows of its four columns. matmul_shared.wgsl has the constants, the parameters, the bindings and the
// loads.

@group(0) @binding(2) var<storage, read_write> y: array<f32>;

/// Adds the residual and writes four columns of a row of y, which starts at `start`. It writes single numbers, for the
/// reason in matmul_tiles.wgsl.
fn store(start: u32, row: u32, column: u32, sum: vec4<f32>) {
    if GATED == 1u {
        store_gated(start, row, column / 2u, sum);
        return;
    }
    if row >= params.m || column >= part.n {
        return;
    }
    let i = start + row * part.y_step + column;
    if Y_WIDE == 1u {
        var four = sum;
        if params.has_residual == 1u {
            four += residual[i / 4u];
        }
        y[i] = four.x;
        y[i + 1u] = four.y;
        y[i + 2u] = four.z;
        y[i + 3u] = four.w;
        return;
    }
    for (var j = 0u; j < min(4u, part.n - column); j++) {
        var one = sum[j];
        if params.has_residual == 1u {
            one += residual[(i + j) / 4u][(i + j) % 4u];
        }
        y[i + j] = one;
    }
}

/// 1 if all rows of y start at a multiple of four numbers.
const Y_WIDE: u32 = 1u;
/// Rows of a tile: 28 or 32 in `product`; 1, 2, 4 or 8 in `few_rows`. The order of each sum is the same for all tiles.
const HEIGHT: u32 = 2u;
/// Columns of a tile of `product`: 32 or 64. A tile of 64 columns uses each block of `left` twice.
const WIDTH: u32 = 32u;

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

/// Up to 32 rows of the four columns of a thread. An array would be in memory instead of registers.
struct Tile {
    r0: mat4x4<f32>, r1: mat4x4<f32>, r2: mat4x4<f32>, r3: mat4x4<f32>,
    r4: mat4x4<f32>, r5: mat4x4<f32>, r6: mat4x4<f32>, r7: mat4x4<f32>,
}

fn multiply(tile: ptr<function, Tile>, local: u32, left: mat4x4<f32>, right: mat4x4<f32>) {
    offer_block(local, left);
    (*tile).r0 += right * taken_block(left, 0u);
    (*tile).r1 += right * taken_block(left, 1u);
    (*tile).r2 += right * taken_block(left, 2u);
    (*tile).r3 += right * taken_block(left, 3u);
    (*tile).r4 += right * taken_block(left, 4u);
    (*tile).r5 += right * taken_block(left, 5u);
    (*tile).r6 += right * taken_block(left, 6u);
    if HEIGHT == 32u {
        (*tile).r7 += right * taken_block(left, 7u);
    }
    all_taken();
}

fn store_block(start: u32, row: u32, column: u32, sum: mat4x4<f32>) {
    let more = bias_four(column);
    store(start, row, column, sum[0] + more);
    store(start, row + 1u, column, sum[1] + more);
    store(start, row + 2u, column, sum[2] + more);
    store(start, row + 3u, column, sum[3] + more);
}

/// One block at a time, and the others move up. The length of the loop is no constant, so it is not unrolled: the code of 128
/// stores takes longer to compile than everything else.
fn store_tile(start: u32, first_row: u32, column: u32, tile: Tile) {
    var t = tile;
    for (var row = first_row; row < min(first_row + HEIGHT, params.m); row += 4u) {
        store_block(start, row, column, t.r0);
        t = Tile(t.r1, t.r2, t.r3, t.r4, t.r5, t.r6, t.r7, t.r7);
    }
}

@compute @workgroup_size(8)
fn product(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let flat = choose_part(flat_group(id), HEIGHT, WIDTH);
    let across = tiles_across(WIDTH);
    let tiles = across * ((params.m + HEIGHT - 1u) / HEIGHT);
    let slice = slice_of(flat_group(id), HEIGHT, WIDTH);
    let first_row = flat % tiles / across * HEIGHT;
    let row = min(first_row + 4u * local, params.m - 1u);
    let column = flat % across * WIDTH + 4u * local;
    let last = part.n * (1u + GATED) - 1u;
    let loaded = min(column, last);
    let loaded_beside = min(column + 32u, last);

    var tile: Tile;
    var beside: Tile;
    let end = min(params.k, (slice + 1u) * params.slice);
    // Within a loop, lavapipe reads parameters thread by thread.
    let alpha = params.alpha;
    let left_from = left_place(row);
    let right_from = right_place(loaded);
    let right_beside = right_place(loaded_beside);
    for (var k = slice * params.slice; k < end; k += 4u) {
        let left = left_block(left_from, k, end) * alpha;
        multiply(&tile, local, left, right_block(right_from, k, end));
        if WIDTH == 64u {
            multiply(&beside, local, left, right_block(right_beside, k, end));
        }
    }
    for (var k = 0u; k < end_of_low(); k += 4u) {
        let left = low_block(row, k);
        multiply(&tile, local, left, up_block(loaded, k));
        if WIDTH == 64u {
            multiply(&beside, local, left, up_block(loaded_beside, k));
        }
    }
    if slice * params.slice >= max(params.k, 1u) {
        return;
    }
    let start = part.y_at + slice * params.y_slice;
    store_tile(start, first_row, column, tile);
    if WIDTH == 64u {
        store_tile(start, first_row, column + 32u, beside);
    }
}

fn bitcast_rows(a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>) -> mat4x4<f32> {
    return mat4x4(bitcast<vec4<f32>>(a), bitcast<vec4<f32>>(b), bitcast<vec4<f32>>(c), bitcast<vec4<f32>>(d));
}

/// Two blocks of `right` that follow each other along k. In 16 bits they are one load for each column, in 4 bits two of words.
struct Pair {
    first: mat4x4<f32>,
    second: mat4x4<f32>,
}

fn right_pair(start: vec4<u32>, k: u32, scales: mat4x2<f32>) -> Pair {
    if FORMAT == 0u {
        let i = (start + k) / 4u;
        return Pair(
            transpose(bitcast_rows(right[i.x], right[i.y], right[i.z], right[i.w])),
            transpose(bitcast_rows(right[i.x + 1u], right[i.y + 1u], right[i.z + 1u], right[i.w + 1u])),
        );
    }
    if FORMAT >= 3u {
        let a = quantised_eight(start.x, k, scales[0]);
        let b = quantised_eight(start.y, k, scales[1]);
        let c = quantised_eight(start.z, k, scales[2]);
        let d = quantised_eight(start.w, k, scales[3]);
        return Pair(
            transpose(mat4x4(a[0], b[0], c[0], d[0])),
            transpose(mat4x4(a[1], b[1], c[1], d[1])),
        );
    }
    let i = (start + k) / 8u;
    let a = right[i.x];
    let b = right[i.y];
    let c = right[i.z];
    let d = right[i.w];
    return Pair(
        transpose(mat4x4(from_halves(a.xy), from_halves(b.xy), from_halves(c.xy), from_halves(d.xy))),
        transpose(mat4x4(from_halves(a.zw), from_halves(b.zw), from_halves(c.zw), from_halves(d.zw))),
    );
}

/// Scales and minima of four rows of a quantised matrix.
fn right_scales(start: vec4<u32>, k: u32) -> mat4x2<f32> {
    if FORMAT < 3u {
        return mat4x2<f32>();
    }
    return mat4x2(scale_at(start.x, k), scale_at(start.y, k), scale_at(start.z, k), scale_at(start.w, k));
}

/// Numbers of k in a step of `few_rows`, which must divide k. With up to four rows, each thread loads four numbers of one row
/// for a step; with eight rows, eight.
const STEP: u32 = max(8u, 32u / HEIGHT);

/// Few rows of `left` (m, k) times `right` (n, k) transposed, without slices. The eight threads compute HEIGHT rows of 32
/// columns, so that each number of `right` is loaded once and used for all rows.
@compute @workgroup_size(8)
fn few_rows(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let flat = choose_part(flat_group(id), HEIGHT, 32u);
    let across = tiles_across(32u);
    let first_row = flat / across * HEIGHT;
    let column = flat % across * 32u + 4u * local;
    let row = min(first_row + local % HEIGHT, params.m - 1u);
    let start = params.left_at + row * params.left_step + local / HEIGHT * 4u;

    var sums: array<vec4<f32>, HEIGHT>;
    for (var r = 0u; r < HEIGHT; r++) {
        sums[r] = vec4<f32>();
    }
    // Within a loop, lavapipe reads parameters thread by thread.
    let starts = right_starts(column);
    let end = params.k;
    let alpha = params.alpha;
    for (var k = 0u; k < end; k += STEP) {
        let own = left[(start + k) / 4u] * alpha;
        var next = vec4<f32>();
        offer(local, 0u, own);
        if HEIGHT == 8u {
            next = left[(start + k) / 4u + 1u] * alpha;
            offer(local, 1u, next);
        }
        offered();
        var scales = right_scales(starts, k);
        for (var i = 0u; i < STEP; i += 8u) {
            if i % 16u == 0u && FORMAT == 5u {
                scales = right_scales(starts, k + i);
            }
            let right = right_pair(starts, k + i, scales);
            for (var r = 0u; r < HEIGHT; r++) {
                if HEIGHT == 8u {
                    sums[r] += right.first * taken(own, 0u, r);
                    sums[r] += right.second * taken(next, 1u, r);
                } else {
                    sums[r] += right.first * taken(own, 0u, r + i / 4u * HEIGHT);
                    sums[r] += right.second * taken(own, 0u, r + (i / 4u + 1u) * HEIGHT);
                }
            }
        }
        all_taken();
    }
    for (var k = 0u; k < end_of_low(); k += 4u) {
        let own = low[low_place(row, k)];
        offer(local, 0u, own);
        offered();
        let right = up_block(column, k);
        for (var r = 0u; r < HEIGHT; r++) {
            sums[r] += right * taken(own, 0u, r);
        }
        all_taken();
    }
    let more = bias_four(column);
    for (var r = 0u; r < HEIGHT; r++) {
        store(part.y_at, first_row + r, column, sums[r] + more);
    }
}
