// Where the rows of matrices start, and the numbers of quantised ones, in the layout of tensor/src/ops/weight/format.rs: for each chunk of
// 256 values the scales and minima of their groups, then the quants. Appended to shaders with FORMAT, INTERLEAVED and `word_at`, which
// returns a word of the matrix.

/// The part of an interleaved row that lies together: four numbers, or 16 bytes of quantised ones; in the unit of `step`.
const STRIPE: u32 = select(4u, 1u, FORMAT >= 3u);

/// The start of a row behind that of the matrix. `step` is the length of a row.
fn row_start(row: u32, step: u32) -> u32 {
    return row / INTERLEAVED * INTERLEAVED * step + row % INTERLEAVED * STRIPE;
}

/// The place of the word with the value `at` of a row that starts at the 16 bytes `start`, and of the scale and minimum of its
/// group.
struct Quant { word: u32, scale: u32 }

fn quant_at(start: u32, at: u32) -> Quant {
    var head = 8u;
    var group = 32u;
    var per_word = 4u;
    if FORMAT == 3u {
        per_word = 8u;
    }
    if FORMAT == 5u {
        head = 16u;
        group = 16u;
    }
    let chunk = at / 256u * (head + 256u / per_word);
    return Quant(
        word_of_row(start, chunk + head + at % 256u / per_word), word_of_row(start, chunk + at % 256u / group),
    );
}

fn word_of_row(start: u32, i: u32) -> u32 {
    return 4u * (start + i / 4u * INTERLEAVED) + i % 4u;
}

/// Scale and minimum of the group with the value `at`.
fn scale_at(start: u32, at: u32) -> vec2<f32> {
    return unpack2x16float(word_at(quant_at(start, at).scale));
}

fn values_of(scale: vec2<f32>, quants: vec4<u32>) -> vec4<f32> {
    return scaled(vec4(scale.x), scale.y, quants);
}

/// The products are exact in 24 bits, so each sum is rounded once, with and without a fused multiply-add.
fn scaled(scales: vec4<f32>, minimum: f32, quants: vec4<u32>) -> vec4<f32> {
    // Processors have no instruction that converts unsigned numbers.
    return vec4<f32>(bitcast<vec4<i32>>(quants)) * scales + minimum;
}

/// Four values of a row, from a multiple of four on.
fn quantised_four(start: u32, at: u32) -> vec4<f32> {
    let bits = vec4(word_at(quant_at(start, at).word));
    let scale = scale_at(start, at);
    if FORMAT == 3u {
        return values_of(scale, (bits >> (at % 8u * 4u + vec4(0u, 4u, 8u, 12u))) & vec4(15u));
    }
    return values_of(scale, (bits >> vec4(0u, 8u, 16u, 24u)) & vec4(255u));
}
