// tensor/src/ops/matmul.rs: matrix products for processors (lavapipe: eight threads in lockstep).
//
// On lavapipe a load of one or two numbers takes as long for each thread as eight multiplications and additions, so this kernel
// minimises loads (weight_words_128.wgsl, weight_texture.wgsl). The eight threads of a workgroup share a tile of up to 32 x 64. A
// thread loads blocks of four rows of `left` and of four columns of `right`. The threads exchange the blocks of `left`
// (exchange_subgroup.wgsl), so that each thread sums all rows of its four columns. matmul_shared.wgsl has the constants, the
// parameters and the bindings, and matmul_blocks.wgsl the blocks.

/// Rows of a tile: 28 or 32. The order of each sum is the same for all tiles, and in matmul_rows.wgsl.
const HEIGHT: u32 = 32u;
/// Columns of a tile: 32 or 64. A tile of 64 columns uses each block of `left` twice.
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
