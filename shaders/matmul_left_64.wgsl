// The left factor of a product in a buffer, in elements of 128 bits.

@group(0) @binding(0) var<storage, read> left: array<Four>;

/// The numbers from 4i on.
fn left_numbers(i: u32) -> vec4<f32> {
    return four(left[i]);
}

fn left_number(i: u32) -> f32 {
    let two = bitcast<vec2<f32>>(words_of(left[i / 4u][i / 2u % 2u]));
    return select(two.x, two.y, i % 2u == 1u);
}
