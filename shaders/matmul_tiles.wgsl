// tensor/src/ops/matmul.rs: matrix products for GPUs.
//
// A workgroup computes a tile of ROWS x COLUMNS. In steps of STEP of k its threads stage blocks of `left` and `right`, four
// numbers by four, in workgroup memory. Then each thread sums EACH rows of four columns. Each sum runs over k in ascending
// order with fused multiply-adds, so all tiles give the same bits. matmul_shared.wgsl has the constants, the parameters, the
// bindings, matmul_blocks.wgsl the loads.

/// The size of a tile: 128 x 64 in steps of 16; 64 x 32, for small matrices; 16 x 32 in steps of 64, for few rows.
const ROWS: u32 = 128u;
const COLUMNS: u32 = 64u;
const STEP: u32 = 16u;
/// Rows of a thread. Threads are in 16 rows.
const EACH: u32 = ROWS / 16u;
const THREADS: u32 = COLUMNS * 4u;
/// Blocks of `left` and of both in a step.
const LEFT_BLOCKS: u32 = ROWS * STEP / 16u;
const BLOCKS: u32 = LEFT_BLOCKS + COLUMNS * STEP / 16u;

/// STEP of k by the rows, and by the columns, four in a vector.
var<workgroup> rows: array<vec4<f32>, LEFT_BLOCKS * 4u>;
var<workgroup> columns: array<vec4<f32>, (BLOCKS - LEFT_BLOCKS) * 4u>;

/// A block of a tile: four of k from `k` on, and the rows or columns from 4 `place` on.
struct Block { k: u32, place: u32 }

/// The block that a thread stages as its `number`th, among those of a matrix with `size` rows or columns. Neighbouring threads
/// read neighbouring numbers of the matrix.
fn block_of(number: u32, size: u32, along_k: bool) -> Block {
    if along_k {
        return Block(number % (STEP / 4u) * 4u, number / (STEP / 4u));
    }
    return Block(number / (size / 4u) * 4u, number % (size / 4u));
}

fn stage_rows(block: Block, left: mat4x4<f32>) {
    let i = block.k * (ROWS / 4u) + block.place;
    rows[i] = left[0];
    rows[i + ROWS / 4u] = left[1];
    rows[i + 2u * (ROWS / 4u)] = left[2];
    rows[i + 3u * (ROWS / 4u)] = left[3];
}

fn stage_columns(block: Block, right: mat4x4<f32>) {
    let i = block.k * (COLUMNS / 4u) + block.place;
    columns[i] = right[0];
    columns[i + COLUMNS / 4u] = right[1];
    columns[i + 2u * (COLUMNS / 4u)] = right[2];
    columns[i + 3u * (COLUMNS / 4u)] = right[3];
}

/// The block that a thread stages in each step, and its place in `left` or `right`.
struct Share { block: Block, place: Place }

fn share_of(number: u32, first_row: u32, first_column: u32) -> Share {
    if number < LEFT_BLOCKS {
        let block = block_of(number, ROWS, LAYOUT != 2u);
        return Share(block, left_place(min(first_row + block.place * 4u, params.m - 1u)));
    }
    let block = block_of(number - LEFT_BLOCKS, COLUMNS, LAYOUT == 0u);
    let last = part.n * (1u + GATED) - 1u;
    return Share(block, right_place(min(first_column + block.place * 4u, last)));
}

/// Stages the `number`th block of a step of `left` and `right`; 0 beyond the end of k.
fn stage(number: u32, share: Share, k: u32, end: u32) {
    let at = k + share.block.k;
    let inside = min(at, (end - 1u) / 4u * 4u);
    if number < LEFT_BLOCKS {
        stage_rows(share.block, transpose(left_block(share.place, inside, end)) * f32(at < end));
    } else if number < BLOCKS {
        stage_columns(share.block, right_block(share.place, inside, end));
    }
}

/// The same for the low-rank term.
fn stage_low(number: u32, first_row: u32, first_column: u32, k: u32) {
    if number < LEFT_BLOCKS {
        let block = block_of(number, ROWS, true);
        let row = min(first_row + block.place * 4u, params.m - 1u);
        let at = k + block.k;
        stage_rows(block, transpose(low_block(row, min(at, end_of_low() - 4u))) * f32(at < end_of_low()));
    } else if number < BLOCKS {
        let block = block_of(number - LEFT_BLOCKS, COLUMNS, LAYOUT == 0u);
        let column = min(first_column + block.place * 4u, part.n * (1u + GATED) - 1u);
        stage_columns(block, up_block(column, min(k + block.k, end_of_low() - 4u)));
    }
}

/// The sums of a thread: EACH rows of four columns. No loop indexes them: with loops of eight, the largest tile was seven times
/// slower than the small one on an NVIDIA H200, presumably because its compiler then kept them in memory.
alias Sums = array<vec4<f32>, 8>;

