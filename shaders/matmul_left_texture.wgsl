// The left factor of a product, in a texture like that in weight_texture.wgsl.

@group(0) @binding(0) var left: texture_storage_2d<rgba32uint, read>;

/// The numbers from 4i on.
fn left_numbers(i: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(textureLoad(left, vec2(i % 512u, i / 512u)));
}

fn left_number(i: u32) -> f32 {
    return left_numbers(i / 4u)[i % 4u];
}
