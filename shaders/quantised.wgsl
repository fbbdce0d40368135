// Rows of quantised matrices, in the layout of tensor/src/ops/weight.rs: for each chunk of 256 values the scales and minima of
// their groups, then the quants. Appended to shaders with FORMAT and `word_at`, which returns a word of the matrix.

/// Scale and minimum of a group of values, and the place of the word with the quant asked for.
struct Group { scale: f32, minimum: f32, word: u32 }

/// The group of the value `at` of a row that starts at the 16 bytes `start`.
fn group_of(start: u32, at: u32) -> Group {
    var head = 8u;
    var size = 32u;
    var per_word = 4u;
    if FORMAT == 3u {
        per_word = 8u;
    }
    if FORMAT == 5u {
        head = 16u;
        size = 16u;
    }
    let chunk = 4u * start + at / 256u * (head + 256u / per_word);
    let both = unpack2x16float(word_at(chunk + at % 256u / size));
    return Group(both.x, both.y, chunk + head + at % 256u / per_word);
}

/// The product is exact in 24 bits, so the sum is rounded once, with and without a fused multiply-add.
fn values_of(group: Group, quants: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(quants) * group.scale + group.minimum;
}

/// Four values of a row, from a multiple of four on.
fn quantised_four(start: u32, at: u32) -> vec4<f32> {
    let group = group_of(start, at);
    let bits = vec4(word_at(group.word));
    if FORMAT == 3u {
        return values_of(group, bits >> (at % 8u * 4u + vec4(0u, 4u, 8u, 12u)) & vec4(15u));
    }
    return values_of(group, bits >> vec4(0u, 8u, 16u, 24u) & vec4(255u));
}

/// Eight values of a row, from a multiple of eight on.
fn quantised_eight(start: u32, at: u32) -> mat2x4<f32> {
    let group = group_of(start, at);
    let bits = vec4(word_at(group.word));
    if FORMAT == 3u {
        return mat2x4(
            values_of(group, bits >> vec4(0u, 4u, 8u, 12u) & vec4(15u)),
            values_of(group, bits >> vec4(16u, 20u, 24u, 28u) & vec4(15u)),
        );
    }
    let more = vec4(word_at(group.word + 1u));
    return mat2x4(
        values_of(group, bits >> vec4(0u, 8u, 16u, 24u) & vec4(255u)),
        values_of(group, more >> vec4(0u, 8u, 16u, 24u) & vec4(255u)),
    );
}
