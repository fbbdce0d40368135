// A matrix in a buffer of words of 32 bits: the right factor of a product, or the table of an embedding. In kernels for
// processors, matrix_128.wgsl or matrix_256.wgsl replaces it on devices with integers of 64 bits, and matrix_texture.wgsl is for
// matrices in textures.

@group(0) @binding(1) var<storage, read> right: array<vec4<u32>>;

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

/// The words from 8i on.
fn eight_words(i: u32) -> array<vec4<u32>, 2> {
    return array(right[2u * i], right[2u * i + 1u]);
}
