// A matrix in a texture with rows of 512 texels, which are four words each, for kernels for processors. lavapipe loads a number of a
// buffer for one thread after the other, and a texel for all threads at once. Rows are interleaved (tensor/src/ops/weight.rs), so that
// threads with a row each read adjacent memory.

@group(0) @binding(1) var right: texture_storage_2d<rgba32uint, read>;

/// The number of interleaved rows.
const INTERLEAVED: u32 = 32u;

fn word_at(i: u32) -> u32 {
    return four_words(i / 4u)[i % 4u];
}

/// The words 2i and 2i + 1.
fn two_words(i: u32) -> vec2<u32> {
    let words = four_words(i / 2u);
    return select(words.xy, words.zw, i % 2u == 1u);
}

/// The words from 4i on.
fn four_words(i: u32) -> vec4<u32> {
    return textureLoad(right, vec2(i % 512u, i / 512u));
}

/// The words from 4i on, and the next four of the row.
fn eight_words(i: u32) -> array<vec4<u32>, 2> {
    return array(four_words(i), four_words(i + INTERLEAVED));
}
