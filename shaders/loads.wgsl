// Loads of four and eight numbers. On devices with integers of 64 bits, loads_64.wgsl replaces it in kernels for processors.

alias Four = vec4<f32>;
alias Eight = mat2x4<f32>;

fn four(stored: Four) -> vec4<f32> {
    return stored;
}

/// The number with the index i of an array of fours.
fn number_of(stored: Four, i: u32) -> f32 {
    return stored[i % 4u];
}

fn eight(stored: Eight) -> mat2x4<f32> {
    return stored;
}
