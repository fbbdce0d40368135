// tensor/src/ops/matmul.rs: up to eight rows of `left` (m, k) times `right` (n, k) transposed, without slices, for processors.
//
// As in matmul_lanes.wgsl, loads are what takes time. The eight threads of a workgroup compute HEIGHT rows of 32 columns, so that
// each number of `right` is loaded once and used for all rows. matmul_shared.wgsl has the constants, the parameters and the
// bindings.

/// Rows: 1, 2, 4 or 8.
const HEIGHT: u32 = 2u;
/// Numbers of k in a step, which must divide k.
const STEP: u32 = max(16u, 32u / HEIGHT);
/// Blocks of four numbers of `left` that a thread loads in a step, all of one row.
const OWN: u32 = HEIGHT * STEP / 32u;

const SLOTS: u32 = 4u;

/// Sixteen numbers of a row of `right`.
fn right_sixteen(start: u32, k: u32, scale: vec2<f32>) -> mat4x4<f32> {
    if FORMAT == 0u {
        let first = eight_words((start + k) / 8u);
        let second = eight_words((start + k) / 8u + 1u);
        return mat4x4(
            bitcast<vec4<f32>>(first[0]), bitcast<vec4<f32>>(first[1]),
            bitcast<vec4<f32>>(second[0]), bitcast<vec4<f32>>(second[1]),
        );
    }
    if FORMAT < 3u {
        let eight = eight_words((start + k) / 16u);
        return mat4x4(
            from_halves(eight[0].xy), from_halves(eight[0].zw), from_halves(eight[1].xy), from_halves(eight[1].zw),
        );
    }
    let word = quant_at(start, k).word;
    let two = two_words(word / 2u);
    if FORMAT == 3u {
        let low_bits = vec4(0u, 4u, 8u, 12u);
        let high_bits = vec4(16u, 20u, 24u, 28u);
        return mat4x4(
            values_of(scale, (vec4(two.x) >> low_bits) & vec4(15u)), values_of(scale, (vec4(two.x) >> high_bits) & vec4(15u)),
            values_of(scale, (vec4(two.y) >> low_bits) & vec4(15u)), values_of(scale, (vec4(two.y) >> high_bits) & vec4(15u)),
        );
    }
    let more = two_words(word / 2u + 1u);
    let bits = vec4(0u, 8u, 16u, 24u);
    return mat4x4(
        values_of(scale, (vec4(two.x) >> bits) & vec4(255u)), values_of(scale, (vec4(two.y) >> bits) & vec4(255u)),
        values_of(scale, (vec4(more.x) >> bits) & vec4(255u)), values_of(scale, (vec4(more.y) >> bits) & vec4(255u)),
    );
}

/// Scales and minima of four rows of a quantised matrix.
fn right_scales(starts: vec4<u32>, k: u32) -> mat4x2<f32> {
    if FORMAT < 3u {
        return mat4x2<f32>();
    }
    return mat4x2(scale_at(starts.x, k), scale_at(starts.y, k), scale_at(starts.z, k), scale_at(starts.w, k));
}

/// The block with these columns of the result. A function, because Mesa computes the product of a vector and a matrix that was
/// just transposed in another order.
fn block_of(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> mat4x4<f32> {
    return transpose(mat4x4(a, b, c, d));
}

@compute @workgroup_size(8)
fn few_rows(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let flat = choose_part(flat_group(id), HEIGHT, 32u);
    let across = tiles_across(32u);
    let first_row = flat / across * HEIGHT;
    let column = flat % across * 32u + 4u * local;
    let row = min(first_row + local % HEIGHT, params.m - 1u);
    let start = params.left_at + row * params.left_step + local / HEIGHT * OWN * 4u;

    var sums: array<vec4<f32>, HEIGHT>;
    for (var r = 0u; r < HEIGHT; r++) {
        sums[r] = vec4<f32>();
    }
    // Within a loop, lavapipe reads parameters thread by thread.
    let starts = right_starts(column);
    let end = params.k;
    let alpha = params.alpha;
    for (var k = 0u; k < end; k += STEP) {
        var own = array<vec4<f32>, OWN>();
        for (var slot = 0u; slot < OWN; slot++) {
            own[slot] = four(left[(start + k) / 4u + slot]) * alpha;
            offer(local, slot, own[slot]);
        }
        offered();
        var scales = right_scales(starts, k);
        for (var i = 0u; i < STEP; i += 16u) {
            if i > 0u && FORMAT == 5u {
                scales = right_scales(starts, k + i);
            }
            var a = right_sixteen(starts.x, k + i, scales[0]);
            var b = right_sixteen(starts.y, k + i, scales[1]);
            var c = right_sixteen(starts.z, k + i, scales[2]);
            var d = right_sixteen(starts.w, k + i, scales[3]);
            for (var block = 0u; block < 4u; block++) {
                let right = block_of(a[block], b[block], c[block], d[block]);
                let slot = (i / 4u + block) % OWN;
                let first_thread = (i / 4u + block) / OWN * HEIGHT;
                for (var r = 0u; r < HEIGHT; r++) {
                    sums[r] += right * taken(own[slot], slot, first_thread + r);
                }
            }
        }
        all_taken();
    }
    for (var k = 0u; k < end_of_low(); k += 4u) {
        let own = four(low[low_place(row, k)]);
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
