// The left factor of a product, in a buffer. On devices with integers of 64 bits, matmul_left_64.wgsl replaces it in kernels for
// processors, and matmul_left_texture.wgsl is for a copy in a texture.

@group(0) @binding(0) var<storage, read> left: array<vec4<f32>>;

/// The numbers from 4i on.
fn left_numbers(i: u32) -> vec4<f32> {
    return left[i];
}

fn left_number(i: u32) -> f32 {
    return left[i / 4u][i % 4u];
}
