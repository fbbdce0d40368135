// Loads of four and eight numbers. loads_64.wgsl replaces it where loads_64.wgsl is listed and the device has integers of 64 bits.

alias Four = vec4<f32>;
alias Eight = mat2x4<f32>;

fn four(stored: Four) -> vec4<f32> {
    return stored;
}

fn eight(stored: Eight) -> mat2x4<f32> {
    return stored;
}
