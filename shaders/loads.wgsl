// Loads of four and eight numbers. On devices with integers of 64 bits, loads_64.wgsl replaces it in kernels for processors.

alias Four = vec4<f32>;
alias Eight = mat2x4<f32>;

fn four(stored: Four) -> vec4<f32> {
    return stored;
}

fn eight(stored: Eight) -> mat2x4<f32> {
    return stored;
}
