// The matrix of matmul_lanes.wgsl in elements of 128 bits, of which half is loaded for numbers in 16 bits.

@group(0) @binding(1) var<storage, read> right: array<vec2<u64>>;

/// As in weight_words.wgsl.
const INTERLEAVED: u32 = 1u;

fn word_at(i: u32) -> u32 {
    let two = two_words(i / 2u);
    return select(two.x, two.y, i % 2u == 1u);
}

/// The words 2i and 2i + 1.
fn two_words(i: u32) -> vec2<u32> {
    return words_of(right[i / 2u][i % 2u]);
}

/// The words from 4i on.
fn four_words(i: u32) -> vec4<u32> {
    return vec4(words_of(right[i].x), words_of(right[i].y));
}
