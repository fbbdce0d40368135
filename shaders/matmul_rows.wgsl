// tensor/src/ops/matmul.rs: up to eight rows of `left` (m, k) times `right` (n, k) transposed, without slices, for processors.
//
// As in matmul_lanes.wgsl, loads are what takes time. The eight threads of a workgroup compute HEIGHT rows of 32 columns, so that
// each number of `right` is loaded once and used for all rows. matmul_shared.wgsl has the constants, the parameters and the
// bindings.

/// Rows: 1, 2, 4 or 8.
const HEIGHT: u32 = 2u;
/// Numbers of k in a step, which must divide k. Sixty-four quants and their scales are few loads.
const STEP: u32 = select(max(16u, 32u / HEIGHT), 64u, FORMAT >= 3u);
/// Blocks of four numbers of `left` that a thread loads in a step, all of one row.
const OWN: u32 = HEIGHT * STEP / 32u;

const SLOTS: u32 = OWN;

/// A step of a row of a quantised matrix: words of four or eight quants, and a scale and a minimum for each sixteen.
struct Quants { words: array<vec4<u32>, 4>, scales: array<vec2<f32>, 4> }

fn quants_of(start: u32, k: u32) -> Quants {
    var quants = Quants();
    if FORMAT < 3u {
        return quants;
    }
    let place = quant_at(start, k);
    let first = eight_words(place.word / 4u);
    quants.words[0] = first[0];
    quants.words[1] = first[1];
    if FORMAT > 3u {
        let second = eight_words(place.word / 4u + 2u * INTERLEAVED);
        quants.words[2] = second[0];
        quants.words[3] = second[1];
    }
    let scales = two_words(place.scale / 2u);
    quants.scales = array(
        unpack2x16float(scales.x), unpack2x16float(scales.x), unpack2x16float(scales.y), unpack2x16float(scales.y),
    );
    if FORMAT == 5u {
        let more = two_words(place.scale / 2u + 1u);
        quants.scales = array(
            unpack2x16float(scales.x), unpack2x16float(scales.y), unpack2x16float(more.x), unpack2x16float(more.y),
        );
    }
    return quants;
}

/// Numbers 16 `part` to 16 `part` + 15 of a step of a row of `right`.
fn right_sixteen(start: u32, k: u32, quants: Quants, part: u32) -> mat4x4<f32> {
    let at = start + (k + 16u * part) * INTERLEAVED;
    if FORMAT == 0u {
        let first = eight_words(at / 4u);
        let second = eight_words(at / 4u + 2u * INTERLEAVED);
        return mat4x4(
            bitcast<vec4<f32>>(first[0]), bitcast<vec4<f32>>(first[1]),
            bitcast<vec4<f32>>(second[0]), bitcast<vec4<f32>>(second[1]),
        );
    }
    if FORMAT < 3u {
        let pairs = eight_words(at / 8u);
        return mat4x4(
            from_halves(pairs[0].xy), from_halves(pairs[0].zw), from_halves(pairs[1].xy), from_halves(pairs[1].zw),
        );
    }
    var held = quants;
    let scale = held.scales[part];
    if FORMAT == 3u {
        let its_words = held.words[part / 2u];
        let two = select(its_words.xy, its_words.zw, part % 2u == 1u);
        // Quants are not moved within their half of a word; a smaller scale makes up for that, and the product is still exact.
        let bits = vec4(0xfu, 0xf0u, 0xf00u, 0xf000u);
        let scales = scale.x * vec4(1.0, 0x1p-4, 0x1p-8, 0x1p-12);
        return mat4x4(
            scaled(scales, scale.y, vec4(two.x) & bits), scaled(scales, scale.y, vec4(two.x >> 16u) & bits),
            scaled(scales, scale.y, vec4(two.y) & bits), scaled(scales, scale.y, vec4(two.y >> 16u) & bits),
        );
    }
    let its_words = held.words[part];
    let bits = vec4(0u, 8u, 16u, 24u);
    return mat4x4(
        values_of(scale, (vec4(its_words.x) >> bits) & vec4(255u)), values_of(scale, (vec4(its_words.y) >> bits) & vec4(255u)),
        values_of(scale, (vec4(its_words.z) >> bits) & vec4(255u)), values_of(scale, (vec4(its_words.w) >> bits) & vec4(255u)),
    );
}

struct TwoRows { first: mat4x4<f32>, second: mat4x4<f32> }

/// The same of two consecutive rows.
fn right_two(starts: vec2<u32>, k: u32, first: Quants, second: Quants, part: u32) -> TwoRows {
    if INTERLEAVED > 1u && (FORMAT == 1u || FORMAT == 2u) {
        // A texel has four numbers of each.
        let at = (starts.x + (k + 16u * part) * INTERLEAVED) / 8u;
        let even = eight_words(at);
        let odd = eight_words(at + INTERLEAVED / 2u);
        return TwoRows(
            mat4x4(from_halves(even[0].xy), from_halves(odd[0].xy), from_halves(even[1].xy), from_halves(odd[1].xy)),
            mat4x4(from_halves(even[0].zw), from_halves(odd[0].zw), from_halves(even[1].zw), from_halves(odd[1].zw)),
        );
    }
    return TwoRows(right_sixteen(starts.x, k, first, part), right_sixteen(starts.y, k, second, part));
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
            own[slot] = left_numbers((start + k) / 4u + slot) * alpha;
            offer(local, slot, own[slot]);
        }
        offered();
        let quants = array(quants_of(starts.x, k), quants_of(starts.y, k), quants_of(starts.z, k), quants_of(starts.w, k));
        for (var part = 0u; part < STEP / 16u; part++) {
            var a = right_two(starts.xy, k, quants[0], quants[1], part);
            var b = right_two(starts.zw, k, quants[2], quants[3], part);
            for (var block = 0u; block < 4u; block++) {
                let right = block_of(a.first[block], a.second[block], b.first[block], b.second[block]);
                let slot = (part * 4u + block) % OWN;
                let first_thread = (part * 4u + block) / OWN * HEIGHT;
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
