// A matrix in a buffer, in words of 32 bits: the right factor of a product, or the table of an embedding. On devices with integers
// of 64 bits, weight_words_128.wgsl or weight_words_256.wgsl replaces it in kernels for processors. weight_texture.wgsl is for
// a matrix in a texture.

@group(0) @binding(1) var<storage, read> right: array<vec4<u32>>;

/// As in weight_texture.wgsl. Here rows are stored one after the other.
const INTERLEAVED: u32 = 1u;

fn word_at(i: u32) -> u32 {
    return right[i / 4u][i % 4u];
}

/// The words 2i and 2i + 1.
fn two_words(i: u32) -> vec2<u32> {
    let half = i % 2u * 2u;
    return vec2(right[i / 2u][half], right[i / 2u][half + 1u]);
}

/// The words from 4i on.
fn four_words(i: u32) -> vec4<u32> {
    return right[i];
}

/// The words from 4i on, for an even i.
fn eight_words(i: u32) -> array<vec4<u32>, 2> {
    return array(right[i], right[i + 1u]);
}
