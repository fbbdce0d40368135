// The matrix of matmul_rows.wgsl in elements of 256 bits.

@group(0) @binding(1) var<storage, read> right: array<vec4<u64>>;

/// As in weight_words.wgsl.
const INTERLEAVED: u32 = 1u;

fn word_at(i: u32) -> u32 {
    let two = two_words(i / 2u);
    return select(two.x, two.y, i % 2u == 1u);
}

/// The words 2i and 2i + 1.
fn two_words(i: u32) -> vec2<u32> {
    return words_of(right[i / 4u][i % 4u]);
}

/// The words from 4i on, for an even i.
fn eight_words(i: u32) -> array<vec4<u32>, 2> {
    let all = right[i / 2u];
    return array(vec4(words_of(all.x), words_of(all.y)), vec4(words_of(all.z), words_of(all.w)));
}