/// Adds the product of EACH rows, staged from `left_at` on, and of four columns for one of k.
fn add(sums: ptr<function, Sums>, row: u32, left_at: u32, right_at: u32) {
    let right = columns[right_at];
    if EACH == 1u {
        (*sums)[0] = fma(vec4(rows[left_at][row % 4u]), right, (*sums)[0]);
        return;
    }
    let left = rows[left_at];
    (*sums)[0] = fma(vec4(left.x), right, (*sums)[0]);
    (*sums)[1] = fma(vec4(left.y), right, (*sums)[1]);
    (*sums)[2] = fma(vec4(left.z), right, (*sums)[2]);
    (*sums)[3] = fma(vec4(left.w), right, (*sums)[3]);
    if EACH == 8u {
        let more = rows[left_at + 1u];
        (*sums)[4] = fma(vec4(more.x), right, (*sums)[4]);
        (*sums)[5] = fma(vec4(more.y), right, (*sums)[5]);
        (*sums)[6] = fma(vec4(more.z), right, (*sums)[6]);
        (*sums)[7] = fma(vec4(more.w), right, (*sums)[7]);
    }
}

/// Adds the product of the staged blocks to the rows of a thread. Four of k at a time, since not every compiler unrolls.
fn multiply(sums: ptr<function, Sums>, row: u32, column: u32) {
    for (var k = 0u; k < STEP; k += 4u) {
        let i = k * (ROWS / 4u) + row * EACH / 4u;
        let j = k * (COLUMNS / 4u) + column;
        add(sums, row, i, j);
        add(sums, row, i + ROWS / 4u, j + COLUMNS / 4u);
        add(sums, row, i + 2u * (ROWS / 4u), j + 2u * (COLUMNS / 4u));
        add(sums, row, i + 3u * (ROWS / 4u), j + 3u * (COLUMNS / 4u));
    }
}

fn scale(sums: ptr<function, Sums>) {
    (*sums)[0] *= params.alpha;
    (*sums)[1] *= params.alpha;
    (*sums)[2] *= params.alpha;
    (*sums)[3] *= params.alpha;
    (*sums)[4] *= params.alpha;
    (*sums)[5] *= params.alpha;
    (*sums)[6] *= params.alpha;
    (*sums)[7] *= params.alpha;
}

@compute @workgroup_size(THREADS)
fn product(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let flat = choose_part(flat_group(id), ROWS, COLUMNS);
    let across = tiles_across(COLUMNS);
    let tiles = across * ((params.m + ROWS - 1u) / ROWS);
    let slice = slice_of(flat_group(id), ROWS, COLUMNS);
    let first_row = flat % tiles / across * ROWS;
    let first_column = flat % across * COLUMNS;
    let row = local / (COLUMNS / 4u);
    let column = local % (COLUMNS / 4u);

    let share = share_of(local, first_row, first_column);
    let second_share = share_of(local + THREADS, first_row, first_column);
    // With few rows, whole subgroups have nothing to sum.
    let is_needed = EACH > 1u || first_row + row < params.m;
    var sums: Sums;
    let end = min(params.k, (slice + 1u) * params.slice);
    for (var k = slice * params.slice; k < end; k += STEP) {
        stage(local, share, k, end);
        if BLOCKS > THREADS {
            stage(local + THREADS, second_share, k, end);
        }
        workgroupBarrier();
        if is_needed {
            multiply(&sums, row, column);
        }
        workgroupBarrier();
    }
    scale(&sums);
    for (var k = 0u; k < end_of_low(); k += STEP) {
        stage_low(local, first_row, first_column, k);
        if BLOCKS > THREADS {
            stage_low(local + THREADS, first_row, first_column, k);
        }
        workgroupBarrier();
        if is_needed {
            multiply(&sums, row, column);
        }
        workgroupBarrier();
    }
    if slice * params.slice >= max(params.k, 1u) {
        return;
    }
    let start = part.y_at + slice * params.y_slice;
    let more = bias_four(first_column + column * 4u);
    let y_row = first_row + row * EACH;
    let y_column = first_column + column * 4u;
    store(start, y_row, y_column, sums[0] + more);
    if EACH >= 4u {
        store(start, y_row + 1u, y_column, sums[1] + more);
        store(start, y_row + 2u, y_column, sums[2] + more);
        store(start, y_row + 3u, y_column, sums[3] + more);
    }
    if EACH == 8u {
        store(start, y_row + 4u, y_column, sums[4] + more);
        store(start, y_row + 5u, y_column, sums[5] + more);
        store(start, y_row + 6u, y_column, sums[6] + more);
        store(start, y_row + 7u, y_column, sums[7] + more);
    }
}
